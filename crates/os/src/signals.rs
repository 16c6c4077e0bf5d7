// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Signals: those that end a recording or request a dump, as a file descriptor; and the treatment
//! of others in the recorder and its command.

use crate::check;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// While this exists, signals that would end the process are blocked in the calling thread, so that
/// it can remove its temporary files. Processes that it starts receive them at once.
pub struct Uninterrupted(libc::sigset_t);

impl Uninterrupted {
    pub fn begin() -> Uninterrupted {
        // SAFETY: both sets are valid.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            ENDING.iter().for_each(|s| {
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
    /// A key on the terminal, which signals all processes of the foreground group.
    pub from_terminal: bool,
}

/// The end of a pipe into which the handler writes; there is one in a process.
static ARRIVED: AtomicI32 = AtomicI32::new(-1);

/// How many of those that end the process have arrived, and how many [`SecondEnds`] there are.
static ASKED_TO_END: AtomicU32 = AtomicU32::new(0);
static SECOND_ENDS: AtomicU32 = AtomicU32::new(0);
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Signals that end a recording or request a dump, as a file descriptor. Unlike a signalfd, a
/// handler does not depend on which threads exist and which signals they block.
pub struct Signals {
    /// Never closed: a signal that arrives later would otherwise end the process by SIGPIPE.
    arrived: ManuallyDrop<OwnedFd>,
}

impl Signals {
    /// If one of `signals` is a hang-up that is already ignored (by nohup), it stays ignored.
    pub fn new(signals: &[libc::c_int]) -> io::Result<Signals> {
        let mut ends = [-1; 2];
        // SAFETY: ends has room for two; the descriptors are new and ours. The write end stays open
        // for the handler.
        let arrived = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            ManuallyDrop::new(OwnedFd::from_raw_fd(ends[0]))
        };
        ARRIVED.store(ends[1], Ordering::Release);
        let handler =
            note_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        let stays = |s: &libc::c_int| *s == libc::SIGHUP && is_ignored(*s);
        for s in signals.iter().filter(|s| !stays(s)) {
            // SAFETY: the structure is valid; the handler is async-signal-safe.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
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
        // SAFETY: the length of bytes is passed. The handler writes two bytes at a time, which a
        // pipe keeps together.
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
    // SAFETY: the kernel passes a valid info; write is async-signal-safe, and errno is restored. A
    // full pipe contains thousands of unread signals, so another one may be lost.
    unsafe {
        let errno = *libc::__errno_location();
        let bytes = [signal as u8, u8::from((*info).si_code == libc::SI_KERNEL)];
        libc::write(ARRIVED.load(Ordering::Acquire), bytes.as_ptr().cast(), bytes.len());
        if ENDING.contains(&signal)
            && ASKED_TO_END.fetch_add(1, Ordering::AcqRel) > 0
            && SECOND_ENDS.load(Ordering::Acquire) > 0
        {
            // It is blocked until this handler returns.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// While one exists, the second signal of those that a recorder handles ends the process, whatever
/// its threads wait for. The first may have come before.
pub struct SecondEnds(());

impl SecondEnds {
    pub fn begin() -> SecondEnds {
        SECOND_ENDS.fetch_add(1, Ordering::AcqRel);
        SecondEnds(())
    }
}

impl Drop for SecondEnds {
    fn drop(&mut self) {
        SECOND_ENDS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the first of these signals has come.
pub fn asked_to_end() -> bool {
    times_asked_to_end() > 0
}

/// How many of these signals have come.
pub fn times_asked_to_end() -> u32 {
    ASKED_TO_END.load(Ordering::Acquire)
}

/// From here on the signals that a recorder handles end the process again.
pub fn end_by_signals() {
    for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
        // SAFETY: no pointers; no handler of ours is needed any more.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes writing beyond RLIMIT_FSIZE an error, like a full disk, instead of a signal that ends the
/// process. The recorded command gets the signal as usual ([`become_ordinary`]).
pub fn survive_file_limits() {
    // SAFETY: no pointers but the action that is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Signals that whoever started this process ignored, as `nohup` and supervisors do: bit N - 1 of
/// signal N. Noted before Rust's own start, which ignores SIGPIPE.
static IGNORED_AT_START: AtomicU64 = AtomicU64::new(0);

/// The C library runs what is in this section before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_IGNORED: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    let ignored = (1..=LAST).filter(|s| is_ignored(*s)).map(bit).fold(0, |all, one| all | one);
    IGNORED_AT_START.store(ignored, Ordering::Relaxed);
}

/// Of x86 and ARM, with those of real time.
const LAST: libc::c_int = 64;

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: the structure is valid; a number that is no signal makes the call fail.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The numbers of the signals that whoever started this process ignored.
pub fn ignored_at_start() -> Vec<libc::c_int> {
    let ignored = IGNORED_AT_START.load(Ordering::Relaxed);
    (1..=LAST).filter(|s| ignored & bit(*s) != 0).collect()
}

/// For a child between fork and exec: gives each signal the treatment that it had when this process
/// was started, restores the limits of open files, and closes `fd`. `also`: numbers of signals that
/// are ignored as well.
pub fn become_ordinary(also: &[libc::c_int], fd: RawFd) {
    let ignored = IGNORED_AT_START.load(Ordering::Relaxed);
    super::files::restore_limit();
    // SAFETY: the calls are async-signal-safe, and fail for what is no signal, or keeps its
    // treatment; the descriptor is this child's copy, which is used nowhere else.
    unsafe {
        for s in 1..=LAST {
            let is_ignored = ignored & bit(s) != 0 || also.contains(&s);
            libc::signal(s, if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        libc::close(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_after_the_last_reader_is_harmless() {
        // SAFETY: no pointers. What Rust's tests ignore is what ends klogger.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        {
            Signals::new(&[libc::SIGUSR1]).unwrap();
        }
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}
