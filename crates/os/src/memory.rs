// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Private memory with the type of shared memory.

use super::Mapping;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd};

/// Memory of zeros; pages that are never touched are not allocated.
pub fn zeros(length: usize) -> io::Result<Mapping> {
    // SAFETY: the name is valid; the descriptor is new and ours.
    let file = unsafe {
        let fd = super::check(libc::memfd_create(c"klogger".as_ptr(), libc::MFD_CLOEXEC))?;
        File::from_raw_fd(fd)
    };
    file.set_len(length as u64)?;
    Mapping::sparse(file.as_fd(), length)
}

/// The page size of this machine.
pub fn page_size() -> usize {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize
}
