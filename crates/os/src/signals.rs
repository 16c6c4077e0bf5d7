// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Signals: those that end a recording or ask it for a dump, as a file descriptor, and what others
//! do to us and to the command.

use crate::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// While it lives, signals that would end the calling thread's process wait, so that it can put
/// away what it has laid out. Processes that it starts hear them at once.
pub struct Uninterrupted(libc::sigset_t);

impl Uninterrupted {
    pub fn begin() -> Uninterrupted {
        // SAFETY: both sets are valid.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].iter().for_each(|s| {
                libc::sigaddset(&mut set, *s);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Uninterrupted(before)
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    pub number: libc::c_int,
    /// A key on the terminal, which reaches all processes of the foreground group alike.
    pub from_terminal: bool,
}

/// Where the handler leaves what has arrived: the end of a pipe, of which there is one in a
/// process.
static ARRIVED: AtomicI32 = AtomicI32::new(-1);

/// Signals that end a recording, or make it dump, as a file descriptor. A handler, unlike a
/// signalfd, does not depend on which threads there are and what they block.
pub struct Signals {
    arrived: OwnedFd,
}

impl Signals {
    /// Of `signals`, a hang-up that is ignored already (by nohup) stays ignored.
    pub fn new(signals: &[libc::c_int]) -> io::Result<Signals> {
        let mut ends = [-1; 2];
        // SAFETY: ends has room for two; the descriptors are new and ours. The write end stays open
        // for the handler.
        let arrived = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            OwnedFd::from_raw_fd(ends[0])
        };
        ARRIVED.store(ends[1], Ordering::Release);
        let handler =
            note_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        for s in signals {
            // SAFETY: both structures are valid; the handler does only what a handler may.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                check(libc::sigaction(*s, ptr::null(), &mut action))?;
                if *s == libc::SIGHUP && action.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                action = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                check(libc::sigaction(*s, &action, ptr::null_mut()))?;
            }
        }
        Ok(Signals { arrived })
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut bytes = [0u8; 2];
        // SAFETY: bytes is as long as is said. The handler writes two at a time, which a pipe does
        // not tear.
        let n =
            unsafe { libc::read(self.arrived.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        (n == 2).then_some(Signal { number: bytes[0].into(), from_terminal: bytes[1] != 0 })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

extern "C" fn note_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid info; write is async-signal-safe, and errno is put back. A
    // full pipe holds thousands of signals that nobody has looked at yet.
    unsafe {
        let errno = *libc::__errno_location();
        let bytes = [signal as u8, u8::from((*info).si_code == libc::SI_KERNEL)];
        libc::write(ARRIVED.load(Ordering::Acquire), bytes.as_ptr().cast(), bytes.len());
        *libc::__errno_location() = errno;
    }
}

/// A log that may not grow any more (RLIMIT_FSIZE) is as one on a full disk: an error that is
/// reported, not a signal that ends us. The command that is recorded has the signal as usual
/// ([`become_ordinary`]).
pub fn survive_file_limits() {
    // SAFETY: no pointers but the action that is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// In a child between fork and exec: signals do what they do to an ordinary program, and `fd` is
/// closed.
pub fn become_ordinary(signals: &[libc::c_int], fd: RawFd) {
    // SAFETY: the calls are async-signal-safe; the descriptor is this child's copy, which nothing
    // uses.
    unsafe {
        for s in signals {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*s, ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::signal(*s, libc::SIG_DFL);
            }
        }
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        libc::close(fd);
    }
}
