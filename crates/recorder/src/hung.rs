// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether writing a file hangs, because its file system does not answer. The thread that writes
//! cannot say so, and at the end of a recording all others wait for it: a thread of its own looks.

use klogger_log::writer::Sink;
use klogger_os::{self as os, SecondEnds};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A call that a thread is in.
#[derive(Clone)]
struct Call {
    number: u64,
    /// ns of CLOCK_MONOTONIC.
    since_ns: u64,
    file: Arc<Path>,
}

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

fn calls() -> MutexGuard<'static, Vec<Call>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    fn begin(file: Arc<Path>) -> Call {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let call = Call { number, since_ns: os::monotonic_ns(), file };
        calls().push(call.clone());
        call
    }

    fn end(&self) {
        calls().retain(|call| call.number != self.number);
    }
}

/// A single call that takes longer hangs.
const TOO_LONG: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(500);

/// Makes a call for a file, which may hang.
pub fn watched<T>(file: impl Into<Arc<Path>>, work: impl FnOnce() -> T) -> T {
    let call = Call::begin(file.into());
    let done = work();
    call.end();
    done
}

/// A file that is written: the log, or another such as the lines of `klogger trace`. It is closed
/// when this is dropped, which may hang as well.
pub struct Watched<W> {
    path: Arc<Path>,
    /// `None`: it is closed.
    file: Option<W>,
}

impl<W> Watched<W> {
    /// `path`: as it is named in messages.
    pub fn new(path: impl Into<Arc<Path>>, file: W) -> Watched<W> {
        Watched { path: path.into(), file: Some(file) }
    }

    fn call<T>(&mut self, work: impl FnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        watched(self.path.clone(), || work(file))
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call(Write::flush)
    }
}

impl<W: Sink> Sink for Watched<W> {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.call(|file| file.cut(length))
    }
}

impl<W> Drop for Watched<W> {
    fn drop(&mut self) {
        let file = self.file.take();
        watched(self.path.clone(), || drop(file));
    }
}

/// Who writes: what a signal does, and what is not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// A signal ends the recording, and another one the process, whose rings stay.
    #[default]
    Recording,
    /// A signal ends the process. What is rescued stays where it is until the disk has it.
    Rescue,
}

/// What the user has been told.
#[derive(Default)]
struct Told {
    by: Writes,
    /// Files whose calls hang, and since when.
    files: Vec<(Arc<Path>, u64)>,
    /// While there are any.
    second_ends: Option<SecondEnds>,
}

impl Told {
    /// What is to be said now. `ending`: a signal has come that ends the recording.
    fn look(&mut self, calls: &[Call], now_ns: u64, ending: bool) -> Vec<String> {
        let too_long = |c: &&Call| now_ns.saturating_sub(c.since_ns) >= TOO_LONG.as_nanos() as u64;
        let hanging: Vec<&Call> = calls.iter().filter(too_long).collect();
        let mut said = Vec::new();
        for call in &hanging {
            if self.files.iter().all(|(file, _)| *file != call.file) {
                said.push(self.by.hangs(&call.file, now_ns.saturating_sub(call.since_ns), ending));
                self.files.push((call.file.clone(), call.since_ns));
            }
        }
        let is_over = |(file, _): &mut (Arc<Path>, u64)| hanging.iter().all(|c| c.file != *file);
        let over: Vec<_> = self.files.extract_if(.., is_over).collect();
        let all = self.files.is_empty();
        let again = |(file, since)| self.by.goes_on(file, now_ns.saturating_sub(since), all);
        said.extend(over.iter().map(|(file, since)| again((file, *since))));
        match all || self.by == Writes::Rescue {
            true => self.second_ends = None,
            false => drop(self.second_ends.get_or_insert_with(SecondEnds::begin)),
        }
        said
    }
}

/// Looks until it is dropped.
pub struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells of each file that writing it hangs, and that it goes on; in between, the second signal
    /// ends the process, whatever its threads wait for. Without a thread for it, nothing is told.
    pub fn start(by: Writes, tell: fn(&str)) -> Watch {
        let (end, ended) = channel::<()>();
        let run = move || {
            let mut told = Told { by, ..Told::default() };
            let mut over = false;
            while !over {
                // The last look is for a call that has returned at the end.
                over = ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
                let present = calls().clone();
                let said = told.look(&present, os::monotonic_ns(), os::asked_to_end());
                said.iter().for_each(|text| tell(text));
            }
        };
        let thread = os::threads::start("klogger/hung", run).ok();
        Watch { end: Some(end), thread }
    }
}

impl Writes {
    fn hangs(self, file: &Path, taken_ns: u64, ending: bool) -> String {
        let (file, seconds) = (file.display(), taken_ns / 1_000_000_000);
        let another = if ending { "another" } else { "a second" };
        let then = match self {
            Writes::Recording => format!(
                "{another} Ctrl-C (or SIGTERM) ends klogger at once, and 'klogger rescue {}' \
                 writes what is still in its rings",
                std::process::id()
            ),
            Writes::Rescue => "Ctrl-C (or SIGTERM) ends klogger, and nothing is lost: another \
                 'klogger rescue' can write it elsewhere (-o FILE)"
                .into(),
        };
        format!("writing {file} has taken {seconds} s: its file system does not answer; {then}")
    }

    fn goes_on(self, file: &Path, taken_ns: u64, all: bool) -> String {
        let (file, seconds) = (file.display(), taken_ns / 1_000_000_000);
        let signals = match self {
            Writes::Recording if all => "; signals do not end klogger at once any more",
            Writes::Recording | Writes::Rescue => "",
        };
        format!("writing {file} goes on after {seconds} s: its file system answers again{signals}")
    }
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

    const SECOND: u64 = 1_000_000_000;

    fn call(file: &str, since_s: u64) -> Call {
        Call { number: 0, since_ns: since_s * SECOND, file: Path::new(file).into() }
    }

    #[test]
    fn each_file_is_told_of_once_and_taken_back_when_its_call_returns() {
        let mut told = Told::default();
        let mut look = |calls: &[Call], now_s: u64, ending| {
            let said = told.look(calls, now_s * SECOND, ending);
            (said, told.second_ends.is_some())
        };
        let log = call("x.klog", 93);
        let calls = [call("lines", 98), log.clone()];
        assert_eq!(look(&calls, 97, false), (vec![], false));
        // Earlier than the call: by another thread's clock.
        assert_eq!(look(&calls, 90, false), (vec![], false));
        let (said, second) = look(&calls, 100, false);
        assert!(said.len() == 1 && second, "{said:?}");
        assert!(said[0].starts_with("writing x.klog has taken 7 s: its file system"), "{said:?}");
        assert!(said[0].contains("a second Ctrl-C (or SIGTERM) ends"), "{said:?}");
        // A signal has come meanwhile; the other hangs as well. Two calls of a file are told once.
        let (said, second) = look(&[calls[0].clone(), log.clone(), call("lines", 97)], 103, true);
        assert!(said.len() == 1 && second, "{said:?}");
        assert!(said[0].contains("lines") && said[0].contains("another Ctrl-C"), "{said:?}");
        let again = "its file system answers again";
        let lines = format!("writing lines goes on after 7 s: {again}");
        assert_eq!(look(&[log, call("lines", 104)], 105, true), (vec![lines], true));
        let (said, second) = look(&[call("x.klog", 105)], 106, true);
        assert_eq!((said.len(), second), (1, false));
        assert!(
            said[0].ends_with(&format!("{again}; signals do not end klogger at once any more"))
        );
        assert_eq!(look(&[call("x.klog", 105)], 111, true).0.len(), 1, "it hangs again");
    }

    #[test]
    fn of_a_rescue_one_signal_is_enough() {
        let mut told = Told { by: Writes::Rescue, ..Told::default() };
        let said = told.look(&[call("x.klog", 93)], 100 * SECOND, false);
        assert!(said.len() == 1 && said[0].contains("; Ctrl-C (or SIGTERM) ends"), "{said:?}");
        assert!(told.second_ends.is_none());
        let said = told.look(&[], 101 * SECOND, false);
        assert!(said.len() == 1 && said[0].ends_with("answers again"), "{said:?}");
    }

    /// How many calls for a file there are.
    fn present(file: &str) -> usize {
        calls().iter().filter(|call| *call.file == *Path::new(file)).count()
    }

    /// Says how many calls there are for a file of this name.
    struct Counting(Arc<AtomicU64>);

    impl Counting {
        fn count(&self) {
            self.0.fetch_add(present("counted") as u64, Ordering::Relaxed);
        }
    }

    impl Write for Counting {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.count();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.count();
            Ok(())
        }
    }

    impl Drop for Counting {
        fn drop(&mut self) {
            self.count();
        }
    }

    #[test]
    fn each_call_is_watched_until_it_returns() {
        let both = || watched(Path::new("b"), || (present("a"), present("b")));
        assert_eq!(watched(Path::new("a"), both), (1, 1));
        assert_eq!((present("a"), present("b")), (0, 0));
        let count = Arc::new(AtomicU64::new(0));
        let mut file = Watched::new(Path::new("counted"), Counting(count.clone()));
        file.write_all(b"x").and_then(|()| file.flush()).unwrap();
        drop(file);
        assert_eq!((count.load(Ordering::Relaxed), present("counted")), (3, 0));
    }
}
