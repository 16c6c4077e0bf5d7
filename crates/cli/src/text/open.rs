// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens a log, and prints what is missing from it.

use crate::failure::Failure;
use klogger_log::damage::Damage;
use klogger_log::ledger::{Key, Severity};
use klogger_log::reader::Reader;
use klogger_log::text::escaped;
use std::path::Path;

pub fn open(path: &Path) -> Result<Reader, Failure> {
    Reader::open(path)
        .map_err(|e| Failure::new(format!("{}: {e}", path.display())).help(e.remedy()))
}

/// Lines of warnings at most; further ones are counted.
const WARNINGS_MAX: usize = 10;

/// Prints the damage of a log on stderr, and how many events are lost according to its ledger.
pub fn warn(reader: &Reader, later: &[Damage]) {
    let found: Vec<_> = reader.damage().iter().chain(later).cloned().collect();
    warn_of(reader, &found);
}

/// The same for damage that was collected before.
pub fn warn_of(reader: &Reader, found: &[Damage]) {
    for damage in found.iter().take(WARNINGS_MAX) {
        eprintln!("klogger: warning: {}", escaped(&damage.to_string()));
    }
    if found.len() > WARNINGS_MAX {
        eprintln!("klogger: warning: and {} more; see 'klogger info'", found.len() - WARNINGS_MAX);
    }
    let read =
        [Key::BlockCorrupt, Key::FileCut, Key::SerialGap, Key::TimeDisorder].map(|k| k.info().name);
    let ledger = reader.ledger(&[]);
    let losses = ledger
        .entries
        .iter()
        .filter(|e| e.severity >= Severity::Loss && !read.contains(&e.key.as_str()));
    let lost: u64 = losses.fold(0, |sum, e| sum.saturating_add(e.count));
    if lost > 0 {
        eprintln!(
            "klogger: warning: {lost} events were lost while recording; 'klogger info' says which, \
             and why"
        );
    }
}
