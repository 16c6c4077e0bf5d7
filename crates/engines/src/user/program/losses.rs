// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a program has lost, for the ledger.

use super::Program;
use crate::user::catalogue::Catalogue;
use crate::user::output::Output;
use crate::user::translate::LOST_MAX;
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Thread;
use std::collections::BTreeMap;
use std::io;

/// What was lost of one event.
#[derive(Default)]
struct Loss {
    count: u64,
    threads: u32,
    /// One of the threads that lost it.
    thread: Option<Thread>,
}

impl Program {
    /// Adds what the program has lost to the ledger: by event, all threads together.
    pub fn account(&self, out: &mut Output, catalogue: &Catalogue) {
        let name = |id: u16| catalogue.events().iter().find(|e| e.id == id).map(|e| e.name.clone());
        let mut losses: BTreeMap<Option<u16>, Loss> = BTreeMap::new();
        for (number, reader) in (0..).zip(&self.readers).filter_map(|(n, r)| Some((n, r.as_ref()?)))
        {
            if reader.lost() == 0 {
                continue;
            }
            let (by_event, sum) = self.lost_by_event(number);
            // The counters of a program are untrusted: they count only if the LOST records confirm
            // them.
            let believed = if sum > reader.lost() { vec![(None, reader.lost())] } else { by_event };
            for (event, count) in believed {
                let loss = losses.entry(event).or_default();
                loss.count = loss.count.saturating_add(count);
                loss.threads += reader.losers();
                loss.thread = reader.last_thread();
            }
        }
        for (event, loss) in losses {
            out.complaints.add(Key::RingFull, self.ring_full(event.and_then(name), &loss));
        }
        self.account_ringless(out, &name);
        if self.refused > 0 {
            let entry = Entry::new(Key::UserRefused).count(self.refused);
            out.complaints.add(
                Key::UserRefused,
                entry.detail(&format!("{}: logged before it was refused", self.title)),
            );
        }
    }

    fn ring_full(&self, event: Option<String>, loss: &Loss) -> Entry {
        let mut entry = Entry { event, ..Entry::new(Key::RingFull).count(loss.count) };
        match (loss.threads, loss.thread) {
            (1, Some(thread)) => entry = entry.thread(thread.tid, thread.tgid).detail(&self.title),
            (threads, _) => entry = entry.detail(&format!("{threads} threads of {}", self.title)),
        }
        entry
    }

    /// (id in the log, count), and the sum of all.
    fn lost_by_event(&self, slot: usize) -> (Vec<(Option<u16>, u64)>, u64) {
        let before = self.lost_before.get(&slot).map_or(&[][..], Vec::as_slice);
        let now = self.file.lost_in(slot).unwrap_or_default();
        let (list, sum) = self.difference(&now, before);
        (list.into_iter().map(|(id, count)| (Some(id), count)).collect(), sum)
    }

    fn difference(&self, now: &[u64], before: &[u64]) -> (Vec<(u16, u64)>, u64) {
        let count = |local: u16| {
            let at = usize::from(local);
            let now = now.get(at).copied().unwrap_or(0);
            now.saturating_sub(before.get(at).copied().unwrap_or(0)).min(LOST_MAX)
        };
        let list: Vec<(u16, u64)> = self
            .ids
            .events()
            .map(|(local, log)| (log, count(local)))
            .filter(|(_, n)| *n > 0)
            .collect();
        let sum = list.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
        (list, sum)
    }

    /// Events of threads that got no ring.
    fn account_ringless(&self, out: &mut Output, name: &dyn Fn(u16) -> Option<String>) {
        let now = self.file.lost_without_ring().unwrap_or_default();
        let (list, sum) = self.difference(&now, &self.ringless_before);
        let failed = self.file.failed();
        if sum == 0 && (failed == 0 || failed == self.failed_before) {
            return;
        }
        let key = if failed == libc::ENOMEM { Key::UserMemory } else { Key::UserRefused };
        let why = match failed {
            0 => format!(
                "{}: logged by signal handlers while their threads were about to get rings",
                self.title
            ),
            libc::ENOMEM => self.title.clone(),
            // The error that a full tmpfs causes.
            libc::EFAULT => {
                format!("{}: a thread got no ring, because its folder is full", self.title)
            }
            errno => format!(
                "{}: a thread got no ring: {}",
                self.title,
                io::Error::from_raw_os_error(errno)
            ),
        };
        if sum == 0 {
            let uncounted = format!("{why}; the number of lost events is unknown");
            out.complaints.add(key, Entry::new(key).detail(&uncounted));
        }
        for (event, count) in list.into_iter().filter_map(|(id, count)| Some((name(id)?, count))) {
            out.complaints.add(key, Entry::new(key).event(&event).count(count).detail(&why));
        }
        out.status.add(0, sum);
    }
}
