// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens the kernel's tracefs, whether it is mounted or not.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr;

const ROOT: &str = "/sys/kernel/tracing";
/// include/uapi/linux/mount.h
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

pub struct TraceFs {
    root: PathBuf,
    /// A private mount, which is not in the tree of files and ends when this is dropped.
    _mount: Option<OwnedFd>,
}

impl TraceFs {
    pub fn find() -> io::Result<TraceFs> {
        let root = PathBuf::from(ROOT);
        match root.join("events").metadata() {
            Ok(_) => return Ok(TraceFs { root, _mount: None }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mount = detached()?;
        let root = format!("/proc/self/fd/{}", mount.as_raw_fd()).into();
        Ok(TraceFs { root, _mount: Some(mount) })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
}

fn detached() -> io::Result<OwnedFd> {
    let new = |result: libc::c_long| {
        let fd = RawFd::try_from(result)
            .ok()
            .filter(|fd| *fd >= 0)
            .ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new and ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let close = 1 as libc::c_uint;
    // SAFETY: the name ends with a NUL; the flag is FSOPEN_CLOEXEC.
    let context: OwnedFd =
        new(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), close) })?;
    let (fd, null) = (context.as_raw_fd(), ptr::null::<libc::c_char>());
    // SAFETY: this command takes neither key nor value.
    let made = unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, null, null, 0) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers only; the first flag is FSMOUNT_CLOEXEC.
    new(unsafe { libc::syscall(libc::SYS_fsmount, fd, close, 0 as libc::c_uint) })
}
