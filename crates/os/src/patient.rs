// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads files of /proc/PID for which the kernel takes the lock of the process's address space,
//! such as `cmdline` and `maps`.
//!
//! If a thread of the process hangs, this lock may never be free, and whoever reads hangs too. So
//! another thread reads; if it sleeps for too long, it is left behind. It ends when the lock is
//! free, or with this process: its sleep can be killed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, io, ptr, thread};

/// How often its state is looked at, and in how many looks in a row it must sleep.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 10;
/// A process that hung is not asked again within this time.
const AGAIN: Duration = Duration::from_secs(30);

struct Reader {
    tid: u32,
    names: Sender<String>,
    texts: Receiver<io::Result<Vec<u8>>>,
}

thread_local! {
    static READER: RefCell<Option<Reader>> = const { RefCell::new(None) };
    static HUNG: RefCell<HashMap<u32, Instant>> = RefCell::default();
}

/// The text of /proc/PID/NAME; the error is `TimedOut` if the process hangs.
pub fn read(pid: u32, name: &str) -> io::Result<Vec<u8>> {
    if HUNG.with_borrow(|hung| hung.get(&pid).is_some_and(|since| since.elapsed() < AGAIN)) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let reader = match READER.take() {
        Some(reader) => reader,
        None => Reader::start()?,
    };
    let Some(text) = reader.read(format!("/proc/{pid}/{name}")) else {
        HUNG.with_borrow_mut(|hung| hung.insert(pid, Instant::now()));
        return Err(io::ErrorKind::TimedOut.into());
    };
    READER.set(Some(reader));
    text
}

impl Reader {
    fn start() -> io::Result<Reader> {
        let (names, asked) = channel::<String>();
        let (answer, texts) = channel();
        let (tell, told) = channel();
        thread::Builder::new().name("klogger-proc".into()).spawn(move || {
            block_signals();
            // SAFETY: no arguments.
            let _ = tell.send(unsafe { libc::gettid() }.cast_unsigned());
            while let Ok(name) = asked.recv() {
                if answer.send(fs::read(name)).is_err() {
                    break;
                }
            }
        })?;
        let tid = told.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(Reader { tid, names, texts })
    }

    /// `None` if it hangs. On a busy machine it may take long, but then it does not sleep.
    fn read(&self, name: String) -> Option<io::Result<Vec<u8>>> {
        self.names.send(name).ok()?;
        let mut asleep = 0;
        while asleep < LOOKS {
            match self.texts.recv_timeout(LOOK) {
                Ok(text) => return Some(text),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.is_asleep() => asleep += 1,
                Err(RecvTimeoutError::Timeout) => asleep = 0,
            }
        }
        None
    }

    /// Whether it sleeps: uninterruptibly, as those do who wait for the lock, or not, as those who
    /// wait for the server of a file system to bring the page that has the command line.
    fn is_asleep(&self) -> bool {
        let stat = fs::read(format!("/proc/self/task/{}/stat", self.tid)).unwrap_or_default();
        let after_name = stat.rsplit(|c| *c == b')').next();
        after_name.is_some_and(|rest| rest.starts_with(b" D") || rest.starts_with(b" S"))
    }
}

/// Signals are for the threads that wait for them.
fn block_signals() {
    // SAFETY: all bytes may be zero in this structure; the calls write to it and read it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hang_is_read_as_it_is() {
        let me = std::process::id();
        for name in ["cmdline", "maps"] {
            let text = read(me, name).unwrap();
            assert!(!text.is_empty());
        }
        assert_eq!(read(me, "cmdline").unwrap(), fs::read("/proc/self/cmdline").unwrap());
        assert_eq!(read(u32::MAX / 2, "maps").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_process_that_hung_is_left_alone_for_a_while() {
        let me = std::process::id();
        HUNG.with_borrow_mut(|hung| hung.insert(me, Instant::now()));
        assert_eq!(read(me, "cmdline").unwrap_err().kind(), io::ErrorKind::TimedOut);
        HUNG.with_borrow_mut(HashMap::clear);
        assert!(read(me, "cmdline").is_ok());
    }
}
