// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The type and the decoding that a field of a trace event gets in a schema, and the parameter by
//! which a probe gets it.

use super::print::Shown;
use super::{Field, Shape, TraceEvent};
use crate::kernel_types::KernelTypes;
use klogger_schema::model::Param;
use klogger_schema::names::is_parameter;

/// Longest array of characters, and of numbers, in bytes.
const TEXT_MAX: u32 = 256;
const ARRAY_MAX: u32 = 128;
/// Bytes of a text where the event has another one whose length varies.
const SHORT_TEXT: u32 = 64;

/// A field of a schema, and the parameter that it is from.
pub(super) struct Column {
    pub name: String,
    kind: Kind,
    shown: As,
    parameter: Param,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bool,
    /// Bytes, and whether it has a sign.
    Number(u32, bool),
    /// Elements, their bytes, and whether they have a sign.
    Array(u32, u32, bool),
    Text(u32),
    /// `string`
    Tail,
    Pointer,
}

/// How it is shown.
enum As {
    Plain,
    Word(&'static str),
    Table(bool, Vec<(u64, String)>),
}

/// The column of a field; `None` if no probe can read it. `has_tail`: the event has a `string`.
pub(super) fn column(
    event: &TraceEvent,
    field: &Field,
    kernel: &KernelTypes,
    has_tail: bool,
) -> Option<Column> {
    if !is_parameter(&field.name) {
        return None;
    }
    let hint = event.print.of(&field.name);
    let text = |most: u32| if has_tail { Kind::Text(most.min(SHORT_TEXT)) } else { Kind::Tail };
    let (kind, ty) = match field.shape {
        Shape::Number => number(field, kernel)?,
        Shape::Array(n) if field.ty == "char" => {
            (Kind::Text(n.min(TEXT_MAX)), "const char *".into())
        }
        Shape::Array(n) => {
            let (size, signed) = kernel.size_and_sign(&field.ty)?;
            let fits = n > 0 && field.size == n * size && field.size <= ARRAY_MAX;
            fits.then(|| (Kind::Array(n, size, signed), format!("const {} *", field.ty)))?
        }
        Shape::Text => (text(TEXT_MAX), "const char *".into()),
        Shape::Pointer if is_text(event, field, hint) => (text(TEXT_MAX), "const char *".into()),
        Shape::Pointer => (Kind::Pointer, "const void *".into()),
        Shape::Other => return None,
    };
    let shown = shown(event, field, kind, hint);
    let parameter = Param { ty, name: field.name.clone() };
    Some(Column { name: field.name.clone(), kind, shown, parameter })
}

/// The type that the kernel's source has, if its size and sign are those of the record. A system
/// call's arguments take 8 bytes each, of which the type says how many count.
fn number(field: &Field, kernel: &KernelTypes) -> Option<(Kind, String)> {
    if kernel.is_bool(&field.ty) && field.size == 1 {
        return Some((Kind::Bool, field.ty.clone()));
    }
    if let Some((size, signed)) = kernel.size_and_sign(&field.ty)
        && (size < field.size || (size, signed) == (field.size, field.signed))
    {
        return Some((Kind::Number(size, signed), field.ty.clone()));
    }
    Some((Kind::Number(field.size, field.signed), c_type(field.size, field.signed)?.into()))
}

fn c_type(size: u32, signed: bool) -> Option<&'static str> {
    Some(match (size, signed) {
        (1, true) => "signed char",
        (1, false) => "unsigned char",
        (2, true) => "short",
        (2, false) => "unsigned short",
        (4, true) => "int",
        (4, false) => "unsigned int",
        (8, true) => "long",
        (8, false) => "unsigned long",
        _ => return None,
    })
}

/// Whether a pointer is to a text. That of a system call is shown as an address by the kernel,
/// which cannot read it; its name tells.
fn is_text(event: &TraceEvent, field: &Field, hint: Option<&Shown>) -> bool {
    let is_char = field.ty == "const char *" || field.ty == "char *";
    let named = || {
        let names = ["name", "path", "type"];
        field.ty.starts_with("const") && names.iter().any(|n| field.name.contains(n))
    };
    is_char && if event.is_syscall() { named() } else { hint == Some(&Shown::Text) }
}

/// The names of fields that are 0 or positive, or an error.
const ERRORS: [&str; 6] = ["ret", "err", "error", "result", "retval", "rc"];

fn shown(event: &TraceEvent, field: &Field, kind: Kind, hint: Option<&Shown>) -> As {
    let name = field.name.as_str();
    // The kernel prints all arguments of system calls in hexadecimal.
    let hint = hint.filter(|_| !event.is_syscall());
    match (kind, hint) {
        (Kind::Bool | Kind::Number(..), Some(Shown::Table { flags, values })) => {
            As::Table(*flags, plain_rows(*flags, values))
        }
        (Kind::Bool | Kind::Text(_) | Kind::Tail, _) => As::Plain,
        (Kind::Number(8, _) | Kind::Pointer, Some(Shown::Code)) => As::Word("code"),
        (Kind::Pointer, _) => As::Word("hex"),
        (Kind::Array(4 | 16, 1, _) | Kind::Number(4, _), Some(Shown::Ip)) => As::Word("ip"),
        (Kind::Number(4, false), _) if field.ty == "dev_t" => As::Word("device"),
        (Kind::Number(4, true), _) if is_thread(event, field) => As::Word("thread"),
        (Kind::Number(4.., true), None) if ERRORS.contains(&name) => As::Word("errno"),
        (Kind::Number(..) | Kind::Array(..), Some(Shown::Hex)) => As::Word("hex"),
        (Kind::Number(..), _) if event.is_syscall() && is_bits(name) => As::Word("hex"),
        (Kind::Number(..) | Kind::Array(..), _) => As::Plain,
    }
}

/// Threads of system calls are those of the caller's namespace.
fn is_thread(event: &TraceEvent, field: &Field) -> bool {
    let name = field.name.as_str();
    let named = matches!(name, "pid" | "tid") || name.ends_with("_pid") || name.ends_with("_tid");
    // Groups have ids of the same type.
    !event.is_syscall() && (named || field.ty == "pid_t" && !name.contains("gid"))
}

fn is_bits(name: &str) -> bool {
    ["flags", "mask", "prot", "addr"].iter().any(|word| name.contains(word))
}

/// Of flags only single bits, and combinations with a bit that has no text of its own: all texts
/// whose bits are set are shown.
fn plain_rows(flags: bool, values: &[(u64, String)]) -> Vec<(u64, String)> {
    let single = |v: &u64| v.count_ones() <= 1;
    let known = values.iter().map(|(v, _)| *v).filter(single).fold(0, |all, v| all | v);
    let keep = |v: &u64| !flags || single(v) || v & !known != 0 && (*v as i64) > 0;
    values.iter().filter(|(v, _)| keep(v)).cloned().collect()
}

impl TraceEvent {
    fn is_syscall(&self) -> bool {
        self.group == "syscalls"
    }
}

impl Column {
    pub fn is_tail(&self) -> bool {
        self.kind == Kind::Tail
    }

    pub fn is_thread(&self) -> bool {
        matches!(self.shown, As::Word("thread"))
    }

    /// In a record; of a `string` without its text.
    pub fn bytes(&self) -> u32 {
        match self.kind {
            Kind::Bool => 1,
            Kind::Number(size, _) => size,
            Kind::Array(n, size, _) => n * size,
            Kind::Text(size) => size,
            Kind::Tail => 2,
            Kind::Pointer => 8,
        }
    }

    /// The decoding, if it is a word of the language.
    pub fn word(&self) -> Option<&'static str> {
        match self.shown {
            As::Word(word) => Some(word),
            As::Plain | As::Table(..) => None,
        }
    }

    /// The texts of its values.
    pub fn table(&self) -> Option<(bool, Vec<(u64, String)>)> {
        match &self.shown {
            As::Table(flags, values) => Some((*flags, values.clone())),
            As::Plain | As::Word(_) => None,
        }
    }

    /// `TYPE NAME`, as fields are declared.
    pub fn declaration(&self) -> String {
        let name = &self.name;
        match self.kind {
            Kind::Bool => format!("bool {name}"),
            Kind::Number(size, signed) => format!("{} {name}", word(size, signed)),
            Kind::Array(n, size, signed) => format!("{} {name}[{n}]", word(size, signed)),
            Kind::Text(n) => format!("string[{n}] {name}"),
            Kind::Tail => format!("string {name}"),
            Kind::Pointer => format!("ulong {name}"),
        }
    }

    /// The parameter of the probe.
    pub fn parameter(&self) -> String {
        self.parameter.declare()
    }

    /// The value for `klogger()`.
    pub fn value(&self) -> String {
        match self.kind {
            Kind::Pointer => format!("(unsigned long){}", self.parameter.name),
            // The kernel's `unsigned long` is not C's type of 64 bits.
            Kind::Array(..) => format!("(const void *){}", self.parameter.name),
            Kind::Bool | Kind::Number(..) | Kind::Text(_) | Kind::Tail => {
                self.parameter.name.clone()
            }
        }
    }
}

/// The language's type of a number.
fn word(size: u32, signed: bool) -> &'static str {
    match (size, signed) {
        (1, true) => "s8",
        (1, false) => "u8",
        (2, true) => "short",
        (2, false) => "ushort",
        (4, true) => "int",
        (4, false) => "uint",
        (_, true) => "long",
        (_, false) => "ulong",
    }
}
