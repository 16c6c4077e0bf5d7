// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Trace events: the records that the kernel makes of its tracepoints and system calls for perf and
//! ftrace, as the `format` files of tracefs describe them.
//!
//! BTF has the arguments of a tracepoint, and structures of records by class, but not which event
//! has which class, nor what values mean. The format files have each event's fields, by the names
//! that users of perf and trace-cmd know, and the texts of flags. So probes of this kind read the
//! record.

mod constant;
mod field_type;
mod print;
mod schema;

pub use schema::{Made, schema};

use crate::Refusal;
use print::Print;

/// A trace event of a kernel.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    pub group: String,
    pub name: String,
    /// Without those that all events have.
    pub fields: Vec<Field>,
    print: Print,
}

/// The first field of what is made through tracefs: the address of a probe, or the function that
/// returned.
const MADE: [&str; 2] = ["__probe_ip", "__probe_func"];

impl TraceEvent {
    /// Whether somebody has made it at some place, as `perf probe` does. Of these, the kernel
    /// passes no records to BPF programs.
    pub fn is_made(&self) -> bool {
        self.fields.first().is_some_and(|field| MADE.contains(&field.name.as_str()))
    }

    pub fn made(&self) -> Refusal {
        Refusal::of_this_kernel(
            format!(
                "trace event '{}' is a probe that was made through tracefs, as perf probe does, \
                 and the kernel passes what it records to no BPF program",
                self.full_name()
            ),
            Some(
                "probe the place in a schema: 'probe function NAME(...)' of the kernel, \
                 'probe user PROGRAM:FUNCTION(...)' of a program; 'klogger places PROGRAM' lists \
                 functions"
                    .into(),
            ),
        )
    }
}

/// A field of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Of an array that of its elements.
    pub ty: String,
    pub shape: Shape,
    pub offset: u32,
    /// Bytes in the record.
    pub size: u32,
    pub signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Number,
    Pointer,
    /// In the record, with this many elements.
    Array(u32),
    /// `__data_loc char[]`: a text at the end of the record.
    Text,
    /// What no probe can use: structures, and other arrays whose length varies.
    Other,
}

impl TraceEvent {
    /// `text`: the contents of `events/GROUP/NAME/format`.
    ///
    /// # Errors
    ///
    /// If it does not have the form of such a file.
    pub fn parse(group: &str, name: &str, text: &str) -> Result<TraceEvent, String> {
        let wrong = |line: &str| format!("{group}:{name}: cannot read its format: '{line}'");
        let mut fields = Vec::new();
        for line in text.lines().filter(|l| l.trim_start().starts_with("field")) {
            let field = field(line.trim()).ok_or_else(|| wrong(line.trim()))?;
            // A system call's texts, which programs of probes do not get: only its numbers.
            let hidden = group == "syscalls" && field.name.starts_with("__");
            if !field.name.starts_with("common_") && !hidden {
                fields.push(field);
            }
        }
        let print = text.lines().find_map(|l| l.strip_prefix("print fmt: ")).unwrap_or_default();
        let print = Print::parse(print);
        Ok(TraceEvent { group: group.into(), name: name.into(), fields, print })
    }

    /// `GROUP:NAME`
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.group, self.name)
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// `field:unsigned int dev; offset:8; size:4; signed:0;`, with tabs between the parts.
fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?.split_once(':')?.1.trim();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<u32>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    let signed = number("signed:")? != 0;
    let split = declared.rfind(|c: char| c.is_whitespace() || c == '*')? + 1;
    let (ty, name) = (declared[..split].trim(), &declared[split..]);
    let (name, length) = match name.split_once('[') {
        Some((name, length)) => (name, Some(length.trim_end_matches(']'))),
        None => (name, None),
    };
    let (ty, shape) = shape(ty, length, size);
    Some(Field { name: name.into(), ty: spaced(ty), shape, offset, size, signed })
}

fn shape<'a>(ty: &'a str, length: Option<&str>, size: u32) -> (&'a str, Shape) {
    if let Some(dynamic) = ty.strip_prefix("__data_loc ") {
        let element = dynamic.trim_end_matches("[]").trim();
        let is_text = element == "char" && dynamic.ends_with("[]") && size == 4;
        return (element, if is_text { Shape::Text } else { Shape::Other });
    }
    let aggregate = ["struct ", "union ", "__rel_loc "].iter().any(|word| ty.starts_with(word));
    let shape = match length {
        // Lengths may be constants of the kernel's source.
        Some(_) if ty == "char" => Shape::Array(size),
        Some(length) => match length.parse() {
            Ok(count) if !aggregate && !ty.ends_with(']') => Shape::Array(count),
            Ok(_) | Err(_) => Shape::Other,
        },
        None if ty.ends_with('*') && size == 8 => Shape::Pointer,
        None if !aggregate && matches!(size, 1 | 2 | 4 | 8) && !ty.ends_with(']') => Shape::Number,
        None => Shape::Other,
    };
    (ty, shape)
}

/// A type with single spaces, and none after a `*`.
fn spaced(ty: &str) -> String {
    ty.split_whitespace().collect::<Vec<_>>().join(" ").replace("* *", "**")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(declared: &str, size: u32) -> (String, String, Shape) {
        let line = format!("field:{declared};\toffset:8;\tsize:{size};\tsigned:0;");
        let field = field(&line).unwrap();
        (field.ty, field.name, field.shape)
    }

    #[test]
    fn fields_have_a_type_a_name_and_a_shape() {
        let is = |declared, size, ty: &str, name: &str, shape| {
            assert_eq!(of(declared, size), (ty.into(), name.into(), shape), "{declared}");
        };
        is("pid_t prev_pid", 4, "pid_t", "prev_pid", Shape::Number);
        is("unsigned long flags", 8, "unsigned long", "flags", Shape::Number);
        is("char comm[16]", 16, "char", "comm", Shape::Array(16));
        is("char comm[TASK_COMM_LEN]", 16, "char", "comm", Shape::Array(16));
        is("__u8 saddr[4]", 4, "__u8", "saddr", Shape::Array(4));
        is("const char * filename", 8, "const char *", "filename", Shape::Pointer);
        is("const char *const * argv", 8, "const char *const *", "argv", Shape::Pointer);
        is("__data_loc char[] cmd", 4, "char", "cmd", Shape::Text);
        is("__data_loc unsigned long[] mask", 4, "unsigned long", "mask", Shape::Other);
        is("__rel_loc char[] name", 4, "__rel_loc char[]", "name", Shape::Other);
        is("struct foo x", 8, "struct foo", "x", Shape::Other);
        is("u32 x[N]", 8, "u32", "x", Shape::Other);
        is("uuid_t id", 16, "uuid_t", "id", Shape::Other);
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for bad in ["field:int", "field: x; offset:", "field:int x; offset:a; size:4; signed:1;"] {
            let said = TraceEvent::parse("a", "b", bad).unwrap_err();
            assert_eq!(said, format!("a:b: cannot read its format: '{bad}'"));
        }
    }
}
