// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format json`: one object per line: `time` (ns since the log's start), `cpu` (-1: the
//! recorder), `serial`, `event`, and the fields as they are in the log, not decoded. For an event
//! of a thread of a program, `cpu` is null, and `tid` and `tgid` follow it; in schemata of
//! programs, a field of such a name gets a `_` appended, and so does a field `event` everywhere.

use super::select::Choice;
use super::{Context, Format, Lines, free_name};
use klogger_log::decode::push_number;
use klogger_log::event::{EventRef, Value};
use klogger_log::preamble::Preamble;
use klogger_log::text::push_int;
use klogger_schema::layout::{EventLayout, FieldLayout};

/// One object for each event.
pub struct Json;

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn description(&self) -> &'static str {
        "A JSON object for each event and line"
    }

    fn suffix(&self) -> Option<&'static str> {
        Some(".json")
    }

    fn lines(&self, preamble: &Preamble, _choice: &Choice) -> Box<dyn Lines> {
        Box::new(Objects::new(preamble))
    }
}

pub struct Objects {
    /// By event: `,"event":"NAME"`.
    names: Vec<Vec<u8>>,
    /// By event, then field: `,"name":`.
    keys: Vec<Vec<Vec<u8>>>,
}

impl Objects {
    /// The names are valid in C, which the reader of the log has checked, so they need no escapes.
    pub fn new(preamble: &Preamble) -> Objects {
        let keys = |event: &EventLayout, user: bool| {
            let key = |f: &FieldLayout| format!(",\"{}\":", free_name(&f.name, user)).into_bytes();
            event.fields.iter().map(key).collect()
        };
        Objects {
            names: preamble
                .events
                .iter()
                .map(|e| format!(",\"event\":\"{}\"", e.name).into_bytes())
                .collect(),
            keys: preamble
                .events
                .iter()
                .zip(preamble.user_events())
                .map(|(e, user)| keys(e, user))
                .collect(),
        }
    }
}

impl Lines for Objects {
    fn event(&mut self, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":");
        push_int(out, context.time(event));
        out.extend_from_slice(b",\"cpu\":");
        match event.origin.cpu_column() {
            Some(cpu) => push_int(out, cpu),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(thread) = event.origin.thread() {
            out.extend_from_slice(b",\"tid\":");
            push_int(out, thread.tid);
            out.extend_from_slice(b",\"tgid\":");
            push_int(out, thread.tgid);
        }
        out.extend_from_slice(b",\"serial\":");
        push_int(out, event.serial);
        out.extend_from_slice(&self.names[event.index]);
        for (field, key) in event.layout.fields.iter().zip(&self.keys[event.index]) {
            out.extend_from_slice(key);
            push_value(event.value(field), out);
        }
        out.extend_from_slice(b"}\n");
    }
}

fn push_value(value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Int(_) | Value::Uint(_) => push_number(out, value),
        Value::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        Value::Text(text) => push_string(text, out),
        Value::Array(elements) => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                push_value(element, out);
            }
            out.push(b']');
        }
    }
}

fn push_string(text: &[u8], out: &mut Vec<u8>) {
    let plain = |b: &u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
    if text.iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        out.extend_from_slice(
            serde_json::Value::from(String::from_utf8_lossy(text)).to_string().as_bytes(),
        );
    }
}
