// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Futexes shared between processes, by which programs wake the recorder.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The largest number of futexes in one call.
pub const WAIT_MAX: usize = 128;

/// `struct futex_waitv` of linux/futex.h.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// A futex of 32 bits, not private to this process.
const FUTEX2_SIZE_U32: u32 = 2;

/// Waits until one of `words` is woken; returns at once if one no longer has the value given with
/// it. An error is one of the call itself (no such system call, memory of a word unmapped); a
/// wake-up, timeout or signal is no error.
pub fn wait(words: &[(&AtomicU32, u32)], timeout: Duration) -> io::Result<()> {
    let waiters: Vec<Waiter> = words
        .iter()
        .take(WAIT_MAX)
        .map(|(word, value)| Waiter {
            value: (*value).into(),
            address: word.as_ptr() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        })
        .collect();
    let end = super::monotonic_ns() + timeout.as_nanos() as u64;
    let end = libc::timespec {
        tv_sec: (end / 1_000_000_000) as i64,
        tv_nsec: (end % 1_000_000_000) as i64,
    };
    // SAFETY: both structures are valid and as long as is said; the kernel checks the addresses in
    // them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &end,
            libc::CLOCK_MONOTONIC,
        )
    };
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if result >= 0 => Ok(()),
        Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) => Ok(()),
        _ => Err(error),
    }
}

/// Wakes all threads that wait for `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid; no other pointers.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}
