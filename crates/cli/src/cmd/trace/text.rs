// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Events as lines for people, as strace has them: the time, the thread, and the event as its
//! schema's `line` has it, or else its name and its fields.

use super::chosen::short_place;
use super::clock::Clock;
use super::joined::Joined;
use super::paint::{Colour, Paint};
use crate::text::Context;
use crate::text::times;
use klogger_log::builtin::Builtin;
use klogger_log::event::{EventRef, Value};
use klogger_log::text::{escape_from, push_quoted};
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::lines::{Part, parts};
use klogger_schema::model::Decode;
use klogger_schema::vocabulary::PLACE;

/// Writes lines.
pub struct Text {
    pub clock: Clock,
    pub paint: Paint,
    /// By event.
    events: Vec<How>,
}

/// How an event is written.
struct How {
    /// `None`: its name and its fields.
    line: Option<Vec<Part>>,
    /// The field with the thread that it belongs to.
    owner: Option<usize>,
    builtin: Option<Builtin>,
}

/// An event, and the one that its line names fields of.
struct Pair<'a> {
    event: &'a EventRef<'a>,
    other: Option<EventRef<'a>>,
}

impl<'a> Pair<'a> {
    /// The field of this name, and its event.
    fn find(&self, name: &str) -> Option<(&EventRef<'a>, usize)> {
        let of = |event: &EventRef| event.layout.fields.iter().position(|f| f.name == name);
        let own = of(self.event).map(|at| (self.event, at));
        own.or_else(|| self.other.as_ref().and_then(|other| Some((other, of(other)?))))
    }

    /// Whether a field is there, and neither 0 nor empty.
    fn has(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(event, at)| match event.value(&event.layout.fields[at]) {
            Value::Text(text) => !text.is_empty(),
            value => value.bits() != Some(0),
        })
    }
}

impl Text {
    pub fn new(clock: Clock, paint: Paint) -> Text {
        Text { clock, paint, events: Vec::new() }
    }

    /// Learns the events of a preamble; called again when it has become longer.
    pub fn learn(&mut self, events: &[EventLayout]) {
        let how = |event: &EventLayout| How {
            line: event
                .line
                .as_ref()
                .filter(|_| !event.has_empty_line())
                .and_then(|line| parts(&line.text).ok()),
            owner: klogger_export::owner(event),
            builtin: Builtin::of(event),
        };
        self.events = events.iter().map(how).collect();
    }

    pub fn event(
        &mut self,
        event: &EventRef,
        late: bool,
        events: &[EventLayout],
        joined: &Joined,
        context: &Context,
        out: &mut Vec<u8>,
    ) {
        self.clock.push(event.time_ns, context.start_ns, out);
        let how = &self.events[event.index];
        self.push_thread(how, event, context, out);
        let kept = joined.find(event);
        let other = kept.map(|kept| kept.event(&events[kept.index], event));
        match (&how.line, how.builtin) {
            (_, Some(Builtin::Lost)) => self.push_loss(event, out),
            (Some(line), _) => {
                self.push_parts(line, &Pair { event, other }, context, out);
            }
            (None, _) => self.push_fields(how, event, context, out),
        }
        if late {
            self.paint.push(Colour::Red, b"  (late)", out);
        }
        out.push(b'\n');
    }

    /// `program[tid] `
    fn push_thread(&self, how: &How, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        let field = how.owner.map(|at| event.value(&event.layout.fields[at]));
        let of_program = || event.origin.thread().map(|t| i64::from(t.tid));
        let Some(tid) = field.and_then(Value::int).or_else(of_program) else {
            if let Some(cpu) = event.origin.cpu().filter(|_| how.builtin.is_none()) {
                self.paint.push(Colour::Cyan, format!("[cpu {cpu}] ").as_bytes(), out);
            }
            return;
        };
        self.paint.begin(Colour::Cyan, out);
        let start = out.len();
        out.extend_from_slice(context.processes.name(tid).unwrap_or(b"?"));
        out.extend_from_slice(format!("[{tid}]").as_bytes());
        escape_from(out, start);
        self.paint.end(out);
        out.push(b' ');
    }

    fn push_loss(&self, event: &EventRef, out: &mut Vec<u8>) {
        let count = event.get("count").and_then(Value::bits).unwrap_or(0);
        let since = event.get("since").and_then(Value::bits).unwrap_or(event.time_ns);
        let took = times::duration(event.time_ns.saturating_sub(since));
        let of = match event.origin.thread() {
            Some(thread) => format!("thread {}", thread.tid),
            None => format!("CPU {}", event.origin.cpu().unwrap_or_default()),
        };
        let text = format!("--- {count} events of {of} were LOST, in the {took} before this ---");
        self.paint.push(Colour::Red, text.as_bytes(), out);
    }

    fn push_parts(&self, parts: &[Part], pair: &Pair, context: &Context, out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Text(text) => {
                    let start = out.len();
                    out.extend_from_slice(text.as_bytes());
                    escape_from(out, start);
                }
                Part::Field(name) | Part::Deciding(name) => match pair.find(name) {
                    Some((event, at)) => self.push_value(event, at, context, out),
                    None => out.push(b'?'),
                },
                Part::Condition(_) => {}
                Part::Optional(inner) => {
                    if Part::is_there(inner, |name| pair.has(name)) {
                        self.push_parts(inner, pair, context, out);
                    }
                }
            }
        }
    }

    /// A value: texts in quotes, times in words, errors in red, no units.
    fn push_value(&self, event: &EventRef, at: usize, context: &Context, out: &mut Vec<u8>) {
        let field = &event.layout.fields[at];
        let value = event.value(field);
        let failed = field.decode == Decode::Errno && value.int().is_some_and(is_error);
        if failed {
            self.paint.begin(Colour::Red, out);
        }
        let start = out.len();
        match (value, unit_ns(field)) {
            (Value::Text(text), _) => {
                push_quoted(out, text);
                // As in other formats: a text that fills its place was most likely longer.
                if field.shape.tail_max().is_some_and(|most| text.len() >= most as usize) {
                    out.extend_from_slice(b"...");
                }
            }
            (_, Some(ns)) if field.decode == Decode::Plain => {
                let time = value.bits().unwrap_or(0).saturating_mul(ns);
                out.extend_from_slice(short(time).as_bytes());
            }
            _ if field.decode == Decode::Table(PLACE.into()) => {
                let mut place = Vec::new();
                context.decoder.name(event, at, context.processes, &mut place);
                out.extend_from_slice(short_place(&place));
            }
            _ => context.decoder.show_bare(event, at, context.processes, out),
        }
        escape_from(out, start);
        if failed {
            self.paint.end(out);
        }
    }

    /// `NAME field=value field=value`, without the thread that the line begins with.
    fn push_fields(&self, how: &How, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        self.paint.push(Colour::Bold, event.layout.name.as_bytes(), out);
        let start = out.len();
        for (at, field) in event.layout.fields.iter().enumerate() {
            if how.owner != Some(at) {
                out.push(b' ');
                out.extend_from_slice(field.name.as_bytes());
                out.push(b'=');
                context.decoder.show(event, at, context.processes, out);
            }
        }
        escape_from(out, start);
    }
}

/// The numbers that a system call returns for errors; others are results.
fn is_error(number: i64) -> bool {
    (-4095..0).contains(&number)
}

/// ns of the field's unit, if it is one of time.
fn unit_ns(field: &FieldLayout) -> Option<u64> {
    match field.unit.as_deref()? {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    }
}

/// Three digits: `812 ns`, `12.3 us`, `1.23 ms`.
fn short(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let all = [812, 1_234, 12_345, 123_456, 1_234_567, 61_000_000_000].map(short);
        assert_eq!(all, ["812 ns", "1.23 us", "12.3 us", "123 us", "1.23 ms", "61.0 s"]);
    }
}
