// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Prints the events of a log that is not complete yet.

use crate::failure::Failure;
use crate::text::select::{Choice, Extent, Log, SelectArgs};
use crate::text::{Context, Format, Lines};
use klogger_log::decode::{Decoder, has_code};
use klogger_log::event::EventRef;
use klogger_log::names::Processes;
use klogger_log::preamble::Preamble;
use klogger_log::symbols::Symbols;
use std::io::Write;

/// Bytes that are collected before they are written.
const CHUNK: usize = 256 << 10;
/// Columns are made for as long a recording, and for such ids of threads.
const SPAN_NS: u64 = 999_000_000_000;
const TID: u32 = 999_999;

pub struct Printer<'a> {
    select: &'a SelectArgs,
    format: &'static dyn Format,
    sink: Box<dyn Write>,
    state: Option<State>,
    /// What is wrong with the options, as long as events that a program brings may change that.
    wrong: Option<Failure>,
    out: Vec<u8>,
    /// Events that came after later ones.
    late: u64,
    /// An event after `--to` has come.
    over: bool,
}

struct State {
    start_ns: u64,
    /// The end of the log when it was begun to be read.
    end_ns: u64,
    decoder: Decoder,
    processes: Processes,
    lines: Option<(Choice, Box<dyn Lines>)>,
}

impl<'a> Printer<'a> {
    pub fn new(
        select: &'a SelectArgs,
        format: &'static dyn Format,
        sink: Box<dyn Write>,
    ) -> Printer<'a> {
        let out = Vec::with_capacity(CHUNK + 4096);
        Printer { select, format, sink, state: None, wrong: None, out, late: 0, over: false }
    }

    /// The log begins. `end_ns`: how far it goes already; `symbols`: of the kernel, if it is ours.
    pub fn begin(
        &mut self,
        preamble: &Preamble,
        end_ns: u64,
        symbols: impl FnOnce() -> Symbols,
    ) -> Result<(), Failure> {
        let symbols = if has_code(preamble) { symbols() } else { Symbols::default() };
        let start_ns = preamble.clock.start_ns;
        self.state = Some(State {
            start_ns,
            end_ns: end_ns.max(start_ns),
            decoder: Decoder::live(preamble, symbols),
            processes: Processes::live(preamble),
            lines: None,
        });
        if self.format.name() == "csv" && brings_events(preamble) {
            let what = "the columns of a table are not known before programs have ended";
            return Err(Failure::new(what).help("use --format json, or wait for the end"));
        }
        self.resolve(preamble)
    }

    /// The preamble has become longer.
    pub fn learn(&mut self, preamble: &Preamble) -> Result<(), Failure> {
        if let Some(mut state) = self.state.take() {
            state.processes.learn(&preamble.events);
            self.state = Some(State { decoder: state.decoder.extend(preamble), ..state });
        }
        self.resolve(preamble)
    }

    fn resolve(&mut self, preamble: &Preamble) -> Result<(), Failure> {
        let Some(state) = &mut self.state else { return Ok(()) };
        let (start_ns, end_ns) = (state.start_ns, state.end_ns);
        let tid = brings_events(preamble).then_some(TID);
        let extent = Extent { span_ns: SPAN_NS, tid };
        match self.select.resolve_for(&Log { preamble, start_ns, end_ns, extent }) {
            Ok(choice) => {
                let mut lines = self.format.lines(preamble, &choice);
                if state.lines.is_none() {
                    lines.begin(&mut self.out);
                }
                state.lines = Some((choice, lines));
                self.wrong = None;
            }
            Err(e) if brings_events(preamble) => self.wrong = Some(e),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    pub fn event(&mut self, event: &EventRef, late: bool) {
        let Some(state) = &mut self.state else { return };
        let State { start_ns, decoder, processes, lines, .. } = state;
        processes.apply(event);
        let Some((choice, lines)) = lines else { return };
        if choice.selection.to_ns.is_some_and(|to| event.time_ns > to) {
            // A late one may still come in time.
            self.over |= !late;
            return;
        }
        if !choice.includes(event, decoder, processes) {
            return;
        }
        self.late += u64::from(late);
        lines.event(event, &Context { decoder, processes, start_ns: *start_ns }, &mut self.out);
    }

    /// Whether all events have come that were asked for.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// So many events came after later ones had been printed.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Whether what has been collected should be written.
    pub fn is_full(&self) -> bool {
        self.out.len() >= CHUNK
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::new(format!("cannot write the output: {e}"));
        self.sink.write_all(&self.out).and_then(|()| self.sink.flush()).map_err(failed)?;
        self.out.clear();
        Ok(())
    }

    /// Nothing more will come.
    pub fn end(&mut self) -> Result<(), Failure> {
        if let Some((_, lines)) = self.state.as_mut().and_then(|state| state.lines.as_mut()) {
            lines.end(&mut self.out);
        }
        self.flush()?;
        self.wrong.take().map_or(Ok(()), Err)
    }
}

/// Whether programs may bring events that the preamble does not have yet.
fn brings_events(preamble: &Preamble) -> bool {
    preamble.engine.split('+').any(|engine| engine == "user")
}
