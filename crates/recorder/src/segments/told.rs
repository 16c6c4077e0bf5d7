// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the ledgers of earlier segments say. Counters of engines are of the whole recording; the
//! ledger of a segment has what they have counted since.

use klogger_log::ledger::Entry;
use std::collections::HashMap;

#[derive(Default)]
pub struct Told(HashMap<String, u64>);

impl Told {
    /// An earlier segment has this entry.
    pub fn add(&mut self, entry: &Entry) {
        if entry.count > 0 {
            let told = self.0.entry(entry.cause()).or_insert(0);
            *told = told.saturating_add(entry.count);
        }
    }

    /// Of entries of the whole recording up to now, what is new since `since_ns`. Those without a
    /// count, such as conditions, hold for each segment.
    pub fn rest(&mut self, entries: Vec<Entry>, since_ns: u64) -> Vec<Entry> {
        let mut before: HashMap<String, u64> = HashMap::new();
        let mut rest = Vec::new();
        for mut entry in entries {
            if entry.count > 0 {
                let cause = entry.cause();
                let told = self.0.entry(cause.clone()).or_insert(0);
                let before = before.entry(cause).or_insert(*told);
                let old = (*before).min(entry.count);
                *before -= old;
                *told = told.saturating_add(entry.count - old);
                if old == entry.count {
                    continue;
                }
                if old > 0 {
                    entry.recount(entry.count - old);
                    let to_ns = entry.to_ns.unwrap_or(u64::MAX);
                    entry.from_ns = entry.from_ns.map(|from| from.max(since_ns).min(to_ns));
                }
            }
            rest.push(entry);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::ledger::Key;

    fn hits(place: &str, count: u64, span: (u64, u64)) -> Entry {
        let entry = Entry::new(Key::ProbeMissed).count(count).between(span.0, span.1);
        entry.detail(&format!("{count} hits of {place}"))
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let mut told = Told::default();
        let condition = Entry::new(Key::Excluded).event("A");
        let first = vec![hits("a", 3, (0, 10)), condition.clone()];
        assert_eq!(told.rest(first.clone(), 0), first);
        let second = vec![hits("a", 5, (0, 20)), hits("b", 7, (0, 20)), condition.clone()];
        let expected = vec![hits("a", 2, (10, 20)), hits("b", 7, (0, 20)), condition];
        assert_eq!(told.rest(second, 10), expected);
        let last = vec![hits("a", 5, (0, 30)), hits("b", 7, (0, 30))];
        assert_eq!(told.rest(last, 20), []);
    }

    #[test]
    fn several_spans_of_one_cause_are_told_in_their_order() {
        let mut told = Told::default();
        told.rest(vec![hits("a", 2, (0, 5)), hits("a", 2, (7, 9))], 0);
        let now = vec![hits("a", 2, (0, 5)), hits("a", 4, (7, 12)), hits("a", 1, (13, 14))];
        assert_eq!(told.rest(now, 10), [hits("a", 2, (10, 12)), hits("a", 1, (13, 14))]);
    }
}
