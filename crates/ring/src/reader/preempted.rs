// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader against a model of writers that preempt each other in the middle of a record: the
//! steps of runtime/include/klogger/writer.h, one by one, by threads that continue in any order.
//! So do programs that can be preempted on kernels that do not let them disable preemption.

use super::model::{LOST_ID, Open, Writers, kinds, record_size, records};
use super::*;
use proptest::prelude::*;

const THREADS: usize = 4;
const TRIES: u32 = 16;

/// What a thread does next to log its event. `lost`: it makes room for a LOST record of so many.
#[derive(Clone, Copy, Debug)]
enum At {
    Begin,
    LowWater { limit: u64, hard: u64 },
    Missed,
    TakeMissed,
    Head { lost: u64, tries: u32 },
    Claim { lost: u64, tries: u32, head: u64 },
    GiveBack { lost: u64 },
    Since,
    Count,
    Put { at: u64, lost: u64 },
    Idle,
}

#[derive(Clone, Copy)]
struct Thread {
    at: At,
    id: u16,
    time: u64,
}

#[derive(Default)]
struct Account {
    attempts: u64,
    lost: u64,
    logged: Vec<(u16, u64)>,
    out: Vec<u8>,
    torn: bool,
    taken_lost: u64,
    serials: u64,
}

impl Account {
    /// Adds what the reader took; keeps its bytes.
    fn take(&mut self, writers: &mut Writers, max: usize) {
        let taken = writers.reader.take(&kinds(), &mut self.out, max);
        self.torn |= taken.torn;
        self.taken_lost += taken.lost;
        self.serials += taken.serials;
    }
}

impl Writers {
    /// Adds, as an atomic instruction does.
    fn add(&self, offset: usize, n: u64) {
        self.store(offset, self.load(offset) + n);
    }

    /// Fields and header of a record.
    fn fill(&self, id: u16, at: u64, time: u64) {
        self.commit(&Open { id, at, time });
    }

    /// One step of a thread.
    fn step(&mut self, thread: &mut Thread, account: &mut Account) {
        let size = record_size(thread.id);
        thread.at = match thread.at {
            At::Begin => At::LowWater { limit: self.load(LIMIT), hard: self.load(HARD) },
            At::LowWater { limit, hard } => {
                if limit < hard && self.load(HEAD) + size > limit && self.load(LIMIT) == limit {
                    self.store(LIMIT, hard);
                    self.calls += 1;
                }
                At::Missed
            }
            At::Missed if self.load(MISSED) == 0 => At::Head { lost: 0, tries: 0 },
            At::Missed if self.load(HEAD) + 24 + size > self.load(HARD) => At::Since,
            At::Missed => At::TakeMissed,
            At::TakeMissed => {
                let lost = self.load(MISSED);
                self.store(MISSED, 0);
                At::Head { lost, tries: 0 }
            }
            At::Head { lost, tries } => At::Claim { lost, tries, head: self.load(HEAD) },
            At::Claim { lost, tries, head } => self.claim_step(thread.id, lost, tries, head),
            At::GiveBack { lost } => {
                self.add(MISSED, lost);
                At::Since
            }
            At::Since => {
                if self.load(MISSED) == 0 {
                    self.store(MISSED_SINCE, thread.time);
                }
                At::Count
            }
            At::Count => {
                self.add(MISSED, 1);
                self.add(LOST + 8 * usize::from(thread.id), 1);
                account.lost += 1;
                At::Idle
            }
            At::Put { at, lost: 0 } => {
                self.fill(thread.id, at, thread.time);
                account.logged.push((thread.id, thread.time));
                At::Idle
            }
            At::Put { at, lost } => {
                self.word_at(at, 1, lost);
                self.word_at(at, 2, 0);
                self.fill(LOST_ID, at, thread.time);
                At::Head { lost: 0, tries: 0 }
            }
            At::Idle => {
                self.time += 1;
                account.attempts += 1;
                thread.time = self.time;
                At::Begin
            }
        };
    }

    /// The compare-and-swap of a claim that has loaded `head` before.
    fn claim_step(&self, id: u16, lost: u64, tries: u32, head: u64) -> At {
        let size = if lost > 0 { record_size(LOST_ID) } else { record_size(id) };
        let failed = if lost > 0 { At::GiveBack { lost } } else { At::Since };
        if head + size > self.load(HARD) || tries == TRIES {
            return failed;
        }
        if self.load(HEAD) != head {
            return At::Head { lost, tries: tries + 1 };
        }
        self.store(HEAD, head + size);
        At::Put { at: head, lost }
    }
}

/// Threads that take a step, by number; above: the reader takes so many bytes.
fn turns() -> impl Strategy<Value = Vec<(usize, u16)>> {
    let turn = prop_oneof![60 => 0..THREADS, 1 => THREADS..20_000];
    proptest::collection::vec((turn, 9u16..12), 0..6000)
}

proptest! {
    #[test]
    fn threads_that_preempt_each_other_lose_and_tear_nothing(turns in turns()) {
        let mut writers = Writers::new(false);
        let mut threads = [Thread { at: At::Idle, id: 9, time: 0 }; THREADS];
        let mut account = Account::default();
        for (turn, id) in turns {
            match threads.get_mut(turn) {
                Some(thread) => {
                    if matches!(thread.at, At::Idle) {
                        thread.id = id;
                    }
                    writers.step(thread, &mut account);
                }
                None => account.take(&mut writers, turn),
            }
        }
        for thread in &mut threads {
            while !matches!(thread.at, At::Idle) {
                writers.step(thread, &mut account);
            }
        }
        account.take(&mut writers, usize::MAX);
        let mut seen = records(&account.out);
        seen.retain(|record| record.0 != LOST_ID);
        seen.sort_unstable();
        account.logged.sort_unstable();
        prop_assert_eq!(&seen, &account.logged);
        prop_assert!(!account.torn);
        let (missed, _) = writers.reader.missed();
        prop_assert_eq!(account.taken_lost + missed, account.lost);
        prop_assert_eq!(seen.len() as u64 + account.lost, account.attempts);
        prop_assert_eq!(account.serials + missed, account.attempts);
    }
}
