// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `A(t, x) to B(t, x) nest`, and `A(t, x) to B(t, x) keep one order`: what each t holds.

use super::key::{Key, Table};
use super::tally::{Id, Tally, Why};
use super::{Form, Hit, Limits};
use std::collections::{HashMap, HashSet};

/// The bit of A, in the order of [`klogger_schema::model::Form::terms`].
const FROM: u64 = 1;
/// Things that one t holds at most: with more, it most likely no longer has the first one.
const HELD_MAX: usize = 64;

/// What one t has, in the order in which it took them.
type Stack = Vec<(Key, Id)>;

/// What each t has.
struct Holders {
    stacks: Table<Stack>,
}

impl Holders {
    fn new(limits: Limits) -> Holders {
        Holders { stacks: Table::new(limits.keys / HELD_MAX) }
    }

    /// Drops what it may have lost, or given up, since then; whether anything was dropped.
    fn stack(&mut self, hit: &Hit, tally: &mut Tally) -> &mut Stack {
        let stack = self.stacks.entry(&hit.key, hit.id.time, Vec::new);
        // The oldest was there at all times since.
        while let Some((_, id)) = stack.first()
            && tally.gaps.are_in(id.time, hit.id.time)
        {
            stack.remove(0);
            tally.undecided.lost += 1;
        }
        stack
    }

    fn begin(&mut self, hit: Hit, thing: Key, tally: &mut Tally) {
        let stack = self.stack(&hit, tally);
        if stack.len() >= HELD_MAX {
            stack.remove(0);
            tally.undecided.given_up += 1;
        }
        stack.push((thing, hit.id));
    }

    fn given_up(&self) -> bool {
        self.stacks.given_up > 0
    }
}

pub struct Nest {
    from_start: bool,
    by_end: bool,
    start: u64,
    holders: Holders,
}

impl Nest {
    pub fn new(from_start: bool, by_end: bool, start: u64, limits: Limits) -> Nest {
        let holders = Holders::new(limits);
        Nest { from_start, by_end, start, holders }
    }

    fn not_begun(&self, id: Id, tally: &mut Tally) {
        match self.from_start {
            false => tally.undecided.start += 1,
            true if self.holders.given_up() => tally.undecided.given_up += 1,
            true => tally.judge(Why::NotBegun, (self.start.min(id.time), id.time), vec![id]),
        }
    }
}

impl Form for Nest {
    fn see(&mut self, mut hit: Hit, tally: &mut Tally) {
        let Some(thing) = hit.thing.take() else { return };
        if hit.roles & FROM != 0 {
            return self.holders.begin(hit, thing, tally);
        }
        let id = hit.id;
        let stack = self.holders.stack(&hit, tally);
        let Some(at) = stack.iter().rposition(|(held, _)| *held == thing) else {
            return self.not_begun(id, tally);
        };
        let (_, begun) = stack.remove(at);
        // What began after it, and has not ended.
        let inner = stack.get(at).map(|(_, id)| *id);
        if stack.is_empty() {
            self.holders.stacks.remove(&hit.key);
        }
        match inner {
            Some(inner) => {
                tally.judge(Why::Crossed, (begun.time, id.time), vec![begun, inner, id]);
            }
            None => tally.kept(),
        }
    }

    fn end(self: Box<Self>, end: u64, tally: &mut Tally) {
        let mut open: Vec<Id> =
            self.holders.stacks.into_values().flatten().map(|(_, id)| id).collect();
        if !self.by_end {
            tally.undecided.end += open.len() as u64;
            return;
        }
        open.sort_unstable();
        for id in open {
            tally.judge(Why::Incomplete, (id.time, end.max(id.time)), vec![id]);
        }
    }
}

/// Pairs of things at most, of which the second was taken while the first was held.
const PAIRS_MAX: usize = 16_384;

pub struct Order {
    holders: Holders,
    /// By thing: what was taken while it was held, with the events of the first time. It has no
    /// circle.
    after: HashMap<Key, Vec<(Key, [Id; 2])>>,
    pairs: HashSet<(Key, Key)>,
    /// Those that would close a circle.
    wrong: HashSet<(Key, Key)>,
}

impl Order {
    pub fn new(limits: Limits) -> Order {
        Order {
            holders: Holders::new(limits),
            after: HashMap::new(),
            pairs: HashSet::new(),
            wrong: HashSet::new(),
        }
    }

    /// A thing was taken while another was held.
    fn pair(&mut self, held: (Key, Id), taken: (Key, Id), tally: &mut Tally) {
        let pair = (held.0, taken.0);
        if pair.0 == pair.1 || self.pairs.contains(&pair) {
            return tally.kept();
        }
        if self.wrong.contains(&pair) {
            return;
        }
        if self.pairs.len() + self.wrong.len() >= PAIRS_MAX {
            tally.undecided.given_up += 1;
            return;
        }
        let events = [held.1, taken.1];
        match self.way(&pair.1, &pair.0) {
            None => {
                tally.kept();
                let after = self.after.entry(pair.0.clone()).or_default();
                after.push((pair.1.clone(), events));
                self.pairs.insert(pair);
            }
            Some(way) => {
                self.wrong.insert(pair);
                let events = events.into_iter().chain(way).collect();
                tally.judge(Why::Circle, (held.1.time, taken.1.time), events);
            }
        }
    }

    /// The events of the pairs that lead from one thing to another: a shortest way.
    fn way(&self, from: &Key, to: &Key) -> Option<Vec<Id>> {
        let mut came: HashMap<&Key, (&Key, [Id; 2])> = HashMap::new();
        let mut queue = std::collections::VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for (next, events) in self.after.get(at).into_iter().flatten() {
                if next == from || came.contains_key(next) {
                    continue;
                }
                came.insert(next, (at, *events));
                if next == to {
                    return Some(back(&came, from, to));
                }
                queue.push_back(next);
            }
        }
        None
    }
}

/// The events on the way to a thing, from its begin.
fn back(came: &HashMap<&Key, (&Key, [Id; 2])>, from: &Key, to: &Key) -> Vec<Id> {
    let (mut at, mut pairs) = (to, Vec::new());
    while at != from
        && let Some((before, events)) = came.get(at)
    {
        pairs.push(*events);
        at = before;
    }
    pairs.into_iter().rev().flatten().collect()
}

impl Form for Order {
    fn see(&mut self, mut hit: Hit, tally: &mut Tally) {
        let Some(thing) = hit.thing.take() else { return };
        let id = hit.id;
        let stack = self.holders.stack(&hit, tally);
        if hit.roles & FROM != 0 {
            let held = stack.clone();
            self.holders.begin(hit, thing.clone(), tally);
            for held in held {
                self.pair(held, (thing.clone(), id), tally);
            }
            return;
        }
        if let Some(at) = stack.iter().rposition(|(held, _)| *held == thing) {
            stack.remove(at);
        }
        if stack.is_empty() {
            self.holders.stacks.remove(&hit.key);
        }
    }

    fn end(self: Box<Self>, _end: u64, _tally: &mut Tally) {}
}
