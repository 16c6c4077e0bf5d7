// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compares a log with rules of the order of its events, in one pass.
//!
//! What is not known is not a violation: what may have begun before the log, what may have ended
//! after it, and what depends on a time in which events are missing is counted as undecided. The
//! memory is limited, whatever a log says ([`Limits`]); what does not fit is counted as well.

mod between;
mod bind;
mod followed;
pub mod gaps;
mod held;
pub(crate) mod key;
mod path;
pub mod tally;

pub(crate) use bind::field;
pub use bind::{Log, faults};

use crate::decode::Decoder;
use crate::event::EventRef;
use crate::filter::{Filter, FilterError};
use crate::names::Processes;
use key::{From, Key};
use klogger_schema::model::{self, Rule};
use tally::{Id, Tally};

/// A rule, and the schema whose events it is about; `None`: those of any schema.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub schema: Option<&'a str>,
    pub rule: &'a Rule,
}

/// How much is remembered of each rule.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Things that events are about, at a time.
    pub keys: usize,
}

/// Of all rules together.
const KEYS_MAX: usize = 2 << 20;
const KEYS_MIN: usize = 16 << 10;

impl Limits {
    fn of(rules: usize) -> Limits {
        Limits { keys: (KEYS_MAX / rules.max(1)).clamp(KEYS_MIN, KEYS_MAX / 2) }
    }
}

/// An event that is a term of a rule.
struct Hit {
    id: Id,
    /// Bit n is the term n of the rule.
    roles: u64,
    key: Key,
    /// What it is that the key holds, in rules about that.
    thing: Option<Key>,
}

/// A rule of one form, and what it remembers.
trait Form {
    /// The next event of the rule.
    fn see(&mut self, hit: Hit, tally: &mut Tally);
    /// The log ends at this time, ns.
    fn end(self: Box<Self>, end: u64, tally: &mut Tally);
}

fn form(rule: &Rule, log: &Log, limits: Limits) -> Box<dyn Form> {
    let (within, start) = (rule.within, log.start);
    let (from_start, by_end) = (rule.from_start && log.begins(), rule.by_end && log.ends());
    match &rule.form {
        model::Form::Followed { .. } => Box::new(followed::Followed::new(within, by_end, limits)),
        model::Form::Preceded { .. } => {
            Box::new(followed::Preceded::new(within, from_start, start, limits))
        }
        model::Form::Alternate { first, second } => {
            let steps = [first, second].map(|term| model::Path::Step(term.clone()));
            let path = model::Path::Sequence(steps.into());
            Box::new(path::Walk::new(&path, from_start, by_end, start, limits))
        }
        model::Form::Between { .. } => Box::new(between::Between::new(from_start, limits)),
        model::Form::Nest { .. } => Box::new(held::Nest::new(from_start, by_end, start, limits)),
        model::Form::Order { .. } => Box::new(held::Order::new(limits)),
        model::Form::Path(path) => {
            Box::new(path::Walk::new(path, from_start, by_end, start, limits))
        }
    }
}

/// Which terms an event is, if they are about the same thing.
struct Matcher {
    fields: Vec<From>,
    roles: Vec<(u64, Option<Filter>)>,
}

/// A rule whose names were looked up in a log.
pub struct Bound {
    form: Box<dyn Form>,
    /// Each with the event's index in the preamble.
    matchers: Vec<(usize, Matcher)>,
    holds: bool,
    tally: Tally,
}

/// Rules, compared with the events of a log.
pub struct Checker {
    rules: Vec<Bound>,
    /// By event of the preamble: (rule, its matcher).
    by_event: Vec<Vec<(usize, usize)>>,
}

impl Checker {
    /// `most`: how many violations are kept of each rule.
    ///
    /// # Errors
    ///
    /// A rule names an event or a field that the log does not have.
    pub fn new(sources: &[Source], log: &Log, most: usize) -> Result<Checker, FilterError> {
        Checker::with_limits(sources, log, most, Limits::of(sources.len()))
    }

    /// The same with limits of one's own.
    pub fn with_limits(
        sources: &[Source],
        log: &Log,
        most: usize,
        limits: Limits,
    ) -> Result<Checker, FilterError> {
        let bound = sources.iter().map(|source| bind::bind(source, log, most, limits));
        let rules = bound.collect::<Result<Vec<Bound>, _>>()?;
        let mut by_event = vec![Vec::new(); log.preamble.events.len()];
        for (index, rule) in rules.iter().enumerate() {
            for (at, (event, _)) in rule.matchers.iter().enumerate() {
                by_event[*event].push((index, at));
            }
        }
        Ok(Checker { rules, by_event })
    }

    /// The next event, in the order of time.
    #[inline]
    pub fn see(&mut self, event: &EventRef, decoder: &Decoder, processes: &Processes) {
        let Some(terms) = self.by_event.get(event.index) else { return };
        for &(rule, at) in terms {
            let rule = &mut self.rules[rule];
            let matcher = &rule.matchers[at].1;
            let mut roles = 0;
            for (role, filter) in &matcher.roles {
                if filter.as_ref().is_none_or(|f| f.matches(event, decoder, processes)) {
                    roles |= role;
                }
            }
            if roles == 0 {
                continue;
            }
            match keys(&matcher.fields, rule.holds, event) {
                Some((key, thing)) => {
                    let hit = Hit { id: Id::of(event), roles, key, thing };
                    rule.form.see(hit, &mut rule.tally);
                }
                None => rule.tally.undecided.no_value += 1,
            }
        }
    }

    /// What was found about each rule. `end`: the end of the log, ns.
    pub fn finish(self, end: u64) -> Vec<Tally> {
        let finish = |rule: Bound| {
            let mut tally = rule.tally;
            rule.form.end(end, &mut tally);
            tally
        };
        self.rules.into_iter().map(finish).collect()
    }
}

#[inline]
fn keys(fields: &[From], holds: bool, event: &EventRef) -> Option<(Key, Option<Key>)> {
    match fields.split_last() {
        Some((last, holder)) if holds => {
            let thing = Key::of(std::slice::from_ref(last), event)?;
            Some((Key::of(holder, event)?, Some(thing)))
        }
        Some(_) | None => Some((Key::of(fields, event)?, None)),
    }
}
