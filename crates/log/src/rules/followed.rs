// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `every A(x) is followed by B(x)`, and `every B(x) is preceded by A(x)`.

use super::key::{Key, Table};
use super::tally::{Id, Tally, Why};
use super::{Form, Hit, Limits};
use std::collections::{HashMap, VecDeque};

/// The bits of the terms, in the order of [`klogger_schema::model::Form::terms`].
const FIRST: u64 = 1;

/// Those `A(x)` that nothing has followed yet.
pub struct Followed {
    within: Option<u64>,
    by_end: bool,
    /// In the order of time, which is that of their ends.
    open: VecDeque<Open>,
    /// Of each x with open ones: how many these are, and when it was last followed.
    followed: HashMap<Key, (usize, u64)>,
    /// Counts events.
    now: u64,
    most: usize,
}

struct Open {
    id: Id,
    key: Key,
    at: u64,
}

impl Followed {
    pub fn new(within: Option<u64>, by_end: bool, limits: Limits) -> Followed {
        Followed {
            within,
            by_end,
            open: VecDeque::new(),
            followed: HashMap::new(),
            now: 0,
            most: limits.keys.max(2),
        }
    }

    fn deadline(&self, id: Id) -> u64 {
        self.within.map_or(u64::MAX, |within| id.time.saturating_add(within))
    }

    /// Takes the oldest one out; whether it was followed.
    fn take(&mut self) -> Option<(Id, bool)> {
        let Open { id, key, at } = self.open.pop_front()?;
        let (count, last) = self.followed.get_mut(&key)?;
        let was = *last > at;
        *count -= 1;
        if *count == 0 {
            self.followed.remove(&key);
        }
        Some((id, was))
    }

    /// Decides those whose time is over before `time`.
    fn expire(&mut self, time: u64, tally: &mut Tally) {
        while let Some(open) = self.open.front() {
            let deadline = self.deadline(open.id);
            if deadline >= time {
                return;
            }
            match self.take() {
                Some((_, true)) => tally.kept(),
                Some((id, false)) => {
                    tally.judge(Why::NotFollowed, (id.time, deadline), vec![id]);
                }
                None => {}
            }
        }
    }

    /// Makes room: first of those that were followed, then of the oldest.
    #[cold]
    fn make_room(&mut self, tally: &mut Tally) {
        let all = std::mem::take(&mut self.open);
        let followed = std::mem::take(&mut self.followed);
        for open in all {
            match followed.get(&open.key) {
                Some((_, last)) if *last > open.at => tally.kept(),
                Some(_) | None => self.push(open),
            }
        }
        while self.open.len() > self.most / 2 {
            if let Some((_, false)) = self.take() {
                tally.undecided.given_up += 1;
            }
        }
    }

    fn push(&mut self, open: Open) {
        self.followed.entry(open.key.clone()).or_default().0 += 1;
        self.open.push_back(open);
    }
}

impl Form for Followed {
    fn see(&mut self, hit: Hit, tally: &mut Tally) {
        self.expire(hit.id.time, tally);
        self.now += 1;
        // `then`, and `unless`.
        if hit.roles & !FIRST != 0 {
            if let Some((_, last)) = self.followed.get_mut(&hit.key) {
                *last = self.now;
            }
            return;
        }
        if self.open.len() >= self.most {
            self.make_room(tally);
        }
        self.push(Open { id: hit.id, key: hit.key, at: self.now });
    }

    fn end(mut self: Box<Self>, end: u64, tally: &mut Tally) {
        self.expire(end, tally);
        while let Some((id, followed)) = self.take() {
            match (followed, self.by_end) {
                (true, _) => tally.kept(),
                (false, true) => tally.judge(Why::NotFollowed, (id.time, end), vec![id]),
                (false, false) => tally.undecided.end += 1,
            }
        }
    }
}

/// The last `A(x)` of each x.
pub struct Preceded {
    within: Option<u64>,
    from_start: bool,
    start: u64,
    last: Table<u64>,
}

impl Preceded {
    pub fn new(within: Option<u64>, from_start: bool, start: u64, limits: Limits) -> Preceded {
        Preceded { within, from_start, start, last: Table::new(limits.keys) }
    }
}

impl Form for Preceded {
    fn see(&mut self, hit: Hit, tally: &mut Tally) {
        let now = hit.id.time;
        if hit.roles & FIRST == 0 {
            return self.last.insert(hit.key, now, now);
        }
        let from = self.within.map_or(0, |within| now.saturating_sub(within));
        if self.last.get_mut(&hit.key).is_some_and(|before| *before >= from) {
            tally.kept();
        } else if from < self.start && !self.from_start {
            tally.undecided.start += 1;
        } else if self.last.given_up > 0 && from <= self.last.given_up_ns {
            tally.undecided.given_up += 1;
        } else {
            tally.judge(Why::NotPreceded, (from.max(self.start.min(now)), now), vec![hit.id]);
        }
    }

    fn end(self: Box<Self>, _end: u64, _tally: &mut Tally) {}
}
