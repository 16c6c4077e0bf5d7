// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Failed looks at the machine: files of /proc and /sys, and folders, that could not be read. What
//! is not known must not pass for what is not there, so the recorder has all of these in the
//! ledger. They happen in many threads, far from it, and are collected here.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Different things that are remembered; of others only their number.
const MOST: usize = 32;

/// What could not be looked at, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Such as `/proc/kallsyms`, and the error.
    pub what: String,
    /// How often.
    pub count: u64,
    /// ns of CLOCK_MONOTONIC: the first time, and the last one.
    pub between: (u64, u64),
}

/// By what was missed: how often, and between which times.
type All = BTreeMap<String, (u64, (u64, u64))>;

static ALL: Mutex<All> = Mutex::new(BTreeMap::new());

/// Remembers that this could not be looked at.
pub fn note(what: &str, error: &io::Error) {
    let now = super::monotonic_ns();
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut what = format!("{what}: {error}");
    if all.len() >= MOST && !all.contains_key(&what) {
        what = "other files".into();
    }
    let (count, between) = all.entry(what).or_insert((0, (now, now)));
    *count += 1;
    between.1 = now;
}

/// The result, if there is one; otherwise that is remembered.
pub fn noting<T>(what: &str, found: io::Result<T>) -> Option<T> {
    found.map_err(|e| note(what, &e)).ok()
}

/// The same for something of a process or a folder that may be gone, which is no failure. `what`
/// has no number of a process: there may be many.
pub fn noting_unless_gone<T>(what: &str, found: io::Result<T>) -> Option<T> {
    match found {
        Err(e) if is_gone(&e) => None,
        found => noting(what, found),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// All since the last call.
pub fn take() -> Vec<Missed> {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    let missed = |(what, (count, between))| Missed { what, count, between };
    all.into_iter().map(missed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_remembered_and_what_is_gone_is_not() {
        let of = |what: &str| std::fs::read(what);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        for _ in 0..2 {
            assert!(noting_unless_gone("a test", of(path)).is_none());
        }
        assert!(noting_unless_gone("gone", of("/proc/4294967295/stat")).is_none());
        assert!(noting("there", of("/proc/self/stat")).is_some());
        let found = take();
        let mine: Vec<_> = found.iter().filter(|m| m.what.starts_with("a test: ")).collect();
        assert_eq!((mine.len(), mine[0].count), (1, 2));
        assert!(mine[0].between.0 <= mine[0].between.1);
        assert!(!found.iter().any(|m| m.what.starts_with("gone") || m.what.starts_with("there")));
        (0..2 * MOST).for_each(|n| note(&format!("one of many {n}"), &io::Error::other("x")));
        assert!(take().len() <= MOST + 1);
    }
}
