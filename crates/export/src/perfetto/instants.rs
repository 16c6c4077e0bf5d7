// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Events for which Perfetto has no type: instants on tracks, with the fields as their arguments;
//! and slices, see [`super::slices`].

use super::arguments::{Argument, Names, annotation, arguments, labelled, names_at_end, text};
use super::proto::{
    Annotated, Data, DebugAnnotation, Interned, InternedData, TracePacket, TrackEvent,
    TrackEventType,
};
use super::slices::{Lane, Slices, Written};
use super::tracks::{self, GLOBAL, Tracks, sequenced};
use crate::pairing::{Part, whose};
use crate::roles::owner;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::ledger::Entry;
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_schema::model::Place;
use std::collections::HashMap;

pub struct Instants {
    /// By event, then field.
    arguments: Vec<Vec<Argument>>,
    /// By event: its schema.
    categories: Vec<u64>,
    /// By event: the field with the thread that it belongs to.
    owners: Vec<Option<usize>>,
    tracks: Tracks,
    text: Vec<u8>,
    slices: Slices,
    /// Other names of arguments, for the end of a slice whose begin has another value of the same
    /// name.
    at_end: HashMap<u64, u64>,
    written: Vec<Written>,
}

/// What is currently known of threads, and how values are shown.
pub struct Known<'a> {
    pub decoder: &'a Decoder,
    pub processes: &'a Processes,
}

/// Names of the arguments of losses.
const LOSS: [&str; 4] = ["key", "event", "count", "text"];

impl Instants {
    /// Declares names and the global track.
    pub fn new(preamble: &Preamble, out: &mut Vec<TracePacket>) -> Instants {
        let (mut names, mut schemas, mut events) =
            (Names::default(), Names::default(), Names::default());
        // First, so that their numbers are known.
        for name in LOSS {
            names.number(name);
        }
        let categories = preamble.events.iter().map(|e| schemas.number(&e.schema)).collect();
        let arguments: Vec<_> = preamble.events.iter().map(|e| arguments(e, &mut names)).collect();
        let at_end = names_at_end(preamble, &arguments, &mut names);
        for event in &preamble.events {
            // Two schemata may have an event of the same name, so event names are numbered by
            // event.
            let iid = Some(events.interned.len() as u64 + 1);
            events.interned.push(Interned { iid, name: Some(event.name.clone()) });
        }
        let interned_data = InternedData {
            event_categories: schemas.interned,
            event_names: events.interned,
            debug_annotation_names: names.interned,
        };
        out.push(tracks::begin(interned_data));
        Instants {
            arguments,
            categories,
            owners: preamble.events.iter().map(owner).collect(),
            tracks: Tracks::new(),
            text: Vec::new(),
            slices: Slices::new(&preamble.events),
            at_end,
            written: Vec::new(),
        }
    }

    /// The id is reused for another thread.
    pub fn forget(&mut self, tid: i64) {
        self.tracks.forget(tid);
    }

    /// Writes an event as an instant, or as an end of slices; `name` if it is not its own.
    pub fn push(
        &mut self,
        event: &EventRef,
        name: Option<String>,
        known: &Known,
        out: &mut Vec<TracePacket>,
    ) {
        let (track, thread) = self.track(event, known.processes, out);
        let made = TrackEvent {
            r#type: Some(TrackEventType::Instant.into()),
            name_iid: if name.is_some() { None } else { Some(event.index as u64 + 1) },
            name,
            category_iids: vec![self.categories[event.index]],
            track_uuid: Some(track),
            debug_annotations: self.annotations(event, known),
        };
        if !self.slice(event, &made, thread, known, out) {
            out.push(sequenced(Some(event.time_ns), Data::TrackEvent(made)));
        }
        self.write_slices(out);
    }

    /// The fields, and their decoded texts.
    fn annotations(&mut self, event: &EventRef, known: &Known) -> Vec<DebugAnnotation> {
        let mut annotations = Vec::with_capacity(2 * event.layout.fields.len());
        for (index, field) in event.layout.fields.iter().enumerate() {
            let argument = &self.arguments[event.index][index];
            annotations.push(annotation(argument, event.value(field)));
            let Some(name_iid) = argument.text else { continue };
            self.text.clear();
            let found = if argument.whole {
                known.decoder.show(event, index, known.processes, &mut self.text);
                true
            } else {
                known.decoder.name(event, index, known.processes, &mut self.text)
            };
            if found {
                annotations.push(labelled(name_iid, text(&self.text)));
            }
        }
        annotations
    }

    /// Ends and begins the slices of an event; returns whether there was one.
    fn slice(
        &mut self,
        event: &EventRef,
        made: &TrackEvent,
        thread: Option<i64>,
        known: &Known,
        out: &mut Vec<TracePacket>,
    ) -> bool {
        let (begins, ends) = self.slices.of(event.index);
        let mut written = std::mem::take(&mut self.written);
        let mut found = false;
        for part in ends.iter() {
            let end = |begin: &TrackEvent| added_at_end(begin, made, &self.at_end);
            let whose = whose(event, part.on, thread);
            found |= self.slices.end(part, event, whose, end, &mut written);
        }
        for part in begins.iter() {
            if self.slices.full() {
                break;
            }
            let begin = TrackEvent {
                name: Some(self.slice_name(part, event, known)),
                track_uuid: self.slice_track(part.on, &part.name, event, made, out),
                ..made.clone()
            };
            self.slices.begin(part, event, whose(event, part.on, thread), begin, &mut written);
            found = true;
        }
        self.written = written;
        found
    }

    fn slice_name(&mut self, part: &Part, event: &EventRef, known: &Known) -> String {
        self.text.clear();
        match part.label.filter(|i| known.decoder.name(event, *i, known.processes, &mut self.text))
        {
            Some(_) => format!("{} {}", part.name, String::from_utf8_lossy(&self.text)),
            None => part.name.clone(),
        }
    }

    fn slice_track(
        &mut self,
        on: Place,
        name: &str,
        event: &EventRef,
        made: &TrackEvent,
        out: &mut Vec<TracePacket>,
    ) -> Option<u64> {
        match (on, event.origin) {
            (Place::Any, _) => {
                Some(self.tracks.lane(Lane { track: GLOBAL, number: 0, name: name.into() }, out))
            }
            (Place::Cpu, Origin::Cpu(cpu)) => Some(self.tracks.cpu(cpu, out)),
            (Place::Cpu | Place::Thread, _) => made.track_uuid,
        }
    }

    fn write_slices(&mut self, out: &mut Vec<TracePacket>) {
        for mut written in std::mem::take(&mut self.written) {
            if let Some(lane) = written.lane {
                let track = if lane.number == 0 { lane.track } else { self.tracks.lane(lane, out) };
                written.event.track_uuid = Some(track);
            }
            out.push(sequenced(Some(written.time_ns), Data::TrackEvent(written.event)));
        }
    }

    /// A thread has exited.
    pub fn exit(&mut self, tid: i64, time_ns: u64, out: &mut Vec<TracePacket>) {
        self.slices.exit(tid, time_ns, &mut self.written);
        self.write_slices(out);
    }

    /// Events of `origin` are missing.
    pub fn lost(&mut self, origin: Origin, out: &mut Vec<TracePacket>) {
        self.slices.lost(origin, &mut self.written);
        self.write_slices(out);
    }

    /// There are no more events.
    pub fn finish(&mut self, out: &mut Vec<TracePacket>) {
        self.slices.finish(&mut self.written);
        self.write_slices(out);
    }

    /// Writes a ledger entry about missing data.
    pub fn push_loss(&self, entry: &Entry, time_ns: u64, out: &mut Vec<TracePacket>) {
        let event = entry.event.clone().unwrap_or_default();
        let values = [
            Annotated::Text(entry.key.clone()),
            Annotated::Text(event),
            Annotated::Uint(entry.count),
            Annotated::Text(entry.text.clone()),
        ];
        let annotations =
            values.into_iter().enumerate().map(|(i, value)| labelled(i as u64 + 1, value));
        let track_event = TrackEvent {
            r#type: Some(TrackEventType::Instant.into()),
            name: Some(format!("{}: {} events", entry.key, entry.count)),
            track_uuid: Some(GLOBAL),
            debug_annotations: annotations.collect(),
            ..TrackEvent::default()
        };
        out.push(sequenced(Some(time_ns), Data::TrackEvent(track_event)));
    }

    /// The track and the thread: of the thread that logged the event, or that it belongs to;
    /// otherwise the track of its CPU.
    fn track(
        &mut self,
        event: &EventRef,
        processes: &Processes,
        out: &mut Vec<TracePacket>,
    ) -> (u64, Option<i64>) {
        let cpu = match event.origin {
            Origin::Thread { thread, .. } => {
                return (self.tracks.thread(thread.tid.into(), thread.tgid.into(), out), None);
            }
            Origin::Recorder => return (GLOBAL, None),
            Origin::Cpu(cpu) => cpu,
        };
        // The idle threads of all CPUs have id 0.
        let tid = self.owners[event.index]
            .and_then(|i| event.value(&event.layout.fields[i]).int())
            .filter(|t| *t > 0);
        let process = |tid: i64| processes.row(tid).map(|row| row.tgid).filter(|tgid| *tgid > 0);
        match tid.and_then(|tid| Some((tid, process(tid)?))) {
            Some((tid, tgid)) => (self.tracks.thread(tid, tgid, out), Some(tid)),
            None => (self.tracks.cpu(cpu, out), tid),
        }
    }
}

/// The arguments that an end adds to its begin: one name must not have two values.
fn added_at_end(begin: &TrackEvent, end: &TrackEvent, names: &HashMap<u64, u64>) -> TrackEvent {
    let before =
        |a: &DebugAnnotation| begin.debug_annotations.iter().find(|b| b.name_iid == a.name_iid);
    let renamed = |a: &DebugAnnotation| match before(a) {
        Some(same) if same == a => None,
        Some(_) => {
            Some(DebugAnnotation { name_iid: names.get(&a.name_iid?).copied(), ..a.clone() })
        }
        None => Some(a.clone()),
    };
    let debug_annotations = end.debug_annotations.iter().filter_map(renamed).collect();
    TrackEvent { debug_annotations, ..TrackEvent::default() }
}
