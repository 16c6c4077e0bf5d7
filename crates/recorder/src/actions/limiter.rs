// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How many hits of a trigger actions are taken for.

use klogger_log::trigger::Limit;
use std::collections::VecDeque;

/// At most [`Limit::hits`] in any [`Limit::per_ns`], by the times of the hits.
pub struct Limiter {
    limit: Limit,
    /// The latest that were admitted.
    admitted: VecDeque<u64>,
}

impl Limiter {
    pub fn new(limit: Limit) -> Limiter {
        Limiter { limit, admitted: VecDeque::new() }
    }

    /// Whether actions are due for a hit at this time. Times of different CPUs may come out of
    /// order, by less than it takes to drain a ring.
    pub fn admit(&mut self, time_ns: u64) -> bool {
        let full = self.admitted.len() >= self.limit.hits as usize;
        if full {
            let oldest = self.admitted.front().copied().unwrap_or_default();
            if time_ns.saturating_sub(oldest) < self.limit.per_ns {
                return false;
            }
            self.admitted.pop_front();
        }
        self.admitted.push_back(time_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(hits: u32, per_ns: u64, times: &[u64]) -> Vec<u64> {
        let mut limiter = Limiter::new(Limit { hits, per_ns });
        times.iter().copied().filter(|t| limiter.admit(*t)).collect()
    }

    #[test]
    fn a_hit_a_second() {
        assert_eq!(admitted(1, 100, &[5, 6, 104, 105, 106, 204, 205]), [5, 105, 205]);
    }

    #[test]
    fn so_many_in_any_span() {
        assert_eq!(
            admitted(3, 100, &[0, 10, 20, 30, 99, 100, 101, 110, 111]),
            [0, 10, 20, 100, 110]
        );
    }

    #[test]
    fn an_earlier_time_is_within_the_span() {
        assert_eq!(admitted(1, 100, &[500, 450, 599, 600]), [500, 600]);
    }
}
