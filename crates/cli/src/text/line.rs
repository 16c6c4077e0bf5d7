// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format text`: seconds since the log's start, CPU (`-`: the recorder), event, fields.

use super::{Context, Format};
use klogger_log::event::EventRef;
use klogger_log::preamble::Preamble;
use klogger_log::text::{push_int, push_seconds};

pub struct Line {
    /// Characters of the widest time.
    time_width: usize,
    cpu_width: usize,
    /// By event: its name, padded.
    names: Vec<Vec<u8>>,
    /// By event, then field: ` name=`.
    keys: Vec<Vec<Vec<u8>>>,
}

/// Longer names than this are not aligned with the others.
const NAME_WIDTH_MAX: usize = 24;

impl Line {
    pub fn new(preamble: &Preamble, wanted: &[bool], span_ns: u64) -> Line {
        let events = || preamble.events.iter().zip(wanted).filter(|(_, wanted)| **wanted).map(|(e, _)| e);
        let width = events().map(|e| e.name.len()).max().unwrap_or(0).min(NAME_WIDTH_MAX);
        let mut widest = Vec::new();
        push_seconds(&mut widest, span_ns as i64, 0);
        let highest = preamble.host.cpus.iter().max().copied().unwrap_or(0);
        Line {
            // One more, for the sign of what was logged before the start.
            time_width: widest.len() + 1,
            cpu_width: highest.to_string().len(),
            names: preamble.events.iter().map(|e| format!("{:width$}", e.name).into_bytes()).collect(),
            keys: preamble
                .events
                .iter()
                .map(|e| e.fields.iter().map(|f| format!(" {}=", f.name).into_bytes()).collect())
                .collect(),
        }
    }
}

impl Format for Line {
    fn event(&mut self, event: &EventRef, context: &Context, out: &mut Vec<u8>) {
        push_seconds(out, context.time(event), self.time_width);
        out.push(b' ');
        if event.from_recorder() {
            out.resize(out.len() + self.cpu_width - 1, b' ');
            out.push(b'-');
        } else {
            let digits = event.cpu.checked_ilog10().unwrap_or(0) as usize + 1;
            out.resize(out.len() + self.cpu_width.saturating_sub(digits), b' ');
            push_int(out, event.cpu);
        }
        out.push(b' ');
        let keys = &self.keys[event.index];
        let name = &self.names[event.index];
        out.extend_from_slice(if keys.is_empty() { name.trim_ascii_end() } else { name });
        for (index, key) in keys.iter().enumerate() {
            out.extend_from_slice(key);
            context.decoder.show(event, index, context.processes, out);
        }
        out.push(b'\n');
    }
}
