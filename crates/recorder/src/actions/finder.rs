// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the hits of triggers among the records that pass the writer thread.

use super::limiter::Limiter;
use super::watcher::Watcher;
use super::{FiredBy, Hit, Tallies};
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_log::record::{Header, SizeTable};
use klogger_log::trigger::Trigger;
use klogger_log::trigger::matcher::Found;
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
    sizes: SizeTable,
    layouts: BTreeMap<u16, Arc<EventLayout>>,
    /// The id of `TRIGGERED`.
    triggered: u16,
    /// The last record of each CPU which is no `TRIGGERED`: the next block may begin with one.
    last: HashMap<Origin, Vec<u8>>,
    hits: Hits,
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
            sizes: SizeTable::new(layouts),
            layouts: layouts.iter().map(|e| (e.id, Arc::new(e.clone()))).collect(),
            triggered,
            last: HashMap::new(),
            hits: Hits {
                limiters: triggers.iter().map(|t| Limiter::new(t.limit)).collect(),
                tallies,
                outlet,
            },
            watcher: None,
        }
    }

    /// Looks for the hits of triggers that are compiled into no event as well.
    pub fn watching(self, watcher: Option<Watcher>) -> Finder {
        Finder { watcher, ..self }
    }

    /// What finds the hits of triggers that are compiled into no event.
    pub fn watcher(&mut self) -> Option<&mut Watcher> {
        self.watcher.as_mut()
    }

    /// Events that a later block may contain.
    pub fn add(&mut self, addition: &Addition) {
        self.sizes.add(&addition.events);
        self.layouts.extend(addition.events.iter().map(|e| (e.id, Arc::new(e.clone()))));
        self.watcher.iter_mut().for_each(|watcher| watcher.add(addition));
    }

    /// The recorder's own events, of which those that need not wait are appended to `own`.
    pub fn own(&mut self, records: &[u8], own: &mut Vec<u8>) {
        match &mut self.watcher {
            Some(watcher) => watcher.own(records),
            None => own.extend_from_slice(records),
        }
    }

    /// Looks for the hits of triggers that are compiled into no event, and appends them and other
    /// events of the recorder to `own`. Returns up to which time they are there.
    pub fn look(&mut self, own: &mut Vec<u8>) -> Option<u64> {
        let Finder { hits, layouts, watcher, .. } = self;
        watcher.as_mut()?.look(own, &mut |found| hits.found(layouts, found))
    }

    /// The same for the last time: the recording ended at this time. `None`: it is not known.
    pub fn finish(&mut self, end_ns: Option<u64>, own: &mut Vec<u8>) {
        let Finder { hits, layouts, watcher, .. } = self;
        let Some(mut watcher) = watcher.take() else { return };
        watcher.finish(end_ns.unwrap_or(0), own, &mut |found| hits.found(layouts, found));
        for (trigger, count) in watcher.forgotten() {
            hits.tallies.with(trigger, |tally| tally.forgotten += count);
        }
    }

    /// Looks through the records of a block.
    pub fn see(&mut self, origin: Origin, time_base: u64, records: &[u8]) {
        self.watcher.iter_mut().for_each(|watcher| watcher.see(origin, time_base, records));
        // Triggers are compiled into events of the kernel only.
        if origin.cpu().is_none() {
            return;
        }
        let before = self.last.remove(&origin).unwrap_or_default();
        let mut last: &[u8] = &before;
        for record in self.sizes.records(records) {
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

impl Hits {
    fn found(&mut self, layouts: &BTreeMap<u16, Arc<EventLayout>>, found: Found) {
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
        finder.see(cpu, 50, &one);
        finder.see(Origin::Cpu(4), 50, &two);
        finder.see(cpu, 50, &two);
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
        finder.see(Origin::Cpu(0), 0, &other_time);
        finder.see(Origin::Cpu(0), 0, &other_kind.concat());
        assert!(hits.try_iter().all(|hit| hit.event.is_none()));
    }

    #[test]
    fn all_are_counted_and_few_are_handed_over() {
        let (mut finder, hits, tallies, layouts) = finder();
        let many: Vec<u8> = (0..1000).flat_map(|n| triggered(&layouts, 2, 7, 1_000 + n)).collect();
        finder.see(Origin::Cpu(0), 0, &many);
        // Numbers that no trigger has are left alone.
        finder.see(Origin::Cpu(0), 0, &triggered(&layouts, 0, 7, 1));
        finder.see(Origin::Cpu(0), 0, &triggered(&layouts, 3, 7, 1));
        assert_eq!(hits.try_iter().map(|hit| hit.number).collect::<Vec<_>>(), [1, 2]);
        let tally = tallies.with(2, |t| *t).unwrap();
        assert_eq!((tally.logged, tally.acted, tally.suppressed), (1000, 2, 998));
        assert_eq!((tally.first, tally.last), (1_000, 1_999));
    }
}
