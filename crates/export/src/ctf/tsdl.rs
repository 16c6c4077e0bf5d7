// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The metadata of CTF 1.8: a text in its own language, TSDL.
//!
//! A field name could be a keyword of the language, so all names of fields begin with an
//! underscore, which readers remove.

use super::metadata::{Environment, Metadata, Setting};
use super::stream::{
    Class, EVENT_CONTEXT, EVENT_HEADER, MAGIC, Member, PACKET_CONTEXT, PACKET_HEADER, Role,
};
use super::types::{Integer, Type, of_field};
use klogger_schema::layout::EventLayout;
use std::fmt::Write;

/// Writing to a string cannot fail, so the results of `write!` are ignored.
pub fn text(metadata: &Metadata) -> String {
    let mut out = String::from("/* CTF 1.8 */\n\n");
    trace(metadata, &mut out);
    environment(&metadata.environment, &mut out);
    clock(metadata, &mut out);
    for class in &metadata.classes {
        stream(*class, metadata, &mut out);
        for event in metadata.events.iter() {
            self::event(event, *class, metadata, &mut out);
        }
    }
    out
}

fn trace(metadata: &Metadata, out: &mut String) {
    let uuid = quoted(&metadata.uuid_text());
    let _ =
        writeln!(out, "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = {uuid};\n\tbyte_order = le;");
    structure("packet.header", PACKET_HEADER, metadata, out);
    out.push_str("};\n\n");
}

fn environment(environment: &Environment, out: &mut String) {
    out.push_str("env {\n");
    for (name, setting) in environment {
        let value = match setting {
            Setting::Number(n) => n.to_string(),
            Setting::Text(text) => quoted(text),
        };
        let _ = writeln!(out, "\t{name} = {value};");
    }
    out.push_str("};\n\n");
}

fn clock(metadata: &Metadata, out: &mut String) {
    let clock = &metadata.clock;
    let _ = writeln!(
        out,
        "clock {{\n\tname = \"{}\";\n\tdescription = {};",
        clock.name,
        quoted(&clock.description)
    );
    let _ = writeln!(out, "\tfreq = 1000000000;\n\tprecision = {};", clock.precision_ns);
    let _ =
        writeln!(out, "\toffset_s = {};\n\toffset = {};\n}};\n", clock.offset_s, clock.offset_ns);
}

fn stream(class: Class, metadata: &Metadata, out: &mut String) {
    let _ = writeln!(out, "stream {{\n\tid = {};", class.id());
    let context: Vec<Member> = PACKET_CONTEXT.iter().chain(class.members()).copied().collect();
    structure("packet.context", &context, metadata, out);
    structure("event.header", EVENT_HEADER, metadata, out);
    structure("event.context", EVENT_CONTEXT, metadata, out);
    out.push_str("};\n\n");
}

fn structure(name: &str, members: &[Member], metadata: &Metadata, out: &mut String) {
    let _ = writeln!(out, "\t{name} := struct {{");
    for member in members {
        let map = match member.role {
            Role::Time | Role::PacketEnd => format!(" map = clock.{}.value;", metadata.clock.name),
            _ => String::new(),
        };
        let ty = integer(&Integer::unsigned(member.bits), &map);
        let array = if member.role == Role::Uuid { "[16]" } else { "" };
        let _ = writeln!(out, "\t\t{ty} {}{array};", member.name);
    }
    out.push_str("\t};\n");
}

fn event(event: &EventLayout, class: Class, metadata: &Metadata, out: &mut String) {
    if let Some(doc) = &event.doc {
        let _ = writeln!(out, "/* {} */", comment(doc));
    }
    let _ = writeln!(
        out,
        "event {{\n\tname = {};\n\tid = {};\n\tstream_id = {};",
        quoted(&event.name),
        event.id,
        class.id()
    );
    out.push_str("\tfields := struct {\n");
    for field in &event.fields {
        if let Some(doc) = &field.doc {
            let _ = writeln!(out, "\t\t/* {} */", comment(doc));
        }
        let (ty, array) = match of_field(field, metadata.preamble) {
            Type::One(one) => (labelled(&one), String::new()),
            Type::Array(n, element) => (integer(&element, ""), format!("[{n}]")),
            Type::Text => ("string { encoding = UTF8; }".into(), String::new()),
        };
        let _ = writeln!(out, "\t\t{ty} _{}{array};", field.name);
    }
    out.push_str("\t};\n};\n\n");
}

fn labelled(one: &Integer) -> String {
    let ty = integer(one, "");
    if one.labels.is_empty() {
        return ty;
    }
    let labels: Vec<_> =
        one.labels.iter().map(|(value, name)| format!("{} = {value}", quoted(name))).collect();
    format!("enum : {ty} {{ {} }}", labels.join(", "))
}

fn integer(integer: &Integer, more: &str) -> String {
    let base = match integer.base {
        10 => String::new(),
        base => format!(" base = {base};"),
    };
    format!(
        "integer {{ size = {}; align = 8; signed = {};{base}{more} }}",
        integer.bits, integer.signed
    )
}

/// A quoted string: characters that would end it, or are not printable, are escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // A NUL would end the string for programs in C.
            '\0' => out.push(char::REPLACEMENT_CHARACTER),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\{:03o}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A text that cannot end its comment.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace(char::is_control, " ")
}

const _: () = assert!(MAGIC == 0xc1fc_1fc1, "the magic number of both versions");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_where_they_are() {
        assert_eq!(quoted("a\"b\\c\nd\0e$é"), "\"a\\\"b\\\\c\\012d\u{fffd}e$é\"");
        assert_eq!(comment("end */ here\n"), "end * / here ");
    }
}
