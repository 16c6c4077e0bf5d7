// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Standard output: what is put in the place of a terminal.

use crate::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// From now on, standard output goes to this file.
pub fn redirect_output(to: impl AsFd) -> io::Result<()> {
    // SAFETY: both descriptors are open.
    unsafe { check(libc::dup2(to.as_fd().as_raw_fd(), libc::STDOUT_FILENO)) }?;
    Ok(())
}

/// Closes standard output, which ends what reads it. Nothing can be written afterwards.
pub fn close_output() {
    // SAFETY: this process does not write to it any more, as the caller promises.
    unsafe { libc::close(libc::STDOUT_FILENO) };
}

/// Ignores Ctrl-C, which is meant for another process on the same terminal.
pub fn ignore_interrupts() {
    // SAFETY: no handler is involved.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
