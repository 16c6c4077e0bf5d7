// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `no C(x) between A(x) and B(x)`.

use super::key::Table;
use super::tally::{Id, Tally, Why};
use super::{Form, Hit, Limits};

/// The bits of the terms, in the order of [`klogger_schema::model::Form::terms`].
const BANNED: u64 = 1;
const FROM: u64 = 2;

pub struct Between {
    from_start: bool,
    /// The last A of each x, unless B came after it.
    open: Table<Option<Id>>,
}

impl Between {
    pub fn new(from_start: bool, limits: Limits) -> Between {
        Between { from_start, open: Table::new(limits.keys) }
    }
}

impl Form for Between {
    fn see(&mut self, hit: Hit, tally: &mut Tally) {
        let (now, given_up) = (hit.id.time, self.open.given_up > 0);
        match hit.roles {
            FROM => self.open.insert(hit.key, Some(hit.id), now),
            BANNED => match self.open.get_mut(&hit.key) {
                Some(Some(from)) => {
                    let from = *from;
                    tally.judge(Why::Between, (from.time, now), vec![from, hit.id]);
                }
                Some(None) => tally.kept(),
                None if given_up => tally.undecided.given_up += 1,
                None if self.from_start => tally.kept(),
                None => tally.undecided.start += 1,
            },
            _ => self.open.insert(hit.key, None, now),
        }
    }

    fn end(self: Box<Self>, _end: u64, _tally: &mut Tally) {}
}
