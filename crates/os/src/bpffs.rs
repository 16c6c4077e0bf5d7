// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kernel's file system for BPF objects: an object that is pinned there outlives the process
//! that made it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where it is mounted, if it is.
pub const ROOT: &str = "/sys/fs/bpf";
const MAGIC: u64 = libc::BPF_FS_MAGIC as u64;

/// `libbpf_sys` returns a negative error number.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// Mounts it, unless it is mounted already.
pub fn mount() -> io::Result<()> {
    if is_mounted()? {
        return Ok(());
    }
    let root = CString::new(ROOT)?;
    // SAFETY: all strings are valid and end with a NUL.
    super::check(unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            root.as_ptr(),
            c"bpf".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            c"mode=700".as_ptr().cast(),
        )
    })
    .map(drop)
}

pub fn is_mounted() -> io::Result<bool> {
    let root = CString::new(ROOT)?;
    // SAFETY: the path is valid and ends with a NUL; zeros are a valid value of the structure.
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        super::check(libc::statfs(root.as_ptr(), &mut about))?;
        Ok(about.f_type as u64 == MAGIC)
    }
}

/// Pins a map or a program.
pub fn pin(object: BorrowedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is valid and ends with a NUL.
    check(unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned map or program.
pub fn get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is valid and ends with a NUL; the descriptor is new and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libbpf_sys::bpf_obj_get(path.as_ptr()))?)) }
}
