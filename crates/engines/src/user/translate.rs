// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Converts records of programs to those of the log: to its ids and its clock. It works on a copy
//! that the program cannot change, and checks here what is a valid record.

use super::catalogue::Admitted;
use super::layout::{LOCAL_BASE, MARK_ID};
use klogger_log::record::Header;
use klogger_ring::RecordKinds;
use klogger_ring::clock::Converter;
use klogger_schema::layout::EventLayout;

/// More events than a ring can have lost.
pub const LOST_MAX: u64 = 1 << 48;

/// The ids of a program's events.
pub struct Ids {
    /// Record kinds by local id. Events that the program cannot log are unknown here.
    pub kinds: RecordKinds,
    /// By local id: the id in the log; 0: not in the log.
    to_log: Vec<u16>,
}

/// A schema of a program: where its events are in the log or, if it is refused, their layouts, as
/// far as known.
pub enum ProgramSchema {
    Admitted(Admitted),
    Refused(Vec<EventLayout>),
}

/// What was found among some records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Serial numbers that the records take: one each, or the count of a LOST record.
    pub serials: u64,
    pub lost: u64,
    /// Full times of the log clock: of the first loss, of the earliest record.
    pub lost_since: Option<u64>,
    pub first_ns: u64,
    /// Records of refused schemata, which are left out.
    pub refused: u64,
    /// All bytes were valid records.
    pub sound: bool,
}

impl Ids {
    /// `builtin`: klogger's own events, whose ids are the same in all programs. `schemata`: the
    /// local id of the first event of each.
    pub fn new(builtin: &[EventLayout], schemata: &[(u16, ProgramSchema)]) -> Ids {
        let mut layouts: Vec<EventLayout> = Vec::new();
        let mut to_log = vec![0; LOCAL_BASE as usize];
        for layout in builtin.iter().filter(|e| e.name == "LOST" || e.id == MARK_ID) {
            to_log[usize::from(layout.id)] = layout.id;
            layouts.push(layout.clone());
        }
        for (base, schema) in schemata {
            let (events, admitted) = match schema {
                ProgramSchema::Admitted(admitted) => (&admitted.layouts, true),
                ProgramSchema::Refused(layouts) => (layouts, false),
            };
            to_log.resize(to_log.len().max(usize::from(*base) + events.len()), 0);
            for (layout, local) in events.iter().zip(*base..) {
                to_log[usize::from(local)] = if admitted { layout.id } else { 0 };
                layouts.push(EventLayout { id: local, ..layout.clone() });
            }
        }
        Ids { kinds: RecordKinds::new(&layouts), to_log }
    }

    /// The id of an event in the log.
    pub fn to_log(&self, local: u16) -> Option<u16> {
        self.to_log.get(usize::from(local)).copied().filter(|id| *id != 0)
    }

    /// (local id, id in the log) of all events of the program that go into the log; LOST is not
    /// among them.
    pub fn events(&self) -> impl Iterator<Item = (u16, u16)> {
        let ids = (0..)
            .zip(&self.to_log)
            .filter(|(local, log)| **log != 0 && *local != self.kinds.lost_id);
        ids.map(|(local, log)| (local, *log))
    }

    /// Rewrites the records in `bytes`. From the first invalid record on, they are cut off.
    pub fn translate(&self, bytes: &mut Vec<u8>, clock: &mut Converter) -> Batch {
        let mut batch = Batch { first_ns: u64::MAX, sound: true, ..Batch::default() };
        let (mut at, mut end) = (0, 0);
        while at < bytes.len() {
            let Some((size, kept)) = self.record(&mut bytes[at..], clock, &mut batch) else {
                batch.sound = false;
                break;
            };
            if kept && at != end {
                bytes.copy_within(at..at + size, end);
            }
            at += size;
            end += if kept { size } else { 0 };
        }
        bytes.truncate(end);
        batch
    }

    /// The size of the record at the beginning of `bytes`, and whether it goes into the log.
    fn record(
        &self,
        bytes: &mut [u8],
        clock: &mut Converter,
        batch: &mut Batch,
    ) -> Option<(usize, bool)> {
        let header = Header::read(bytes)?;
        let size = self.kinds.sizes.size(bytes)?;
        let Some(id) = self.to_log(header.id()) else {
            batch.refused += 1;
            return Some((size, false));
        };
        let ns = clock.header(bytes, id)?;
        if header.id() == self.kinds.lost_id {
            self.lost(bytes, clock, batch)?;
        } else {
            batch.serials = batch.serials.wrapping_add(1);
        }
        batch.first_ns = batch.first_ns.min(ns);
        Some((size, true))
    }

    fn lost(&self, bytes: &mut [u8], clock: &mut Converter, batch: &mut Batch) -> Option<()> {
        let count = bytes
            .get(self.kinds.lost_count_offset..)?
            .first_chunk()
            .map(|b| u64::from_le_bytes(*b));
        let count = count.filter(|count| *count <= LOST_MAX)?;
        let since = clock.field(bytes, self.kinds.lost_since_offset)?;
        batch.serials = batch.serials.wrapping_add(count);
        batch.lost = batch.lost.wrapping_add(count);
        batch.lost_since = Some(batch.lost_since.map_or(since, |t| t.min(since)));
        Some(())
    }
}
