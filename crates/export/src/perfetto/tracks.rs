// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tracks of instants and slices, which are declared when the first event needs them.

use super::proto::{
    Data, INCREMENTAL_STATE_CLEARED, InternedData, NEEDS_INCREMENTAL_STATE, ThreadDescriptor,
    TracePacket, TrackDescriptor,
};
use super::slices::Lane;
use std::collections::{HashMap, HashSet};

/// All instants are one sequence, with common interned names.
const SEQUENCE: u32 = 1;

/// The track of the recorder and of events without a CPU or thread.
pub const GLOBAL: u64 = 1;
/// The track of CPU n is this plus n.
const CPU: u64 = 2;
/// Tracks of threads are numbered from here.
const THREADS: u64 = CPU + (1 << 16);

/// A packet of the sequence of instants and slices.
pub fn sequenced(timestamp: Option<u64>, data: Data) -> TracePacket {
    TracePacket {
        timestamp,
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
        interned_data: None,
        data: Some(data),
    }
}

/// The first packet of the sequence: the names that the others refer to, and the global track.
pub fn begin(names: InternedData) -> TracePacket {
    let global = TrackDescriptor {
        uuid: Some(GLOBAL),
        name: Some("klogger".into()),
        ..TrackDescriptor::default()
    };
    TracePacket {
        timestamp: None,
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        interned_data: Some(names),
        data: Some(Data::TrackDescriptor(global)),
    }
}

/// Which tracks are declared.
pub struct Tracks {
    /// By thread id: track and process.
    threads: HashMap<i64, (u64, i64)>,
    cpus: HashSet<u16>,
    /// Tracks below others.
    lanes: HashMap<Lane, u64>,
    next_track: u64,
}

impl Tracks {
    pub fn new() -> Tracks {
        Tracks {
            threads: HashMap::new(),
            cpus: HashSet::new(),
            lanes: HashMap::new(),
            next_track: THREADS,
        }
    }

    /// The id is reused for another thread.
    pub fn forget(&mut self, tid: i64) {
        self.threads.remove(&tid);
    }

    pub fn thread(&mut self, tid: i64, tgid: i64, out: &mut Vec<TracePacket>) -> u64 {
        if let Some((track, _)) = self.threads.get(&tid).filter(|t| t.1 == tgid) {
            return *track;
        }
        let track = self.next_track;
        self.next_track += 1;
        self.threads.insert(tid, (track, tgid));
        let thread = ThreadDescriptor { pid: Some(tgid as i32), tid: Some(tid) };
        let descriptor = TrackDescriptor {
            uuid: Some(track),
            thread: Some(thread),
            ..TrackDescriptor::default()
        };
        out.push(sequenced(None, Data::TrackDescriptor(descriptor)));
        track
    }

    /// A track below another one.
    pub fn lane(&mut self, lane: Lane, out: &mut Vec<TracePacket>) -> u64 {
        let next = self.next_track;
        let track = *self.lanes.entry(lane.clone()).or_insert(next);
        if track == next {
            self.next_track += 1;
            let (name, parent_uuid) = (Some(lane.name), Some(lane.track));
            let descriptor = TrackDescriptor {
                uuid: Some(track),
                name,
                parent_uuid,
                ..TrackDescriptor::default()
            };
            out.push(sequenced(None, Data::TrackDescriptor(descriptor)));
        }
        track
    }

    pub fn cpu(&mut self, cpu: u16, out: &mut Vec<TracePacket>) -> u64 {
        let track = CPU + u64::from(cpu);
        if self.cpus.insert(cpu) {
            let name = Some(format!("events of CPU {cpu}"));
            let descriptor = TrackDescriptor {
                uuid: Some(track),
                name,
                parent_uuid: Some(GLOBAL),
                ..TrackDescriptor::default()
            };
            out.push(sequenced(None, Data::TrackDescriptor(descriptor)));
        }
        track
    }
}
