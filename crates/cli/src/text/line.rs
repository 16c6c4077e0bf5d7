// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format text`: seconds since the log's start, CPU (`-`: the recorder) or thread (`t1234`),
//! event, fields.

use super::select::{Choice, Extent};
use super::{Context, Format, Lines};
use klogger_log::event::EventRef;
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::text::{escape_from, push_int, push_seconds};

/// One line per event, for people.
pub struct Text;

impl Format for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn description(&self) -> &'static str {
        "A line for each event, decoded"
    }

    fn suffix(&self) -> Option<&'static str> {
        None
    }

    fn lines(&self, preamble: &Preamble, choice: &Choice) -> Box<dyn Lines> {
        Box::new(Columns::new(preamble, &choice.events, choice.extent))
    }
}

struct Columns {
    /// Characters of the widest time.
    time_width: usize,
    /// Width of the widest CPU or thread.
    origin_width: usize,
    /// By event: its name, padded.
    names: Vec<Vec<u8>>,
    /// By event, then field: ` name=`.
    keys: Vec<Vec<Vec<u8>>>,
}

/// Longer names than this are not aligned with the others.
const NAME_WIDTH_MAX: usize = 24;

impl Columns {
    fn new(preamble: &Preamble, wanted: &[bool], extent: Extent) -> Columns {
        let events =
            || preamble.events.iter().zip(wanted).filter(|(_, wanted)| **wanted).map(|(e, _)| e);
        let width = events().map(|e| e.name.len()).max().unwrap_or(0).min(NAME_WIDTH_MAX);
        let mut widest = Vec::new();
        push_seconds(&mut widest, extent.span_ns as i64, 0);
        let highest = preamble.host.cpus.iter().max().copied().unwrap_or(0);
        Columns {
            // One more, for the sign of events that were logged before the start.
            time_width: widest.len() + 1,
            origin_width: digits(highest).max(extent.tid.map_or(0, |tid| digits(tid) + 1)),
            names: preamble
                .events
                .iter()
                .map(|e| format!("{:width$}", e.name).into_bytes())
                .collect(),
            keys: preamble
                .events
                .iter()
                .map(|e| e.fields.iter().map(|f| format!(" {}=", f.name).into_bytes()).collect())
                .collect(),
        }
    }
}

impl Columns {
    #[inline]
    fn push_origin(&self, origin: Origin, out: &mut Vec<u8>) {
        let mut pad =
            |width: usize| out.resize(out.len() + self.origin_width.saturating_sub(width), b' ');
        match origin {
            Origin::Cpu(cpu) => {
                pad(digits(cpu.into()));
                push_int(out, cpu);
            }
            Origin::Recorder => {
                pad(1);
                out.push(b'-');
            }
            Origin::Thread { thread, .. } => {
                pad(digits(thread.tid) + 1);
                out.push(b't');
                push_int(out, thread.tid);
            }
        }
    }
}

fn digits(number: u32) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

impl Lines for Columns {
    fn event(&mut self, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        let start = out.len();
        push_seconds(out, context.time(event), self.time_width);
        out.push(b' ');
        self.push_origin(event.origin, out);
        out.push(b' ');
        let keys = &self.keys[event.index];
        let name = &self.names[event.index];
        out.extend_from_slice(if keys.is_empty() { name.trim_ascii_end() } else { name });
        for (index, key) in keys.iter().enumerate() {
            out.extend_from_slice(key);
            context.decoder.show(event, index, context.processes, out);
        }
        // Decodings, units, names of functions: everything from the log is untrusted.
        escape_from(out, start);
        out.push(b'\n');
    }
}
