// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format csv`: time (ns since the log's start), cpu (-1: the recorder), serial, event, then a
//! column for each field name of the selected events. A field that an event does not have is empty;
//! an array's elements are separated by spaces. Texts are as they are, also those that a
//! spreadsheet takes for formulas (= + - @): another program must read what the log has.
//!
//! If selected events may come from programs, the columns `tid` and `tgid` follow `event`. For an
//! event that programs may log, they have the thread that logged it, and its own fields of these
//! names get a `_` appended. For other events they have the event's own fields of these names. A
//! field `event` gets a `_` as well.

use super::select::Choice;
use super::{Context, Format, Lines, THREAD, free_name};
use klogger_log::decode::push_number;
use klogger_log::event::{EventRef, Value};
use klogger_log::preamble::Preamble;
use klogger_log::text::push_int;
use klogger_schema::layout::{EventLayout, FieldLayout};
use std::collections::HashSet;

/// One table with all events.
pub struct Csv;

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn description(&self) -> &'static str {
        "A table; fields that an event does not have are empty, and texts are as they are: import \
         them as texts into a spreadsheet, which may take = + - @ for formulas"
    }

    fn suffix(&self) -> Option<&'static str> {
        Some(".csv")
    }

    fn lines(&self, preamble: &Preamble, choice: &Choice) -> Box<dyn Lines> {
        Box::new(Table::new(preamble, &choice.events))
    }
}

struct Table {
    columns: Vec<String>,
    /// By event, then column: the index of the field.
    fields: Vec<Vec<Option<usize>>>,
    /// There are columns for threads.
    threads: bool,
    /// By event: its own fields that are in those columns.
    own: Vec<[Option<usize>; 2]>,
}

impl Table {
    fn new(preamble: &Preamble, wanted: &[bool]) -> Table {
        let threads =
            preamble.user_events().iter().zip(wanted).any(|(user, wanted)| *user && *wanted);
        let user = preamble.user_events();
        let is_own =
            |i: usize, f: &FieldLayout| threads && !user[i] && THREAD.contains(&f.name.as_str());
        let name = |f: &FieldLayout| free_name(&f.name, threads);
        let mut columns: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        let events = || preamble.events.iter().enumerate();
        for (i, event) in events().filter(|(i, _)| wanted[*i]) {
            let others = event.fields.iter().filter(|f| !is_own(i, f));
            columns.extend(others.map(name).filter(|n| seen.insert(n.clone())));
        }
        let find = |i, e: &EventLayout, column: &String| {
            e.fields.iter().position(|f| !is_own(i, f) && name(f) == *column)
        };
        let fields =
            events().map(|(i, e)| columns.iter().map(|c| find(i, e, c)).collect()).collect();
        let place =
            |i, e: &EventLayout, word| e.fields.iter().position(|f| is_own(i, f) && f.name == word);
        let own = events().map(|(i, e)| THREAD.map(|word| place(i, e, word))).collect();
        Table { columns, fields, threads, own }
    }
}

impl Lines for Table {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"time,cpu,serial,event");
        if self.threads {
            out.extend_from_slice(b",tid,tgid");
        }
        for column in &self.columns {
            out.push(b',');
            out.extend_from_slice(column.as_bytes());
        }
        out.push(b'\n');
    }

    fn event(&mut self, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        push_int(out, context.time(event));
        out.push(b',');
        if let Some(cpu) = event.origin.cpu_column() {
            push_int(out, cpu);
        }
        out.push(b',');
        push_int(out, event.serial);
        out.push(b',');
        out.extend_from_slice(event.layout.name.as_bytes());
        if self.threads {
            let thread = event.origin.thread().map(|t| [t.tid, t.tgid]);
            for (i, place) in self.own[event.index].iter().enumerate() {
                out.push(b',');
                match (thread, place) {
                    (Some(ids), _) => push_int(out, ids[i]),
                    (None, Some(index)) => {
                        push_value(event.value(&event.layout.fields[*index]), out)
                    }
                    (None, None) => {}
                }
            }
        }
        for place in &self.fields[event.index] {
            out.push(b',');
            if let Some(index) = place {
                push_value(event.value(&event.layout.fields[*index]), out);
            }
        }
        out.push(b'\n');
    }
}

fn push_value(value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) => push_number(out, value),
        Value::Text(text) => push_text(text, out),
        Value::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                push_number(out, element);
            }
        }
    }
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    let special = |b: &u8| matches!(b, b',' | b'"' | b'\n' | b'\r');
    let text = String::from_utf8_lossy(text);
    if text.as_bytes().iter().any(special) {
        out.extend_from_slice(format!("\"{}\"", text.replace('"', "\"\"")).as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}
