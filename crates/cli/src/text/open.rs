// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens a log, and prints what is missing from it.

use crate::failure::Failure;
use crate::messages;
use klogger_log::damage::Damage;
use klogger_log::error::Error;
use klogger_log::ledger::{Key, Ledger, Severity};
use klogger_log::reader::Reader;
use klogger_log::segments;
use klogger_log::text::push_seconds;
use klogger_os::machine;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// The name of standard input.
pub const STDIN: &str = "-";
/// Bytes of a log that are read from a pipe at most, by commands that read a log in any order.
const STDIN_MAX: u64 = 4 << 30;

/// Says so at once if the log is still being written: what follows may be cut off by `head`.
pub fn open(path: &Path) -> Result<Reader, Failure> {
    let reader = quietly(path)?;
    if reader.is_being_written() {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        messages::note(&format!("{name} is still being written: {}", so_far(&reader)));
    }
    Ok(reader)
}

/// The same, without a word.
pub fn quietly(path: &Path) -> Result<Reader, Failure> {
    let failure = |e: Error| Failure::new(format!("{}: {e}", path.display())).help(e.remedy());
    match path.as_os_str() == STDIN {
        true => Reader::of(stdin_file()?).map_err(failure),
        false => Reader::open(path).map_err(failure),
    }
}

/// A log whose file is open; `path` is for messages.
pub fn of(file: File, path: &Path) -> Result<Reader, Failure> {
    Reader::of(file).map_err(|e| Failure::new(format!("{}: {e}", path.display())).help(e.remedy()))
}

/// What is written from now on has no more readers than the log.
pub fn write_as_private_as(log: &Path) {
    let newest = segments::numbers(log).ok().and_then(|all| all.last().copied());
    match newest {
        Some(number) => machine::write_as_private_as(&log.join(segments::file_name(number))),
        None => machine::write_as_private_as(log),
    }
}

/// Whether standard input is a file, which can be read in any order.
pub fn is_stdin_a_file() -> bool {
    stdin().and_then(|file| file.metadata()).is_ok_and(|found| found.is_file())
}

fn stdin() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Standard input as a file; if it is none, its contents in a temporary one, which has no name.
fn stdin_file() -> Result<File, Failure> {
    let cannot = |e| Failure::new(format!("cannot read the log from standard input: {e}"));
    let input = stdin().map_err(cannot)?;
    if is_stdin_a_file() {
        return Ok(input);
    }
    let mut copy = tempfile::tempfile().map_err(cannot)?;
    let copied = io::copy(&mut input.take(STDIN_MAX + 1), &mut copy).map_err(cannot)?;
    match copied > STDIN_MAX {
        true => Err(Failure::new("the log on standard input is larger than 4 GiB")
            .help("write it to a file first, and read that")),
        false => Ok(copy),
    }
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
    warn_of_damage(found);
    warn_of_losses(lost(&reader.ledger(&[])));
}

/// Prints damage.
pub fn warn_of_damage(found: &[Damage]) {
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
}

/// How many events are lost according to a ledger; not those that were lost by damage.
pub fn lost(ledger: &Ledger) -> u64 {
    let read =
        [Key::BlockCorrupt, Key::FileCut, Key::SerialGap, Key::TimeDisorder].map(|k| k.info().name);
    let losses = ledger
        .entries
        .iter()
        .filter(|e| e.severity >= Severity::Loss && !read.contains(&e.key.as_str()));
    losses.fold(0, |sum, e| sum.saturating_add(e.count))
}

/// So many events were lost, which are not among the damage.
pub fn warn_of_losses(lost: u64) {
    let were = match lost {
        0 => return,
        1 => "event was",
        _ => "events were",
    };
    messages::print(&format!(
        "klogger: warning: {lost} {were} lost while recording; 'klogger info' says which, and why"
    ));
}
