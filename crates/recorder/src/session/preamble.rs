// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log's preamble, and the first events of a recording.

use super::Session;
use crate::host;
use crate::pipeline::Pipeline;
use klogger_log::preamble::{Clock, Preamble, Recorder};
use klogger_os::{Error, processes};
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Decoding};
use klogger_schema::vocabulary::PLACE;

/// Tables of `klogger.klogger` that are of the recording.
const TRIGGERS: &str = "klogger_trigger";
const TRIGGER_EVENTS: &str = "klogger_event";

impl Session {
    pub(super) fn preamble(&self, clock: Clock) -> Result<Preamble, Error> {
        let (choice, request) = (self.options.choice, &self.options.request);
        let units: Vec<_> = request.numbered().map(|(unit, _)| unit).collect();
        let segment = self.first_segment(clock.start_ns);
        let names: Vec<&str> = self.engines.iter().map(|e| e.info().name).collect();
        Ok(Preamble {
            klogger: env!("CARGO_PKG_VERSION").into(),
            engine: names.join("+"),
            host: host::host()?,
            clock,
            command_line: self.options.command_line.clone(),
            workload: request.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            scope: self.scope_word().into(),
            recorder: self.recorder(),
            schemas: units.iter().map(|unit| choice.schema_text(request, unit)).collect(),
            events: self.layouts.clone(),
            decodings: self.decodings(),
            probes: self.engines.iter().flat_map(|e| e.probes()).cloned().collect(),
            costs: self.engines.iter().find_map(|e| e.costs()),
            snapshot: None,
            segment,
        })
    }

    pub(super) fn scope_word(&self) -> &'static str {
        let request = &self.options.request;
        match (request.target.is_scoped(), request.threads.are_all()) {
            (true, _) => "processes",
            (false, false) => "threads",
            (false, true) => "all",
        }
    }

    /// The tables of the schemata, and that of places if an event has one.
    fn decodings(&self) -> Vec<Decoding> {
        let units = self.options.request.numbered();
        let mut all: Vec<Decoding> =
            units.flat_map(|(unit, _)| unit.schema.decodings.iter().cloned()).collect();
        self.fill_triggers(&mut all);
        let is_place = |f: &FieldLayout| f.decode == Decode::Table(PLACE.into());
        if self.layouts.iter().any(|event| event.fields.iter().any(is_place)) {
            let places = self.engines.iter().flat_map(|e| e.places());
            let values = (1..).zip(places).collect();
            all.push(Decoding { name: PLACE.into(), flags: false, values });
        }
        all
    }

    /// The texts of the triggers and the names of the events that fire them. Without triggers there
    /// are no such tables.
    fn fill_triggers(&self, all: &mut Vec<Decoding>) {
        let triggers = &self.options.triggers;
        if triggers.is_empty() {
            all.retain(|table| table.name != TRIGGERS && table.name != TRIGGER_EVENTS);
            return;
        }
        let steps: Vec<&str> =
            triggers.iter().flat_map(|t| t.pattern.steps()).map(|s| s.event.as_str()).collect();
        let is_step = |e: &&EventLayout| steps.iter().any(|s| e.name.eq_ignore_ascii_case(s));
        for table in all.iter_mut() {
            match table.name.as_str() {
                TRIGGERS => {
                    table.values = (1..).zip(triggers).map(|(n, t)| (n, t.text.clone())).collect();
                }
                TRIGGER_EVENTS => {
                    let events = self.layouts.iter().filter(is_step);
                    table.values = events.map(|e| (e.id.into(), e.name.clone())).collect();
                }
                _ => {}
            }
        }
    }

    pub(super) fn recorder(&self) -> Recorder {
        let pid = std::process::id();
        let tids = processes::threads_of(pid);
        Recorder {
            pid,
            names: tids.iter().map(|tid| processes::own_name(*tid)).collect(),
            tids,
            buffer_size: self.ring_size(),
            lowwater: self.options.request.lowwater,
            overwrite: self.options.request.overwrite,
            limits: self.limits.clone(),
            cpus: self.options.request.cpus.clone(),
            threads: self.options.request.threads.text(),
            conditions: self.options.conditions.clone(),
            triggers: self.options.triggers.iter().map(|t| t.text.clone()).collect(),
        }
    }

    /// Bytes of a CPU's ring, or of a thread's ring if there are no CPU rings.
    fn ring_size(&self) -> u64 {
        self.engines.first().map_or(0, |engine| engine.ring_size(&self.options.request))
    }

    pub(super) fn disabled_ids(&self) -> Vec<u16> {
        let names = &self.options.request.disabled;
        self.layouts.iter().filter(|e| names.contains(&e.name)).map(|e| e.id).collect()
    }

    /// KLOGGER_START, the state of every event, and the existing threads: (process, thread) of
    /// `there`.
    pub(super) fn first_events(
        &self,
        pipeline: &Pipeline,
        preamble: &Preamble,
        there: &[(u32, u32)],
    ) {
        let now = preamble.clock.start_ns;
        let start = pipeline.builtin().event("KLOGGER_START");
        let start = start.int("buffer_size", self.ring_size() as i64);
        pipeline.own(start.text("kernel", preamble.host.kernel.as_bytes()), now);
        let disabled = self.disabled_ids();
        for e in &self.layouts {
            pipeline.event_state(e, !disabled.contains(&e.id), now);
        }
        for t in there.iter().filter_map(|(pid, tid)| processes::thread(*pid, *tid)) {
            pipeline.own(pipeline.builtin().exists(&t), now);
        }
    }
}
