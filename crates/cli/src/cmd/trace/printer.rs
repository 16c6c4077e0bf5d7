// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Prints the events of a recording that runs, in the order of time.

use super::Format;
use super::sink::Sink;
use crate::text::json::Objects;
use crate::text::{Context, Lines};
use klogger_log::decode::{self, Decoder};
use klogger_log::event::EventRef;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::process::Processes;
use klogger_log::symbols::Symbols;
use klogger_os::machine;
use klogger_recorder::Follower;
use klogger_schema::layout::EventLayout;
use std::io;

/// Bytes of lines that are handed over at a time.
const CHUNK: usize = 64 << 10;
/// Events of the recorder that tell how it drains its rings, which happens all the time here.
const OF_DRAINS: [&str; 2] = ["DUMP_BEGIN", "DUMP_FINISH"];

/// Prints events to a sink.
pub struct Printer {
    sink: Sink,
    format: Format,
    /// From the beginning of the recording on.
    state: Option<State>,
    out: Vec<u8>,
    /// Events that could not be shown since the last line.
    unshown: u64,
}

struct State {
    preamble: Preamble,
    decoder: Decoder,
    processes: Processes,
    lines: Box<dyn Lines + Send>,
    /// By event.
    shown: Vec<bool>,
}

impl Printer {
    pub fn new(sink: Sink, format: Format) -> Printer {
        Printer { sink, format, state: None, out: Vec::new(), unshown: 0 }
    }

    fn say_unshown(&mut self) {
        match self.format {
            Format::Json => {
                let text = format!("{{\"unshown\":{}}}\n", self.unshown);
                self.out.extend_from_slice(text.as_bytes());
            }
            Format::Text => {
                let text = format!(
                    "klogger: {} events are not shown here: they came faster than lines can be \
                     written\n",
                    self.unshown
                );
                self.out.extend_from_slice(text.as_bytes());
            }
        }
        self.unshown = 0;
    }

    fn hand_over(&mut self) {
        self.sink.push(std::mem::take(&mut self.out));
    }
}

fn is_shown(event: &EventLayout) -> bool {
    !OF_DRAINS.contains(&event.name.as_str())
}

impl State {
    fn new(preamble: &Preamble) -> State {
        let symbols = match decode::has_code(preamble) {
            true => Symbols::new(machine::symbols().into_bytes()),
            false => Symbols::default(),
        };
        State {
            decoder: Decoder::live(preamble, symbols),
            processes: Processes::live(preamble),
            lines: Box::new(Objects::new(preamble)),
            shown: preamble.events.iter().map(is_shown).collect(),
            preamble: preamble.clone(),
        }
    }

    fn extend(mut self, addition: &Addition) -> State {
        self.preamble.schemas.extend(addition.schemas.iter().cloned());
        self.preamble.events.extend(addition.events.iter().cloned());
        self.preamble.decodings.extend(addition.decodings.iter().cloned());
        self.processes.extend(&self.preamble);
        State {
            decoder: self.decoder.extend(&self.preamble),
            lines: Box::new(Objects::new(&self.preamble)),
            shown: self.preamble.events.iter().map(is_shown).collect(),
            ..self
        }
    }
}

impl Follower for Printer {
    fn begin(&mut self, preamble: &Preamble) {
        self.state = Some(State::new(preamble));
    }

    fn add(&mut self, addition: &Addition) {
        self.state = self.state.take().map(|state| state.extend(addition));
    }

    fn arrives(&mut self, _event: &EventRef) {}

    fn event(&mut self, event: &EventRef, _late: bool) {
        let Some(state) = &mut self.state else { return };
        state.processes.see(event);
        if !state.shown[event.index] {
            return;
        }
        if !self.sink.has_room() {
            self.unshown += 1;
            return;
        }
        let State { decoder, processes, lines, preamble, .. } = state;
        let start_ns = preamble.clock.start_ns;
        lines.event(event, &Context { decoder, processes, start_ns }, &mut self.out);
        if self.out.len() >= CHUNK {
            self.hand_over();
        }
    }

    fn missed(&mut self, events: u64) {
        self.unshown += events;
    }

    fn pause(&mut self) -> io::Result<()> {
        if self.unshown > 0 && self.sink.has_room() {
            self.say_unshown();
        }
        self.hand_over();
        self.sink.failure()
    }
}
