// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files of a folder that is held open, so that nobody can put another in its place.

use super::check;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file of `folder` that is looked at, and not opened: no link is followed, and a device hears
/// nothing of it.
pub fn look_in(folder: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name is valid and ends with a NUL; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::openat(folder.as_raw_fd(), name.as_ptr(), flags))?;
        Ok(File::from_raw_fd(fd))
    }
}

/// Opens for reading and writing what [`look_in`] has looked at: this very file, whatever stands
/// under its name by now.
pub fn open_seen(seen: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", seen.as_raw_fd());
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens a folder by the path that it has below `root`: that is the end of every `..`, and no link
/// is followed.
pub fn open_folder_below(root: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zeros are a valid value; the path ends with a NUL; the descriptor is new and ours.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
        how.resolve =
            libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
        let (fd, size) = (root.as_raw_fd(), size_of_val(&how));
        let fd =
            check(libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), &how, size) as libc::c_int)?;
        Ok(File::from_raw_fd(fd))
    }
}

/// The root of a process, as the kernel has it.
pub fn root_of(pid: u32) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    File::options().read(true).custom_flags(flags).open(format!("/proc/{pid}/root"))
}

/// Whether this process may make files in a folder.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a NUL.
    let code =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) };
    check(code).map(drop)
}

/// Removes a file from `folder`.
pub fn remove_in(folder: &File, name: &OsStr) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name is valid and ends with a NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// As many files as strangers' programs may need beside one's own; root takes as many.
const FILES: libc::rlim_t = 64 << 10;

/// Lets this process open as many files as it may. Processes that it has started before keep their
/// limit.
pub fn raise_limit() {
    // SAFETY: the structure is valid for both calls. Where they fail, the old limit stays.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            let more = libc::rlimit { rlim_cur: FILES, rlim_max: FILES };
            limit.rlim_cur = limit.rlim_max;
            if limit.rlim_max >= FILES || libc::setrlimit(libc::RLIMIT_NOFILE, &more) != 0 {
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
    }
}

/// Takes away from the files that this process makes from now on what these bits of a mode say.
pub fn withhold(bits: u32) {
    // SAFETY: no pointers; it cannot fail.
    unsafe {
        let before = libc::umask(0o077);
        libc::umask(before | bits as libc::mode_t);
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
