// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the hits of triggers among the records that pass the writer thread.

use super::{Arrived, Batch, Found, Moment, Tap};
use crate::actions::limiter::Limiter;
use crate::actions::watcher::Watcher;
use crate::actions::{FiredBy, Hit, Tallies};
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_log::record::{Header, Record, SizeTable};
use klogger_log::trigger::Trigger;
use klogger_log::trigger::matcher;
use klogger_ring::block::Source;
use klogger_schema::layout::EventLayout;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Where hits that actions are due for go.
pub struct Outlet {
    pub to: SyncSender<Hit>,
    /// Wakes the thread of the recording.
    pub ring: UnixStream,
}

/// The side of the writer thread.
pub struct Finder {
    layouts: BTreeMap<u16, Arc<EventLayout>>,
    /// The id of `TRIGGERED`.
    triggered: u16,
    /// The last record of each CPU which is no `TRIGGERED`: the next block may begin with one.
    last: HashMap<Origin, Vec<u8>>,
    hits: Hits,
    /// Some trigger is compiled into events.
    compiled: bool,
    /// Of triggers that are compiled into no event.
    watcher: Option<Watcher>,
}

/// Counts hits, and hands over those that actions are due for.
struct Hits {
    limiters: Vec<Limiter>,
    tallies: Tallies,
    outlet: Outlet,
}

impl Finder {
    pub fn new(
        triggers: &[Trigger],
        layouts: &[EventLayout],
        tallies: Tallies,
        outlet: Outlet,
    ) -> Finder {
        let triggered = layouts.iter().find(|e| e.name == "TRIGGERED").map_or(0, |e| e.id);
        Finder {
            layouts: layouts.iter().map(|e| (e.id, Arc::new(e.clone()))).collect(),
            triggered,
            last: HashMap::new(),
            hits: Hits {
                limiters: triggers.iter().map(|t| Limiter::new(t.limit)).collect(),
                tallies,
                outlet,
            },
            compiled: true,
            watcher: None,
        }
    }

    /// Looks for the hits of triggers that are compiled into no event as well. `compiled`: whether
    /// there are others.
    pub fn watching(self, watcher: Option<Watcher>, compiled: bool) -> Finder {
        Finder { watcher, compiled, ..self }
    }

    /// Waits for these sources, which are there from the beginning, with all that is compiled into
    /// no event. Returns whether there is any.
    pub fn await_all(&mut self, sources: &[Source]) -> bool {
        self.watcher.iter_mut().for_each(|watcher| watcher.await_all(sources));
        self.watcher.is_some()
    }

    /// Looks for the hits of triggers that are compiled into no event.
    fn look(&mut self) -> Found {
        let Finder { hits, layouts, watcher, .. } = self;
        let Some(watcher) = watcher else { return Found::default() };
        let mut own = Vec::new();
        let reached = watcher.look(&mut own, &mut |found| hits.found(layouts, found));
        Found { own, until: reached.map(|reached_ns| (Source::Triggers, reached_ns)) }
    }

    /// The same for the last time: the recording ended at this time. `None`: it is not known.
    fn finish(&mut self, end_ns: Option<u64>) -> Found {
        let Finder { hits, layouts, watcher, .. } = self;
        let Some(mut watcher) = watcher.take() else { return Found::default() };
        let mut own = Vec::new();
        watcher.finish(end_ns.unwrap_or(0), &mut own, &mut |found| hits.found(layouts, found));
        for (trigger, count) in watcher.forgotten() {
            hits.tallies.with(trigger, |tally| tally.forgotten += count);
        }
        Found { own, until: Some((Source::Triggers, u64::MAX)) }
    }

    /// Looks through the records of a CPU: triggers are compiled into events of the kernel only.
    fn see<'a>(
        &mut self,
        origin: Origin,
        time_base: u64,
        records: impl Iterator<Item = Record<'a>>,
    ) {
        let before = self.last.remove(&origin).unwrap_or_default();
        let mut last: &[u8] = &before;
        for record in records {
            if record.id() != self.triggered {
                last = record.bytes;
                continue;
            }
            let word = |at: usize| {
                let bytes = record.bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
                bytes.map_or(0, u16::from_le_bytes)
            };
            let (trigger, id) = (word(8), word(10));
            let fired_by = Header::new(record.header.time48(), id);
            let is_its = Header::read(last) == Some(fired_by);
            let layout = self.layouts.get(&id).filter(|_| is_its);
            let time_ns = record.time(time_base);
            self.hits.hit(trigger, time_ns, origin.cpu(), layout.map(|layout| (layout, last)));
        }
        let last = last.to_vec();
        self.last.insert(origin, last);
    }
}

impl Tap for Finder {
    fn declared(&mut self, addition: &Addition) {
        self.layouts.extend(addition.events.iter().map(|e| (e.id, Arc::new(e.clone()))));
        self.watcher.iter_mut().for_each(|watcher| watcher.add(addition));
    }

    /// What cannot be written is no hit in the log.
    fn block(&mut self, batch: &Batch, arrived: Arrived) {
        if arrived.unwritable {
            return;
        }
        let (origin, time_base) = (batch.block.origin, batch.block.time_base);
        self.watcher.iter_mut().for_each(|w| w.see(origin, time_base, batch.records()));
        if let (Origin::Cpu(_), true) = (origin, self.compiled) {
            self.see(origin, time_base, batch.records());
        }
    }

    /// Holds them back if hits may have to be sorted in among them.
    fn own(&mut self, records: Vec<u8>, _: &SizeTable) -> Vec<u8> {
        match &mut self.watcher {
            Some(watcher) => {
                watcher.own(&records);
                Vec::new()
            }
            None => records,
        }
    }

    fn until(&mut self, source: Source, time_ns: u64) {
        if source != Source::Triggers {
            self.watcher.iter_mut().for_each(|watcher| watcher.until(source, time_ns));
        }
    }

    fn turn(&mut self, moment: Moment) -> Found {
        match moment {
            Moment::Time => self.look(),
            Moment::Ended(end_ns) => self.finish(end_ns),
            Moment::Message | Moment::AllCame => Found::default(),
        }
    }
}

impl Hits {
    fn found(&mut self, layouts: &BTreeMap<u16, Arc<EventLayout>>, found: matcher::Found) {
        let layout = layouts.get(&found.id).filter(|_| !found.bytes.is_empty());
        let event = layout.map(|layout| (layout, found.bytes));
        let cpu = found.origin.and_then(Origin::cpu);
        self.hit(found.trigger, found.time_ns, cpu, event);
    }

    /// Counts a hit, and hands it over if actions are due.
    fn hit(
        &mut self,
        trigger: u16,
        time_ns: u64,
        cpu: Option<u16>,
        event: Option<(&Arc<EventLayout>, &[u8])>,
    ) {
        let limiter = usize::from(trigger).checked_sub(1).and_then(|n| self.limiters.get_mut(n));
        let Some(limiter) = limiter else { return };
        let due = limiter.admit(time_ns);
        let number = self.tallies.with(trigger, |tally| {
            tally.first = if tally.logged == 0 { time_ns } else { tally.first.min(time_ns) };
            tally.last = tally.last.max(time_ns);
            tally.logged += 1;
            tally.logged
        });
        let Some(number) = number else { return };
        let fired_by = |(layout, bytes): (&Arc<EventLayout>, &[u8])| FiredBy {
            layout: layout.clone(),
            bytes: bytes.to_vec(),
        };
        let hit = || Hit { trigger, number, time_ns, cpu, event: event.map(fired_by) };
        let sent = due && self.outlet.to.try_send(hit()).is_ok();
        self.tallies.with(trigger, |tally| match sent {
            true => tally.acted += 1,
            false => tally.suppressed += 1,
        });
        if sent {
            // Fails if many bells have rung already.
            let _ = self.outlet.ring.write(&[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::builder::RecordBuilder;
    use klogger_log::trigger::parse;
    use klogger_toolchain::bundled;
    use std::sync::mpsc::{Receiver, sync_channel};

    /// A block comes.
    fn see(finder: &mut Finder, origin: Origin, time_base: u64, records: &[u8]) {
        let layouts: Vec<EventLayout> = finder.layouts.values().map(|e| (**e).clone()).collect();
        finder.see(origin, time_base, SizeTable::new(&layouts).records(records));
    }

    fn finder() -> (Finder, Receiver<Hit>, Tallies, Vec<EventLayout>) {
        let layouts = bundled::builtin().unwrap().layouts(1);
        let triggers = [
            parse("MARK where number == 1: stop").unwrap(),
            parse("MARK: stop, at most 2 per second").unwrap(),
        ];
        let (to, hits) = sync_channel(16);
        let tallies = Tallies::new(2);
        let outlet = Outlet { to, ring: UnixStream::pair().unwrap().0 };
        (Finder::new(&triggers, &layouts, tallies.clone(), outlet), hits, tallies, layouts)
    }

    fn mark(layouts: &[EventLayout], number: i64, time: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let layout = layouts.iter().find(|e| e.name == "MARK").unwrap();
        RecordBuilder::new(layout)
            .int("number", number)
            .text("text", b"x")
            .finish(time, &mut bytes);
        bytes
    }

    fn triggered(layouts: &[EventLayout], trigger: i64, id: i64, time: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let layout = layouts.iter().find(|e| e.name == "TRIGGERED").unwrap();
        RecordBuilder::new(layout).int("trigger", trigger).int("id", id).finish(time, &mut bytes);
        bytes
    }

    #[test]
    fn hits_have_the_event_before_them_also_across_blocks() {
        let (mut finder, hits, tallies, layouts) = finder();
        let one = [mark(&layouts, 1, 100), triggered(&layouts, 1, 7, 100)].concat();
        let two = triggered(&layouts, 2, 7, 100);
        let cpu = Origin::Cpu(3);
        see(&mut finder, cpu, 50, &one);
        see(&mut finder, Origin::Cpu(4), 50, &two);
        see(&mut finder, cpu, 50, &two);
        let found: Vec<Hit> = hits.try_iter().collect();
        let short: Vec<_> =
            found.iter().map(|h| (h.trigger, h.time_ns, h.cpu, h.event.is_some())).collect();
        assert_eq!(
            short,
            [(1, 100, Some(3), true), (2, 100, Some(4), false), (2, 100, Some(3), true)]
        );
        let event = found[2].event.as_ref().unwrap();
        assert_eq!(event.bytes, mark(&layouts, 1, 100));
        let fields = event.fields();
        assert_eq!(fields[0], ("number", klogger_log::event::Value::Int(1)));
        assert_eq!(tallies.with(2, |t| (t.logged, t.acted)), Some((2, 2)));
    }

    #[test]
    fn an_event_of_another_time_or_kind_did_not_fire_it() {
        let (mut finder, hits, _, layouts) = finder();
        let other_time = [mark(&layouts, 1, 99), triggered(&layouts, 1, 7, 100)].concat();
        let other_kind =
            [mark(&layouts, 1, 5_000_000_000), triggered(&layouts, 1, 6, 5_000_000_000)];
        see(&mut finder, Origin::Cpu(0), 0, &other_time);
        see(&mut finder, Origin::Cpu(0), 0, &other_kind.concat());
        assert!(hits.try_iter().all(|hit| hit.event.is_none()));
    }

    #[test]
    fn all_are_counted_and_few_are_handed_over() {
        let (mut finder, hits, tallies, layouts) = finder();
        let many: Vec<u8> = (0..1000).flat_map(|n| triggered(&layouts, 2, 7, 1_000 + n)).collect();
        see(&mut finder, Origin::Cpu(0), 0, &many);
        // Numbers that no trigger has are left alone.
        see(&mut finder, Origin::Cpu(0), 0, &triggered(&layouts, 0, 7, 1));
        see(&mut finder, Origin::Cpu(0), 0, &triggered(&layouts, 3, 7, 1));
        assert_eq!(hits.try_iter().map(|hit| hit.number).collect::<Vec<_>>(), [1, 2]);
        let tally = tallies.with(2, |t| *t).unwrap();
        assert_eq!((tally.logged, tally.acted, tally.suppressed), (1000, 2, 998));
        assert_eq!((tally.first, tally.last), (1_000, 1_999));
    }
}
