// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads and unloads kernel modules, and makes ioctl requests to devices.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Loads a module from its file.
pub fn load(file: &File) -> io::Result<()> {
    // SAFETY: the parameters are a valid string, an empty one; the descriptor is open.
    check(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) }
        as libc::c_int)
    .map(drop)
}

/// Unloads a module that is not in use.
pub fn unload(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name is valid and ends with a NUL.
    check(unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) }
        as libc::c_int)
    .map(drop)
}

/// A structure of ioctl requests: plain numbers, for which all bytes are valid values.
///
/// # Safety
///
/// It must be `repr(C)`, without padding, and of the size in its request's number.
pub unsafe trait Plain {}

/// Makes a request that reads and fills in `argument`.
pub fn request<T: Plain>(device: BorrowedFd, number: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the request's number contains the size of the argument, which Plain guarantees to be
    // right.
    check(unsafe { libc::ioctl(device.as_raw_fd(), number as libc::Ioctl, argument as *mut T) })
        .map(drop)
}

/// Makes a request without an argument.
pub fn command(device: BorrowedFd, number: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::ioctl(device.as_raw_fd(), number as libc::Ioctl, 0) }).map(drop)
}
