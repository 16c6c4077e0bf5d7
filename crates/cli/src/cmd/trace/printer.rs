// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Prints the events of a recording that runs, in the order of time.

use super::chosen::{Chosen, Shown};
use super::joined::Joined;
use super::names::Names;
use super::sink::Sink;
use super::text::Text;
use crate::text::json::Objects;
use crate::text::{Context, Lines};
use klogger_log::decode::{self, Decoder};
use klogger_log::event::{EventRef, Value};
use klogger_log::names::Processes;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::symbols::Symbols;
use klogger_os::{machine, processes};
use klogger_recorder::Follower;
use klogger_schema::layout::EventLayout;
use std::io;
use std::sync::Arc;

/// Bytes of lines that are handed over at a time.
const CHUNK: usize = 64 << 10;

/// What the lines are like.
pub enum Style {
    Text(Text),
    /// As of `klogger cat --format json`.
    Json,
}

/// Prints events to a sink.
pub struct Printer {
    sink: Arc<Sink>,
    style: Style,
    chosen: Chosen,
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
    joined: Joined,
    names: Names,
    objects: Objects,
    /// By event.
    shown: Vec<Shown>,
    /// By event: the field with its thread.
    owners: Vec<Option<usize>>,
    /// klogger's own threads. What they do to print events must not be printed itself.
    own: Vec<u32>,
}

impl Printer {
    pub fn new(sink: Arc<Sink>, style: Style, chosen: Chosen) -> Printer {
        Printer { sink, style, chosen, state: None, out: Vec::new(), unshown: 0 }
    }

    fn say_unshown(&mut self) {
        let count = std::mem::take(&mut self.unshown);
        let text = match self.style {
            Style::Json => format!("{{\"unshown\":{count}}}\n"),
            Style::Text(_) => format!(
                "klogger: {count} events are not shown here: they came faster than their lines \
                 could be written\n"
            ),
        };
        self.out.extend_from_slice(text.as_bytes());
    }

    fn hand_over(&mut self) {
        self.sink.push(std::mem::take(&mut self.out));
    }

    /// Learns the events of the preamble, which has become longer.
    fn learn(&mut self) {
        let Some(state) = &mut self.state else { return };
        let State { preamble, joined, shown, objects, owners, .. } = state;
        *owners = preamble.events.iter().map(klogger_export::owner).collect();
        joined.learn(&preamble.events);
        *objects = Objects::new(preamble);
        let plain = match &mut self.style {
            Style::Text(text) => {
                text.learn(&preamble.events);
                true
            }
            Style::Json => false,
        };
        let all = preamble.events.iter().enumerate();
        let is_shown =
            |(at, event): (usize, &EventLayout)| self.chosen.shown(at, event, joined, plain);
        *shown = all.map(is_shown).collect();
    }
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
            joined: Joined::default(),
            names: Names::default(),
            objects: Objects::new(preamble),
            shown: Vec::new(),
            owners: Vec::new(),
            own: processes::threads_of(std::process::id()),
            preamble: preamble.clone(),
        }
    }

    fn is_own(&self, event: &EventRef) -> bool {
        let thread = self.owners[event.index].map(|at| event.value(&event.layout.fields[at]));
        let tid = thread.and_then(Value::int).and_then(|tid| u32::try_from(tid).ok());
        tid.is_some_and(|tid| self.own.contains(&tid))
    }

    fn extend(mut self, addition: &Addition) -> State {
        self.preamble.schemas.extend(addition.schemas.iter().cloned());
        self.preamble.events.extend(addition.events.iter().cloned());
        self.preamble.decodings.extend(addition.decodings.iter().cloned());
        self.processes.learn(&self.preamble.events);
        State { decoder: self.decoder.extend(&self.preamble), ..self }
    }
}

impl Follower for Printer {
    fn begin(&mut self, preamble: &Preamble) {
        if let Style::Text(text) = &mut self.style {
            text.clock.start_realtime_ns = preamble.clock.start_realtime_ns;
        }
        self.state = Some(State::new(preamble));
        self.learn();
    }

    fn add(&mut self, addition: &Addition) {
        self.state = self.state.take().map(|state| state.extend(addition));
        self.learn();
    }

    fn arrives(&mut self, event: &EventRef) {
        if let Some(state) = &mut self.state {
            state.joined.arrives(event);
        }
    }

    fn event(&mut self, event: &EventRef, late: bool) {
        let Some(state) = &mut self.state else { return };
        state.processes.apply(event);
        state.joined.see(event);
        if state.is_own(event) {
            return;
        }
        let State { preamble, decoder, processes, joined, names, objects, shown, .. } = state;
        let is_shown = match shown[event.index] {
            Shown::Always => true,
            Shown::Never => false,
            Shown::OfCall(field) => self.chosen.has_call(event, field, decoder, processes),
        };
        if !is_shown {
            return;
        }
        if !self.sink.has_room() {
            self.unshown += 1;
            return;
        }
        if matches!(self.style, Style::Text(_)) {
            names.complete(event, processes);
        }
        let context = Context { decoder, processes, start_ns: preamble.clock.start_ns };
        match &mut self.style {
            Style::Json => objects.event(event, &context, &mut self.out),
            Style::Text(text) => {
                text.event(event, late, &preamble.events, joined, &context, &mut self.out);
            }
        }
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

impl Drop for Printer {
    /// The last line says what is missing before it, even if it has to wait.
    fn drop(&mut self) {
        if self.unshown > 0 {
            self.say_unshown();
            self.hand_over();
        }
    }
}
