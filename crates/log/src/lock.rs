// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The lock that a recorder holds on its log. It tells a reader that the log is still being
//! written.
//!
//! The lock belongs to the open file and not to a process, so it ends with the recorder in all
//! cases. Every process that may read the file can query it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Whether a log is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    Yes,
    No,
    /// The file is on another machine, whose locks may not be visible here.
    Unknown,
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    // SAFETY: a struct of numbers; 0 means from the beginning, to the end, and no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Takes the lock, for as long as the file is open.
pub fn lock(file: &File) -> io::Result<()> {
    let lock = whole_file(libc::F_WRLCK);
    // SAFETY: the call reads `lock`, which outlives it.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether another open file has the lock.
pub fn writing(file: &File) -> Writing {
    let mut lock = whole_file(libc::F_RDLCK);
    // SAFETY: the call writes into `lock`, which outlives it.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    match code {
        0 if lock.l_type != libc::F_UNLCK as libc::c_short => Writing::Yes,
        0 if !is_remote(file) => Writing::No,
        _ => Writing::Unknown,
    }
}

/// Whether the file may be on another machine, such as the host of this guest.
fn is_remote(file: &File) -> bool {
    const NFS: u64 = 0x6969;
    const CIFS: u64 = 0xff53_4d42;
    const SMB2: u64 = 0xfe53_4d42;
    const PLAN9: u64 = 0x0102_1997;
    const CEPH: u64 = 0x00c3_6400;
    const AFS: u64 = 0x5346_414f;
    const FUSE: u64 = 0x6573_5546;
    // SAFETY: a struct of numbers.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes into `about`, which outlives it.
    let code = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) };
    code == 0
        && [NFS, CIFS, SMB2, PLAN9, CEPH, AFS, FUSE].contains(&(about.f_type as u64 & 0xffff_ffff))
}
