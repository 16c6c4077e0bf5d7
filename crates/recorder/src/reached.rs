// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How far the log of a running recording is complete, from what those say who hand over events.

use klogger_os as os;
use klogger_ring::block::{Followed, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shortest time between two statements of progress.
const EVERY: Duration = Duration::from_millis(100);
/// A program that has just been found may have logged so long ago.
const MARGIN_NS: u64 = 20_000_000;

#[derive(Default)]
pub struct Reached {
    followed: Arc<Followed>,
    /// Before which time each source has handed over everything.
    sources: BTreeMap<Source, u64>,
    /// What was said last, and when.
    said_ns: u64,
    said: Option<Instant>,
}

impl Reached {
    /// `sources`: those that are there from the beginning.
    pub fn new(followed: Arc<Followed>, sources: Vec<Source>) -> Reached {
        let sources = sources.into_iter().map(|source| (source, 0)).collect();
        Reached { followed, sources, ..Reached::default() }
    }

    /// A source has handed over everything before this time. Returns the time before which all of
    /// them have, if the log should say so now.
    pub fn until(&mut self, source: Source, time_ns: u64) -> Option<u64> {
        self.sources.insert(source, time_ns);
        let all_ns = self.sources.values().min().copied()?;
        // Without programs there is nothing to hand over.
        let all_ns = all_ns.min(os::monotonic_ns().saturating_sub(MARGIN_NS));
        let new = all_ns > self.said_ns;
        let due = self.said.is_none_or(|at| at.elapsed() >= EVERY);
        if !(new && due && self.followed.is_in_log()) {
            return None;
        }
        (self.said_ns, self.said) = (all_ns, Some(Instant::now()));
        Some(all_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_last_source_has_reached() {
        let followed: Arc<Followed> = Arc::default();
        let sources = vec![Source::Cpu(0), Source::Cpu(1), Source::Programs];
        let mut reached = Reached::new(followed.clone(), sources);
        assert_eq!(reached.until(Source::Cpu(0), 10), None);
        assert_eq!(reached.until(Source::Programs, u64::MAX), None);
        assert_eq!(reached.until(Source::Cpu(1), 5), None, "nobody follows");
        followed.in_log(true);
        assert_eq!(reached.until(Source::Cpu(1), 7), Some(7));
        reached.said = None;
        assert_eq!(reached.until(Source::Cpu(1), 7), None, "nothing new");
        assert_eq!(reached.until(Source::Cpu(1), 20), Some(10));
        assert_eq!(reached.until(Source::Cpu(0), 30), None, "too soon");
    }
}
