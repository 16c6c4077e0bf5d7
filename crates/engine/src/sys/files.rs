// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files of a folder that is held open, so that nobody can put another in its place.

use super::check;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;

/// Opens a file of `folder` for reading and writing. Follows no link, and waits for nobody.
pub fn open_in(folder: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the name is valid and ends with a NUL; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::openat(folder.as_raw_fd(), name.as_ptr(), flags))?;
        Ok(File::from_raw_fd(fd))
    }
}

/// Removes a file from `folder`.
pub fn remove_in(folder: &File, name: &OsStr) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name is valid and ends with a NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Lets this process open as many files as it may. Processes that it has started before keep their limit.
pub fn raise_limit() {
    // SAFETY: the structure is valid for both calls. Where they fail, the old limit stays.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

pub fn effective_uid() -> u32 {
    // SAFETY: no pointers; it cannot fail.
    unsafe { libc::geteuid() }
}

/// 64 bits that nobody can guess.
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: bytes is as long as is said. So few bytes come whole, or not at all.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == 8 { u64::from_ne_bytes(bytes) } else { super::monotonic_ns() }
}
