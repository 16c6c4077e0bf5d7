// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Makes a schema of trace events: an event for each, with all fields that a probe can read.

use super::field_type::{Column, column};
use super::{Field, TraceEvent};
use crate::kernel_types::KernelTypes;
use klogger_schema::layout::RECORD_MAX;
use klogger_schema::names::{Kind, NAME_MAX, is_free};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

/// The name of such a schema. Logs have it, so it stays.
const NAME: &str = "events";
/// Bytes that a `string` may add to a record.
const STRING: u32 = 256;
/// Fields of a scope at most.
const SCOPE_MAX: usize = 8;
/// Columns of generated text.
const WIDTH: usize = 100;

/// A schema of trace events.
pub struct Made {
    pub text: String,
    /// The fields that no probe can read: `GROUP:NAME`, and their names.
    pub left_out: Vec<(String, Vec<String>)>,
}

/// The texts of tables that have been written.
type Tables = HashMap<(bool, Vec<(u64, String)>), String>;

/// The text of a schema of these events, in their order.
pub fn schema(events: &[TraceEvent], kernel: &KernelTypes) -> Made {
    let mut text = String::from(
        "// Made by 'klogger show -e' from a kernel's descriptions of its trace events. Remove\n\
         // what you do not need; docs/schema-language.md says what else there is.\n",
    );
    let _ = writeln!(text, "schema {NAME} \"{}\"", about(events));
    let mut made = Made { text, left_out: Vec::new() };
    let (mut tables, mut names) = (Tables::new(), BTreeSet::new());
    for event in events {
        one(event, kernel, &mut made, &mut tables, &mut names);
    }
    made
}

/// The schema's description: the names of the events, as far as a line has space.
fn about(events: &[TraceEvent]) -> String {
    let names: Vec<String> = events.iter().map(TraceEvent::full_name).collect();
    let all = format!("Trace events: {}", names.join(", "));
    match names.split_first() {
        Some((first, rest)) if all.len() > WIDTH - 20 => {
            format!("Trace events: {first} and {} others", rest.len())
        }
        Some(_) | None => all,
    }
}

/// Adds one event and its probe.
fn one(
    event: &TraceEvent,
    kernel: &KernelTypes,
    made: &mut Made,
    tables: &mut Tables,
    names: &mut BTreeSet<String>,
) {
    let name = event_name(event, names);
    let (columns, left_out) = columns(event, kernel);
    let decoded: Vec<String> =
        columns.iter().map(|c| decoding(c, &name, tables, names, &mut made.text)).collect();
    let out = &mut made.text;
    let threads: Vec<&str> =
        columns.iter().filter(|c| c.is_thread()).map(|c| c.name.as_str()).collect();
    let scope = match threads.is_empty() {
        true => String::new(),
        false => {
            let more = threads.iter().take(SCOPE_MAX - 1).copied();
            let all: Vec<&str> = std::iter::once("tid").chain(more).collect();
            format!(" scope {}", all.join(", "))
        }
    };
    let full = event.full_name();
    let head = format!("event {name} \"{full}\"");
    let end = if head.len() + scope.len() + 2 > WIDTH { "\n   " } else { "" };
    let _ = writeln!(out, "\n{head}{end}{scope} {{");
    let _ = writeln!(out, "    int tid as thread \"the thread that was running\"");
    for (column, decoded) in columns.iter().zip(&decoded) {
        let _ = writeln!(out, "    {}{decoded}", column.declaration());
    }
    let _ = writeln!(out, "}}");
    if !left_out.is_empty() {
        let _ = writeln!(out, "// Not in it: {}.", left_out.join(", "));
        made.left_out.push((full.clone(), left_out));
    }
    let parameters: Vec<String> = columns.iter().map(Column::parameter).collect();
    let values: Vec<String> = [name, "klogger_current_tid()".into()]
        .into_iter()
        .chain(columns.iter().map(Column::value))
        .collect();
    let _ = writeln!(
        out,
        "{}\n{}\n}}",
        wrapped(&format!("probe trace_event {full}("), &parameters, ") {", "     "),
        wrapped("    klogger(", &values, ");", "            ")
    );
}

/// The event's own name, unless the language reserves it or another event has it.
fn event_name(event: &TraceEvent, names: &mut BTreeSet<String>) -> String {
    let own = legal(&event.name);
    let both = || legal(&format!("{}_{}", event.group, event.name));
    let free = |name: &String| is_free(Kind::Event, name) && !names.contains(&lower(name));
    let name = [own.clone(), both()].into_iter().find(free);
    let mut name = name.unwrap_or(own);
    while !free(&name) {
        name.push('_');
    }
    names.insert(lower(&name));
    name
}

fn lower(name: &str) -> String {
    name.to_lowercase()
}

/// A name of the language: names of modules' events may begin with a digit.
fn legal(name: &str) -> String {
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let begins = name.starts_with(|c: char| c.is_ascii_digit());
    let name = if begins { format!("_{name}") } else { name };
    name.chars().take(NAME_MAX).collect()
}

/// The fields that can be read, and the names of the others.
fn columns(event: &TraceEvent, kernel: &KernelTypes) -> (Vec<Column>, Vec<String>) {
    let (mut columns, mut left_out): (Vec<Column>, Vec<String>) = (Vec::new(), Vec::new());
    let mut names: BTreeSet<String> = BTreeSet::from(["tid".into()]);
    // The header, `tid`, and one text whose length varies.
    let mut size = 16 + STRING;
    for field in &event.fields {
        let has_tail = columns.iter().any(Column::is_tail);
        let fit = column(event, field, kernel, has_tail)
            .filter(|c| size + c.bytes().next_multiple_of(8) <= RECORD_MAX);
        match fit {
            Some(mut column) => {
                column.name = field_name(field, &names);
                names.insert(lower(&column.name));
                size += column.bytes().next_multiple_of(8);
                columns.push(column);
            }
            None => left_out.push(field.name.clone()),
        }
    }
    (columns, left_out)
}

fn field_name(field: &Field, taken: &BTreeSet<String>) -> String {
    let mut name = legal(&field.name);
    while !is_free(Kind::Field, &name) || taken.contains(&lower(&name)) {
        name.push('_');
    }
    name
}

/// ` as DECODING` of a field. A table that is not there yet is written.
fn decoding(
    column: &Column,
    event: &str,
    tables: &mut Tables,
    names: &mut BTreeSet<String>,
    out: &mut String,
) -> String {
    let Some((flags, values)) = column.table() else {
        return column.word().map(|word| format!(" as {word}")).unwrap_or_default();
    };
    let key = (flags, values);
    if let Some(known) = tables.get(&key) {
        return format!(" as {known}");
    }
    let mut name: String = format!("{event}_{}", column.name).chars().take(NAME_MAX).collect();
    while !is_free(Kind::Table, &name) || names.contains(&lower(&name)) {
        name.pop();
        name.push('_');
        names.insert(lower(&name));
    }
    names.insert(lower(&name));
    let row = |(value, text): &(u64, String)| match (flags, *value as i64) {
        (true, _) => format!("{value:#x} \"{text}\""),
        (false, value) => format!("{value} \"{text}\""),
    };
    let rows: Vec<String> = key.1.iter().map(row).collect();
    let word = if flags { "flags" } else { "enum" };
    let _ = writeln!(out, "\n{word} {name} {{\n{}\n}}", wrapped("    ", &rows, "", "    "));
    tables.insert(key, name.clone());
    format!(" as {name}")
}

/// `before A, B, ... after`, in lines of at most [`WIDTH`] columns; further ones begin with
/// `indent`.
fn wrapped(before: &str, parts: &[String], after: &str, indent: &str) -> String {
    let (mut text, mut column) = (before.to_string(), before.len());
    for (n, part) in parts.iter().enumerate() {
        let last = n + 1 == parts.len();
        let end = if last { after } else { "," };
        if n > 0 && column + 1 + part.len() + end.len() > WIDTH {
            text = format!("{text}\n{indent}");
            column = indent.len();
        } else if n > 0 {
            text.push(' ');
            column += 1;
        }
        text += part;
        text += end;
        column += part.len() + end.len();
    }
    if parts.is_empty() { text + after } else { text }
}
