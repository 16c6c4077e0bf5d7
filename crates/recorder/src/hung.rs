// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether writing the log hangs, because its file system does not answer. The thread that writes
//! cannot say so, and at the end of a recording all others wait for it: a thread of its own looks.

use klogger_os as os;
use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A call that a thread is in.
#[derive(Clone)]
struct Call {
    /// ns of CLOCK_MONOTONIC.
    since_ns: u64,
    /// `None`: the log's.
    file: Option<PathBuf>,
}

static CALL: Mutex<Option<Call>> = Mutex::new(None);

fn call() -> MutexGuard<'static, Option<Call>> {
    CALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A single call that takes longer hangs.
const TOO_LONG: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(500);

/// Makes a call for the log's file, which may hang. Of several at a time, the first one is watched.
pub fn watched<T>(work: impl FnOnce() -> T) -> T {
    watched_for(None, work)
}

fn watched_for<T>(file: Option<&Path>, work: impl FnOnce() -> T) -> T {
    let mut present = call();
    let is_first = present.is_none();
    if is_first {
        *present = Some(Call { since_ns: os::monotonic_ns(), file: file.map(Path::to_path_buf) });
    }
    drop(present);
    let done = work();
    if is_first {
        *call() = None;
    }
    done
}

/// A file besides the log, such as that of the lines of `klogger trace`.
pub struct Watched<W> {
    pub path: PathBuf,
    pub file: W,
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        watched_for(Some(&self.path), || self.file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        watched_for(Some(&self.path), || self.file.flush())
    }
}

/// How long a call has taken, if that is too long.
fn hangs_for(since_ns: u64, now_ns: u64) -> Option<Duration> {
    let taken = Duration::from_nanos(now_ns.saturating_sub(since_ns));
    (taken >= TOO_LONG).then_some(taken)
}

/// Looks until it is dropped.
pub struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells once that writing `log` hangs; from then on the second signal ends the process,
    /// whatever its threads wait for. Without a thread for it, nothing is told.
    pub fn start(log: &Path, tell: fn(&str)) -> Watch {
        let (end, ended) = channel::<()>();
        let log = log.to_path_buf();
        let run = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(present) = call().clone() else { continue };
                let now = os::monotonic_ns();
                let Some(taken) = hangs_for(present.since_ns, now) else { continue };
                os::end_by_second_signal();
                tell(&words(present.file.as_deref().unwrap_or(&log), taken));
                return;
            }
        };
        let thread = os::threads::start("klogger/hung", run).ok();
        Watch { end: Some(end), thread }
    }
}

fn words(file: &Path, taken: Duration) -> String {
    format!(
        "writing {} has taken {} s: its file system does not answer; a second Ctrl-C (or \
         SIGTERM) ends klogger without the rest, which 'klogger rescue {}' then finds in the rings",
        file.display(),
        taken.as_secs(),
        std::process::id()
    )
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_takes_long_hangs() {
        let second = 1_000_000_000;
        assert_eq!(hangs_for(98 * second, 100 * second), None);
        assert_eq!(hangs_for(100 * second, 98 * second), None);
        assert_eq!(hangs_for(93 * second, 100 * second), Some(Duration::from_secs(7)));
        let said = words(Path::new("x.klog"), Duration::from_secs(7));
        assert!(said.starts_with("writing x.klog has taken 7 s: its file system"), "{said}");
    }

    #[test]
    fn the_first_call_is_watched_until_it_returns() {
        let mut lines = Watched { path: "lines".into(), file: Vec::new() };
        let file = || call().clone().map(|present| present.file);
        assert_eq!(watched_for(Some(Path::new("a")), || watched(file)), Some(Some("a".into())));
        assert_eq!(file(), None);
        lines.write_all(b"x").and_then(|()| lines.flush()).unwrap();
        assert_eq!((file(), lines.file), (None, b"x".to_vec()));
    }
}
