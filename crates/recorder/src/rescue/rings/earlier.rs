// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! If a recording consisted of segments: the one that its rings continue, and what those before it
//! say.

use super::{Facts, is_of};
use crate::rescue::begun;
use crate::segments::Told;
use klogger_log::format::Kind;
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Origin;
use klogger_log::preamble::Segment;
use klogger_log::reader::Reader;
use klogger_log::segments;
use klogger_os::{answers, missed};
use std::collections::BTreeMap;

/// What the segments before the last one say.
#[derive(Default)]
pub struct Earlier {
    /// By CPU: the next serial number, and the time of the last event.
    pub ends: BTreeMap<u16, (u64, u64)>,
    told: Told,
    /// When the last segment began.
    pub since_ns: u64,
}

impl Earlier {
    /// Sets `facts` to the last segment, and returns it unless it has to be begun. `None`: the log
    /// is one file. `empty`: nothing is in the rings.
    pub fn of(facts: &mut Facts, empty: bool) -> Option<(Earlier, Option<Reader>)> {
        facts.preamble.segment.as_ref()?;
        let folder = facts.log.parent()?.to_path_buf();
        let (mut earlier, mut last) = (Earlier::default(), None);
        let what = format!("the segments in {}", folder.display());
        let numbers = answers::check(&folder).and_then(|()| segments::numbers(&folder));
        let numbers = missed::noting_unless_gone(&what, numbers);
        for number in numbers.unwrap_or_default() {
            let path = folder.join(segments::file_name(number));
            if let Some(log) = begun(&path).filter(|log| is_of(log, &facts.preamble)) {
                last.replace(log).iter().for_each(|before| earlier.add(before));
                facts.log = path;
            }
        }
        if let Some(preamble) = last.as_ref().and_then(|last| last.as_begun().ok()) {
            facts.preamble = preamble;
        }
        if !empty && let Some(complete) = last.take_if(|last| last.is_complete()) {
            // It was killed before it had begun the next one.
            earlier.add(&complete);
            let old = facts.preamble.segment.clone().unwrap_or_default();
            let (number, start_ns) = (old.number.saturating_add(1), complete.span().1);
            facts.preamble.segment = Some(Segment { number, start_ns, ..old });
            facts.log = folder.join(segments::file_name(number));
        }
        earlier.since_ns = facts.preamble.segment.as_ref().map_or(0, |segment| segment.start_ns);
        Some((earlier, last))
    }

    fn add(&mut self, log: &Reader) {
        for block in log.blocks().iter().filter(|b| b.header.kind == Kind::Events) {
            if let Origin::Cpu(cpu) = block.header.origin {
                let end = self.ends.entry(cpu).or_default();
                *end = (block.header.next_serial(), end.1.max(block.header.last_time));
            }
        }
        log.ledger(&[]).entries.iter().for_each(|entry| self.told.add(entry));
    }

    /// Of the entries of the whole recording, those of the last segment. The losses of rings are
    /// those of its own `LOST` records, by CPU.
    pub fn rest(
        mut self,
        entries: Vec<Entry>,
        lost: &BTreeMap<u16, u64>,
        end_ns: u64,
    ) -> Vec<Entry> {
        let ring_full = Key::RingFull.info().name;
        let others = entries.into_iter().filter(|entry| entry.key != ring_full).collect();
        let mut rest = self.told.rest(others, self.since_ns);
        let end_ns = end_ns.max(self.since_ns);
        rest.extend(lost.iter().filter(|(_, count)| **count > 0).map(|(cpu, count)| {
            Entry::new(Key::RingFull).cpu(*cpu).count(*count).between(self.since_ns, end_ns)
        }));
        rest
    }
}
