// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The segments of a recording in a folder, one after the other, while it runs.

use super::input::Growing;
use crate::failure::Failure;
use crate::messages;
use klogger_log::error::Error;
use klogger_log::segments;
use klogger_os::files::is_there;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long the next segment may take to appear when one has been completed.
const PATIENCE: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(20);

pub struct Segments {
    folder: PathBuf,
    number: u32,
    pub current: Growing,
    /// The current segment was being written when it was opened, so another one may come.
    runs: bool,
}

impl Segments {
    pub fn open(folder: &Path) -> Result<Segments, Failure> {
        let Some(number) = next(folder, 0)? else {
            let error = Error::NoSegments;
            let what = format!("{}: {error}", folder.display());
            return Err(Failure::new(what).help(error.remedy()));
        };
        let current = Growing::open(&path(folder, number))?;
        let runs = current.is_being_written();
        Ok(Segments { folder: folder.into(), number, current, runs })
    }

    /// Opens the next segment; false if there is none, and no recorder that may go on with one: on
    /// a full disk it tries to again and again.
    pub fn go_on(&mut self, recorder_runs: &dyn Fn() -> bool) -> Result<bool, Failure> {
        let (before, end) = (self.number, Instant::now() + PATIENCE);
        loop {
            match next(&self.folder, self.number)? {
                None if !self.runs => return Ok(false),
                None if Instant::now() >= end && !recorder_runs() => return Ok(false),
                None => thread::sleep(WAIT),
                Some(number) => {
                    self.number = number;
                    match Growing::open(&path(&self.folder, number)) {
                        Ok(file) => {
                            (self.runs, self.current) = (file.is_being_written(), file);
                            say_removed(number - before - 1);
                            return Ok(true);
                        }
                        // It was removed just now, to make room for others.
                        Err(_)
                            if is_there(&path(&self.folder, number)).is_ok_and(|there| !there) => {}
                        Err(e) => return Err(e),
                    }
                }
            }
        }
    }
}

fn say_removed(count: u32) {
    if count > 0 {
        messages::note(&format!("{count} segments were removed before they could be read"));
    }
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(segments::file_name(number))
}

/// The lowest number of a segment above this one.
fn next(folder: &Path, after: u32) -> Result<Option<u32>, Failure> {
    let cannot = |e| Failure::new(format!("{}: {e}", folder.display()));
    let numbers = segments::numbers(folder).map_err(cannot)?;
    Ok(numbers.into_iter().find(|number| *number > after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn segments_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Segments::open(folder.path()).is_err());
        for name in ["segment-000009.klog", "segment-000010.klog", "segment-x.klog", "other"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let mut segments = Segments::open(folder.path()).unwrap();
        assert_eq!(segments.number, 9);
        assert!(segments.go_on(&|| false).unwrap());
        assert_eq!(segments.number, 10);
        assert!(!segments.go_on(&|| false).unwrap());
        fs::write(path(folder.path(), 1_000_000), "").unwrap();
        assert!(segments.go_on(&|| false).unwrap());
        assert_eq!(segments.number, 1_000_000);
    }
}
