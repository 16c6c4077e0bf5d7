// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the recorder does because a trigger fired.
//!
//! The writer thread finds the hits among the records that pass it ([`Finder`]). It counts them,
//! and hands over those that actions are due for, of which there are few: see [`Limit`]. The thread
//! of the recording takes the actions. A command runs beside it ([`run`]).
//!
//! What is compiled into no event, such as a sequence or a silence, it finds itself ([`watcher`]).
//!
//! [`Limit`]: klogger_log::trigger::Limit

pub mod limiter;
pub mod run;
pub mod watcher;

use crate::taps::triggers::{Finder, Outlet};
use klogger_engines::losses::Fired;
use klogger_log::event::{EventRef, Value};
use klogger_log::ledger::{Entry, Key, TriggerCount};
use klogger_log::trigger::{Pattern, Trigger};
use klogger_schema::layout::EventLayout;
use run::Commands;
use std::cell::RefCell;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Hits that wait for their actions. Further ones count as suppressed.
const WAITING_MAX: usize = 256;

/// A hit that actions are due for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The number of the trigger, from 1.
    pub trigger: u16,
    /// Of this trigger, from 1.
    pub number: u64,
    /// Full ns of the log clock.
    pub time_ns: u64,
    pub cpu: Option<u16>,
    /// The event that fired it, as far as it is in the log.
    pub event: Option<FiredBy>,
}

/// The event that fired a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiredBy {
    pub layout: Arc<EventLayout>,
    /// The record.
    pub bytes: Vec<u8>,
}

impl FiredBy {
    /// The names and values of its fields.
    pub fn fields(&self) -> Vec<(&str, Value<'_>)> {
        let layout = &*self.layout;
        let event = EventRef {
            layout,
            index: 0,
            time_ns: 0,
            origin: klogger_log::origin::Origin::Recorder,
            serial: 0,
            bytes: &self.bytes,
        };
        layout.fields.iter().map(|f| (f.name.as_str(), event.value(f))).collect()
    }
}

/// What became of the hits of a trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Hits in the log, and the times of the first and the last.
    pub logged: u64,
    pub first: u64,
    pub last: u64,
    /// Hits that actions were taken for, and those that were above the limit.
    pub acted: u64,
    pub suppressed: u64,
    /// Events that were too many to be remembered, see [`Limits`].
    ///
    /// [`Limits`]: klogger_log::trigger::matcher::Limits
    pub forgotten: u64,
}

/// Tallies by trigger, which the writer thread and that of the recording share.
#[derive(Clone)]
pub struct Tallies(Arc<Mutex<Vec<Tally>>>);

impl Tallies {
    pub(crate) fn new(triggers: usize) -> Tallies {
        Tallies(Arc::new(Mutex::new(vec![Tally::default(); triggers])))
    }

    /// `trigger`: its number, from 1.
    pub(crate) fn with<T>(&self, trigger: u16, change: impl FnOnce(&mut Tally) -> T) -> Option<T> {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.get_mut(usize::from(trigger).checked_sub(1)?).map(change)
    }
}

/// The side of the recording's own thread.
pub struct Actions {
    pub triggers: Vec<Trigger>,
    pub commands: RefCell<Commands>,
    hits: Receiver<Hit>,
    bell: UnixStream,
    tallies: Tallies,
}

impl Actions {
    /// With the side of the writer thread.
    pub fn new(triggers: &[Trigger], layouts: &[EventLayout]) -> io::Result<(Actions, Finder)> {
        let (to, hits) = sync_channel(WAITING_MAX);
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        let tallies = Tallies::new(triggers.len());
        let finder = Finder::new(triggers, layouts, tallies.clone(), Outlet { to, ring });
        let actions = Actions {
            triggers: triggers.to_vec(),
            commands: RefCell::new(Commands::new()?),
            hits,
            bell,
            tallies,
        };
        Ok((actions, finder))
    }

    /// The hits that have come since.
    pub fn take(&self) -> Vec<Hit> {
        let mut bytes = [0; 256];
        while matches!((&self.bell).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        self.hits.try_iter().collect()
    }

    /// What triggers could not remember, for the ledger.
    pub fn forgotten(&self, span: (u64, u64)) -> Vec<Entry> {
        let entry = |(number, trigger): (u16, &Trigger)| {
            let count = self.tallies.with(number, |tally| tally.forgotten)?;
            let entry = Entry::new(Key::TriggerFull).count(count).between(span.0, span.1);
            (count > 0).then(|| entry.detail(&format!("trigger {number}: {}", trigger.text)))
        };
        (1..).zip(&self.triggers).filter_map(entry).collect()
    }

    /// For the ledger. `fired`: the hits that were counted where a trigger is compiled in.
    pub fn counts(&self, fired: &dyn Fn(u16) -> Option<Fired>) -> Vec<TriggerCount> {
        let count = |(number, trigger): (u16, &Trigger)| {
            let tally = self.tallies.with(number, |t| *t).unwrap_or_default();
            let compiled = matches!(trigger.pattern, Pattern::Event(_));
            let fired = fired(number).filter(|f| compiled && f.hits > tally.logged);
            let (hits, first, last) = match fired {
                Some(f) => (f.hits, f.first, f.last),
                None => (tally.logged, tally.first, tally.last),
            };
            TriggerCount {
                number,
                trigger: trigger.text.clone(),
                hits,
                lost: hits - tally.logged,
                acted: tally.acted,
                suppressed: tally.suppressed,
                first_ns: (hits > 0).then_some(first),
                last_ns: (hits > 0).then_some(last),
            }
        };
        (1..).zip(&self.triggers).map(count).collect()
    }
}

/// Readable if there are hits.
impl AsFd for Actions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
