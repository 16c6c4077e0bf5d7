// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `A(x) -> B(x)* -> (C(x) | D(x))`: the steps of each x, again and again. `A(x) and B(x)
//! alternate` is `A(x) -> B(x)`.
//!
//! The steps are numbered, and what may come next is a set of them: Glushkov's automaton, whose
//! states are the steps.

use super::key::Table;
use super::tally::{Id, Tally, Why};
use super::{Form, Hit, Limits};
use klogger_schema::model::Path;

/// Sets of steps: bit n is step n.
#[derive(Default)]
struct Part {
    first: u64,
    last: u64,
    empty: bool,
}

/// Which steps may follow each.
#[derive(Default)]
struct Steps {
    next: Vec<u64>,
}

impl Steps {
    fn add(&mut self, path: &Path) -> Part {
        match path {
            Path::Step(_) => {
                let bit = 1 << self.next.len();
                self.next.push(0);
                Part { first: bit, last: bit, empty: false }
            }
            Path::Sequence(parts) => {
                let mut all = Part { empty: true, ..Part::default() };
                for part in parts.iter().map(|part| self.add(part)).collect::<Vec<_>>() {
                    self.join(all.last, part.first);
                    all.first |= if all.empty { part.first } else { 0 };
                    all.last = part.last | if part.empty { all.last } else { 0 };
                    all.empty &= part.empty;
                }
                all
            }
            Path::Either(parts) => parts.iter().fold(Part::default(), |all, part| {
                let part = self.add(part);
                Part {
                    first: all.first | part.first,
                    last: all.last | part.last,
                    empty: all.empty | part.empty,
                }
            }),
            Path::Repeated { what, none, many } => {
                let part = self.add(what);
                if *many {
                    self.join(part.last, part.first);
                }
                Part { empty: part.empty | none, ..part }
            }
        }
    }

    fn join(&mut self, from: u64, to: u64) {
        for (step, next) in self.next.iter_mut().enumerate() {
            if from >> step & 1 != 0 {
                *next |= to;
            }
        }
    }

    /// What may follow one of these.
    #[inline]
    fn after(&self, mut steps: u64) -> u64 {
        let mut next = 0;
        while steps != 0 {
            next |= self.next[steps.trailing_zeros() as usize];
            steps &= steps - 1;
        }
        next
    }
}

/// What is known of an x: its last event, and which steps that can have been.
struct State {
    steps: u64,
    last: Id,
}

pub struct Walk {
    steps: Steps,
    first: u64,
    last: u64,
    from_start: bool,
    by_end: bool,
    start: u64,
    states: Table<State>,
}

impl Walk {
    pub fn new(path: &Path, from_start: bool, by_end: bool, start: u64, limits: Limits) -> Walk {
        let mut steps = Steps::default();
        let Part { first, last, .. } = steps.add(path);
        // Another one may begin when one has ended.
        steps.join(last, first);
        Walk { steps, first, last, from_start, by_end, start, states: Table::new(limits.keys) }
    }

    fn begin(&mut self, hit: &Hit, tally: &mut Tally) -> u64 {
        let (known, now) = (hit.roles & self.first, hit.id.time);
        let sure = self.from_start && self.states.given_up == 0;
        match (known != 0, sure) {
            (true, true) => tally.kept(),
            // It may be a first step, or one before the log's start may have been.
            (true, false) => {}
            (false, true) => {
                tally.judge(Why::WrongFirst, (self.start.min(now), now), vec![hit.id]);
            }
            (false, false) if self.from_start => tally.undecided.given_up += 1,
            (false, false) => tally.undecided.start += 1,
        }
        if known != 0 && sure { known } else { hit.roles }
    }
}

impl Form for Walk {
    fn see(&mut self, hit: Hit, tally: &mut Tally) {
        let Some(state) = self.states.get_mut(&hit.key) else {
            let steps = self.begin(&hit, tally);
            return self.states.insert(hit.key, State { steps, last: hit.id }, hit.id.time);
        };
        let before = state.last;
        let next = self.steps.after(state.steps) & hit.roles;
        let unknown = tally.gaps.are_in(before.time, hit.id.time);
        let steps = if next == 0 || unknown { hit.roles } else { next };
        self.states.insert(hit.key, State { steps, last: hit.id }, hit.id.time);
        if next == 0 {
            let span = (before.time, hit.id.time);
            tally.judge(Why::WrongStep, span, vec![before, hit.id]);
        } else {
            tally.kept();
        }
    }

    fn end(self: Box<Self>, end: u64, tally: &mut Tally) {
        let last = self.last;
        let open = self.states.into_values().filter(|state| state.steps & last == 0);
        if !self.by_end {
            tally.undecided.end += open.count() as u64;
            return;
        }
        let mut open: Vec<Id> = open.map(|state| state.last).collect();
        open.sort_unstable();
        for id in open {
            tally.judge(Why::Incomplete, (id.time, end.max(id.time)), vec![id]);
        }
    }
}
