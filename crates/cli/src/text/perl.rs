// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format perl`: the array of hashes of the KLogger paper, section 4.1, for `my $log = do
//! "./FILE"`.
//!
//! The header's timestamp is ns of the log clock. Serial numbers count per CPU, so the header also
//! has the CPU (-1: the recorder); for an event of a program it is `undef`, followed by the ids of
//! its thread and process.

use super::select::Choice;
use super::{Context, Format, Lines};
use klogger_log::decode::push_number;
use klogger_log::event::{EventRef, Value};
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::Preamble;
use klogger_log::text::push_int;

/// The array of the KLogger paper.
pub struct Perl;

impl Format for Perl {
    fn name(&self) -> &'static str {
        "perl"
    }

    fn description(&self) -> &'static str {
        "An array of hashes, to be read with `do`"
    }

    fn suffix(&self) -> Option<&'static str> {
        Some(".pl")
    }

    fn lines(&self, _preamble: &Preamble, _choice: &Choice) -> Box<dyn Lines> {
        Box::new(Perl)
    }
}

impl Lines for Perl {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[\n");
    }

    fn event(&mut self, event: &EventRef, _context: &Context, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\n    header => {\n        \"type\"      => \"");
        out.extend_from_slice(event.layout.name.as_bytes());
        out.extend_from_slice(b"\",\n        \"serial\"    => \"");
        push_int(out, event.serial);
        out.extend_from_slice(b"\",\n        \"timestamp\" => \"");
        push_int(out, event.time_ns);
        out.extend_from_slice(b"\",\n        \"cpu\"       => ");
        push_origin(event.origin, out);
        out.extend_from_slice(b",\n    },\n");
        let width = event.layout.fields.iter().map(|f| f.name.len()).max().unwrap_or(0);
        for field in &event.layout.fields {
            out.extend_from_slice(b"    \"");
            out.extend_from_slice(field.name.as_bytes());
            out.push(b'"');
            out.resize(out.len() + width - field.name.len(), b' ');
            out.extend_from_slice(b" => ");
            push_value(event.value(field), out);
            out.extend_from_slice(b",\n");
        }
        out.extend_from_slice(b"},\n");
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"];\n");
    }
}

/// The CPU; for a thread, `undef` and its ids.
fn push_origin(origin: Origin, out: &mut Vec<u8>) {
    let text = match (origin.cpu_column(), origin.thread()) {
        (Some(cpu), _) => format!("\"{cpu}\""),
        (None, Some(Thread { tid, tgid })) => {
            format!(
                "undef,\n        \"tid\"       => \"{tid}\",\n        \"tgid\"      => \"{tgid}\""
            )
        }
        (None, None) => "undef".into(),
    };
    out.extend_from_slice(text.as_bytes());
}

fn push_value(value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) => {
            out.push(b'"');
            push_number(out, value);
            out.push(b'"');
        }
        Value::Text(text) => push_text(text, out),
        Value::Array(elements) => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                push_value(element, out);
            }
            out.push(b']');
        }
    }
}

/// In double quotes Perl interpolates variables at `$` and `@`.
fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'$' | b'@' => out.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}
