// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The clock of a log that comes in, as far as it can be told from what has come: it is not later
//! than the log's own clock, which may be that of another machine.

use std::time::Instant;

pub struct Clock {
    /// The latest time of an event.
    latest_ns: u64,
    /// When something came last.
    came: Instant,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { latest_ns: 0, came: Instant::now() }
    }

    /// Something has come.
    pub fn came(&mut self, at: Instant) {
        self.came = at;
    }

    /// An event of this time has come.
    pub fn saw(&mut self, time_ns: u64) {
        self.latest_ns = self.latest_ns.max(time_ns);
    }

    /// While nothing comes, time goes on. It does not while much comes late.
    pub fn now(&self, at: Instant) -> u64 {
        let silent = at.saturating_duration_since(self.came).as_nanos();
        self.latest_ns.saturating_add(u64::try_from(silent).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_goes_on_while_nothing_comes() {
        let mut clock = Clock::new();
        let begin = Instant::now();
        clock.came(begin);
        clock.saw(1_000);
        clock.saw(500);
        assert_eq!(clock.now(begin + Duration::from_nanos(7)), 1_007);
        clock.came(begin + Duration::from_secs(5));
        assert_eq!(clock.now(begin + Duration::from_secs(5)), 1_000);
        clock.saw(u64::MAX);
        assert_eq!(clock.now(begin + Duration::from_secs(9)), u64::MAX);
    }
}
