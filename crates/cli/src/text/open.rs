// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens a log, and prints what is missing from it.

use crate::failure::Failure;
use crate::messages;
use klogger_log::damage::Damage;
use klogger_log::ledger::{Key, Severity};
use klogger_log::reader::Reader;
use klogger_log::text::push_seconds;
use std::path::Path;

/// Says so at once if the log is still being written: what follows may be cut off by `head`.
pub fn open(path: &Path) -> Result<Reader, Failure> {
    let reader = Reader::open(path)
        .map_err(|e| Failure::new(format!("{}: {e}", path.display())).help(e.remedy()))?;
    if reader.is_being_written() {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        messages::note(&format!("{name} is still being written: {}", so_far(&reader)));
    }
    Ok(reader)
}

/// How far a log goes that is being written.
fn so_far(reader: &Reader) -> String {
    let (start, end) = reader.span();
    let Some(_) = reader.times() else { return "it has no events yet".into() };
    let mut text = b"its events up to now end at ".to_vec();
    push_seconds(&mut text, (end - start) as i64, 0);
    // Digits and a point.
    format!("{} s", String::from_utf8_lossy(&text))
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
    let found: Vec<_> = found.iter().filter(|d| d.key != Key::BeingWritten).collect();
    for damage in found.iter().take(WARNINGS_MAX) {
        let more = match damage.key {
            Key::RecorderKilled => "; 'klogger rescue' may find its last events",
            _ => "",
        };
        messages::print(&format!("klogger: warning: {damage}{more}"));
    }
    if found.len() > WARNINGS_MAX {
        let more = found.len() - WARNINGS_MAX;
        messages::print(&format!("klogger: warning: and {more} more; see 'klogger info'"));
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
        messages::print(&format!(
            "klogger: warning: {lost} events were lost while recording; 'klogger info' says which, \
             and why"
        ));
    }
}
