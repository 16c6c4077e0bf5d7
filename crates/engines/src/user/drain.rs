// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The thread that records programs: takes in new programs, drains their rings into the log, and
//! releases those that end.
//!
//! It sleeps until a program wakes it because a ring has passed its low-water mark, or a file
//! appears. While there are programs it sleeps for at most a tenth of a second, so that events are
//! not in memory alone for much longer. Programs are untrusted and may wake it as often as they
//! like: it begins at most one round in a tenth of a millisecond.

mod admit;

pub use admit::is_recorder;

use super::catalogue::Catalogue;
use super::folder::Found;
use super::layout::AT_KEEPER;
use super::output::Output;
use super::process::{Known, Scope};
use super::program::{Program, broken};
use super::shares::{AllTaken, Shares};
use super::slot::Round;
use admit::{Candidate, MAPPED_WITHIN, TAKEN_WITHIN};
use klogger_log::ledger::Key;
use klogger_os as os;
use klogger_os::files::FileId;
use klogger_os::futex;
use klogger_os::robust::Robust;
use klogger_ring::clock::Source;
use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The shortest time between the beginnings of two rounds.
const SHORTEST_ROUND: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait while there is no program.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// The wait when there are more programs than one futex call can wait for, or no buffer was free.
const SHORT_WAIT: Duration = Duration::from_millis(2);
/// How often it checks whether programs still exist.
const CARE: Duration = Duration::from_secs(1);
/// How long to wait for events that were begun before their program was disarmed.
const LAST_EVENTS: Duration = Duration::from_millis(2);

/// What the recorder asks for.
pub struct Settings {
    pub scope: Scope,
    /// The clock that programs should read.
    pub source: Source,
    /// Bytes of memory for all rings together.
    pub max_memory: u64,
    pub token: u64,
    pub in_kernel_scope: Box<dyn Fn(u32) -> bool + Send>,
}

/// What the thread shares with the one that started it.
pub struct Shared {
    pub catalogue: Mutex<Catalogue>,
    /// Events were switched on or off.
    pub switched: AtomicBool,
    /// No more files are looked for. When the watch has ended, the worker ends as well.
    pub stop_watch: AtomicBool,
    pub stop: AtomicBool,
    /// How many of the files that were found have been examined.
    pub looked_at: AtomicUsize,
    /// A futex, woken when there is something new.
    pub bell: AtomicU32,
}

impl Shared {
    pub fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake(&self.bell);
    }
}

pub struct Worker {
    pub settings: Settings,
    pub shared: Arc<Shared>,
    pub found: Receiver<Found>,
    pub out: Output,
    programs: Vec<Program>,
    waiting: Vec<Candidate>,
    condemned: Vec<Found>,
    /// Files that are used or were refused, and their names.
    seen: HashSet<(FileId, OsString)>,
    known: Known,
    /// Programs that were recorded.
    pub recorded: u64,
    shares: Shares,
    taken: AllTaken,
    /// Programs see by it that this thread has died. `None`: this kernel has no robust lists.
    robust: Option<Robust>,
}

impl Worker {
    pub fn new(
        settings: Settings,
        shared: Arc<Shared>,
        found: Receiver<Found>,
        out: Output,
    ) -> Worker {
        let own = matches!(settings.scope, Scope::All).then(os::files::effective_uid);
        let shares = Shares::new(own, settings.max_memory);
        if let Ok(mut catalogue) = shared.catalogue.lock() {
            catalogue.restrict_others_than(own);
        }
        Worker {
            settings,
            shared,
            found,
            out,
            programs: Vec::new(),
            waiting: Vec::new(),
            condemned: Vec::new(),
            seen: HashSet::new(),
            known: Known::default(),
            recorded: 0,
            shares,
            taken: AllTaken::new(),
            robust: None,
        }
    }

    pub fn run(mut self) -> Worker {
        self.robust = Robust::new(AT_KEEPER).ok();
        let mut cared = Instant::now();
        while !self.shared.stop.load(Ordering::Acquire) {
            let begin = Instant::now();
            let calls = self.calls();
            self.take_in(begin);
            if self.shared.switched.swap(false, Ordering::AcqRel) {
                self.switch();
            }
            let begin_ns = os::monotonic_ns();
            let round = self.drain();
            if !round.more && !round.starved {
                self.out.emptied((!self.programs.is_empty()).then_some(begin_ns));
            }
            self.let_go_of_the_ended();
            if cared.elapsed() >= CARE {
                cared = Instant::now();
                self.care();
            }
            self.share_memory();
            self.out.clock.look();
            if !round.more || round.starved {
                self.wait(&calls, begin, round.starved);
            }
        }
        self.finish();
        self
    }

    /// The values of the bell and of all programs' futexes before the round: a later change ends
    /// the wait.
    fn calls(&self) -> Vec<u32> {
        let calls = self.programs.iter().map(|p| p.file.call());
        std::iter::once(&self.shared.bell)
            .chain(calls)
            .map(|word| word.load(Ordering::Acquire))
            .collect()
    }

    fn wait(&self, calls: &[u32], begin: Instant, starved: bool) {
        let words =
            std::iter::once(&self.shared.bell).chain(self.programs.iter().map(|p| p.file.call()));
        let words: Vec<_> = words.zip(calls.iter().copied()).collect();
        // Programs taken in during this round have no value from before it, and may have woken us
        // already.
        let all = self.programs.len() < futex::WAIT_MAX && words.len() == self.programs.len() + 1;
        let most = match (starved || !self.waiting.is_empty() || !all, self.programs.is_empty()) {
            (true, _) => SHORT_WAIT,
            (false, true) => IDLE_WAIT,
            (false, false) => LONGEST_WAIT,
        };
        if futex::wait(&words, most).is_err() {
            thread::sleep(SHORT_WAIT);
        }
        thread::sleep(SHORTEST_ROUND.saturating_sub(begin.elapsed()));
    }

    fn switch(&self) {
        if let Ok(catalogue) = self.shared.catalogue.lock() {
            self.programs.iter().for_each(|p| p.switch(&catalogue));
        }
    }

    /// Drains all programs once.
    fn drain(&mut self) -> Round {
        let mut round = Round::default();
        let mut at = 0;
        while at < self.programs.len() {
            match self.programs[at].drain(&mut self.out, false) {
                Ok(part) => {
                    round.add(part);
                    at += 1;
                }
                Err(_) => self.drop_broken(at),
            }
        }
        round
    }

    fn drop_broken(&mut self, at: usize) {
        let program = self.programs.swap_remove(at);
        self.out.complaints.say(Key::UserHostile, &program.title, &broken().to_string());
    }

    fn let_go_of_the_ended(&mut self) {
        for at in (0..self.programs.len()).rev() {
            if self.programs[at].has_ended() {
                self.let_go(at, true);
            }
        }
    }

    /// Releases a program: takes what is left in its file, then closes the file.
    fn let_go(&mut self, at: usize, ended: bool) {
        let mut program = self.programs.swap_remove(at);
        if program.drain(&mut self.out, true).is_err() || program.file.is_broken() {
            self.out.complaints.say(Key::UserHostile, &program.title, &broken().to_string());
        }
        if let Ok(catalogue) = self.shared.catalogue.lock() {
            program.account(&mut self.out, &catalogue);
        }
        if ended {
            self.out.process_has_ended(program.pid);
        }
        program.file.remove();
        self.seen.remove(&(program.file.id, program.file.name.clone()));
    }

    /// Looks for programs that have called exec, and for threads that ended without freeing their
    /// slot.
    fn care(&mut self) {
        for at in (0..self.programs.len()).rev() {
            if self.programs[at].has_let_go() {
                self.let_go(at, false);
            } else if self.programs[at].free_slots_of_the_dead().is_err() {
                self.drop_broken(at);
            }
        }
        if self.programs.iter().any(|p| p.file.gave_up_too_late()) {
            self.switch();
        }
        self.remove_condemned();
    }

    fn take_stock(&self) -> AllTaken {
        let mut all = AllTaken::new();
        for p in &self.programs {
            let taken = all.entry(p.file.folder.uid).or_default();
            taken.programs += 1;
            taken.memory += p.memory();
            taken.addresses += p.file.facts.size as u64;
        }
        all
    }

    /// Keeps the memory of all rings together within its limit: each program may use what is left
    /// for its user.
    fn share_memory(&mut self) {
        let taken = self.take_stock();
        if taken == self.taken {
            return;
        }
        self.taken = taken;
        for p in &self.programs {
            let left = self.shares.left(p.file.folder.uid, &self.taken);
            let more = (left / p.slot_bytes()).min(u32::MAX.into()) as u32;
            p.file.allow_slots((p.slots_used as u32).saturating_add(more));
        }
    }

    /// Disarms all programs and takes what they still hold. Files of programs that go on running
    /// stay.
    fn finish(&mut self) {
        let now = Instant::now();
        self.take_in(now);
        // A file that no process has mapped by now belongs to a program that has ended; and what
        // another klogger has claimed is refused.
        self.take_in(now + MAPPED_WITHIN.max(TAKEN_WITHIN));
        self.programs.iter().for_each(|p| p.disarm());
        thread::sleep(LAST_EVENTS);
        while let Some(at) = self.programs.len().checked_sub(1) {
            match self.programs[at].has_ended() {
                true => self.let_go(at, true),
                false => self.leave(at),
            }
        }
        self.remove_condemned();
    }

    fn leave(&mut self, at: usize) {
        let mut program = self.programs.swap_remove(at);
        if program.drain(&mut self.out, true).is_err() || program.file.is_broken() {
            return self.out.complaints.say(
                Key::UserHostile,
                &program.title,
                &broken().to_string(),
            );
        }
        if let Ok(catalogue) = self.shared.catalogue.lock() {
            program.account(&mut self.out, &catalogue);
        }
    }
}
