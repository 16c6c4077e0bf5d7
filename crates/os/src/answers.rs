// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether the file system of a file answers. One whose server has stopped (FUSE, NFS) lets whoever
//! asks it hang, perhaps beyond any signal. So a child asks first, which may be left behind.

use crate::asleep::{self, LOOK, Sleep};
use crate::mounts::Mounts;
use std::ffi::{CString, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is said of a file that could not be looked at.
pub const SILENT: &str = "its file system does not answer";

/// The same as [`super::files::open_below`], of which the file system must answer before.
pub fn open_below(root: &File, path: &Path) -> io::Result<File> {
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    ask(root.as_raw_fd(), path, resolve)?;
    super::files::open_below(root, path)
}

/// Opens what a link of /proc leads to, for reading.
pub fn open_link(path: &Path) -> io::Result<File> {
    ask(libc::AT_FDCWD, path, 0)?;
    File::open(path)
}

/// Whether the file system of a path answers; whether there is such a file, is not asked.
///
/// # Errors
/// `TimedOut`, and what prevents that it is asked.
pub fn check(path: &Path) -> io::Result<()> {
    ask(libc::AT_FDCWD, path, 0)
}

/// The same for the folder of a file that will be made, and for what is there.
pub fn check_output(path: &Path) -> io::Result<()> {
    check(super::files::folder_of(path)).and_then(|()| check(path))
}

/// The same as [`std::fs::metadata`].
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    check(path)?;
    std::fs::metadata(path)
}

/// The names in a folder. As [`open_below`].
pub fn names_below(root: &File, path: &Path) -> io::Result<Vec<OsString>> {
    let folder = open_below(root, path)?;
    let entries = std::fs::read_dir(super::files::path_of(&folder))?;
    entries.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// The error is `TimedOut`. Whether the file is there, its opening says.
fn ask(root: RawFd, path: &Path, resolve: u64) -> io::Result<()> {
    let mount = remote_mount(root, path);
    if mount.as_deref().is_some_and(was_silent) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, SILENT));
    }
    let asked = ask_child(root, path, resolve);
    if let (Err(e), Some(mount)) = (&asked, mount)
        && e.kind() == io::ErrorKind::TimedOut
    {
        silent().push((mount, Instant::now()));
    }
    asked
}

/// Mounts that did not answer, and when: many files of one need only one deadline.
static SILENT_MOUNTS: Mutex<Vec<(PathBuf, Instant)>> = Mutex::new(Vec::new());
/// After this time a mount is asked again.
const AGAIN: Duration = Duration::from_secs(60);

fn silent() -> MutexGuard<'static, Vec<(PathBuf, Instant)>> {
    let mut all = SILENT_MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, since)| since.elapsed() < AGAIN);
    all
}

fn was_silent(mount: &Path) -> bool {
    silent().iter().any(|(other, _)| other == mount)
}

/// Where the file system of a path is mounted, by the names alone, if it has a server. On others,
/// only a link can lead to one that does not answer, which says nothing about themselves.
fn remote_mount(root: RawFd, path: &Path) -> Option<PathBuf> {
    const KINDS: [&str; 9] =
        ["fuse", "nfs", "cifs", "smb3", "9p", "ceph", "autofs", "lustre", "virtiofs"];
    let below = match root {
        libc::AT_FDCWD => std::env::current_dir().ok()?,
        root => std::fs::read_link(format!("/proc/self/fd/{root}")).ok()?,
    };
    let path = match root {
        libc::AT_FDCWD => below.join(path),
        _ => below.join(path.strip_prefix("/").unwrap_or(path)),
    };
    let mounts = Mounts::read();
    let mount = mounts.around(&path)?;
    KINDS.iter().any(|kind| mount.kind.starts_with(kind)).then(|| mount.at.clone())
}

fn ask_child(root: RawFd, path: &Path, resolve: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zeros are a valid value. The child only makes system calls, and ends.
    let child = unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        (how.flags, how.resolve) = (libc::O_PATH as u64, resolve);
        let child = super::check(libc::fork())?;
        if child == 0 {
            look(root, &path, &how);
            libc::_exit(0);
        }
        child
    };
    let ended = super::pidfd_open(child.cast_unsigned()).inspect_err(|_| {
        // SAFETY: no pointers that are used.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    })?;
    let mut sleep = Sleep::of_pid(child.cast_unsigned());
    let is_over = || super::poll_readable(&[ended.as_fd()], LOOK).is_ok_and(|r| r == [true]);
    let mut silent = false;
    while !silent && !is_over() {
        silent = sleep.is_too_long();
    }
    let mut status = 0;
    // SAFETY: a pointer to a number. One that hangs ends when it can.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, if silent { libc::WNOHANG } else { 0 });
    }
    if silent {
        asleep::leave(child);
    } else if !libc::WIFEXITED(status) {
        return Err(io::Error::other("the process that looks for it was killed"));
    }
    match silent {
        true => Err(io::Error::new(io::ErrorKind::TimedOut, SILENT)),
        false => Ok(()),
    }
}

/// In the child: asks for the file, and for the beginning of a regular one. It holds nothing else
/// open, because it may live on when this process has ended.
///
/// # Safety
/// `how` is valid, and `path` lives on.
unsafe fn look(root: RawFd, path: &CString, how: &libc::open_how) {
    // SAFETY: as above; the kernel writes no more than the structure.
    unsafe {
        let root = if root < 0 { root } else { libc::dup2(root, 0) };
        libc::syscall(libc::SYS_close_range, u32::from(root == 0), u32::MAX, 0);
        let size = size_of_val(how);
        let found = libc::syscall(libc::SYS_openat2, root, path.as_ptr(), how, size) as libc::c_int;
        let mut about: libc::statx = std::mem::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
        libc::statx(found, c"".as_ptr(), flags, libc::STATX_BASIC_STATS, &mut about);
        if u32::from(about.stx_mode) & libc::S_IFMT == libc::S_IFREG {
            let mut first = [0u8; 64];
            let mut how = *how;
            how.flags = (libc::O_RDONLY | libc::O_NONBLOCK) as u64;
            let opened = libc::syscall(libc::SYS_openat2, root, path.as_ptr(), &how, size);
            libc::read(opened as libc::c_int, first.as_mut_ptr().cast(), first.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::look_at;

    #[test]
    fn a_silent_mount_is_asked_once() {
        let mount = Path::new("/klogger-test/mount");
        assert!(!was_silent(mount));
        silent().push((mount.into(), Instant::now()));
        assert!(was_silent(mount) && !was_silent(Path::new("/klogger-test")));
        // /proc has no server.
        assert_eq!(remote_mount(libc::AT_FDCWD, Path::new("/proc/self/status")), None);
    }

    #[test]
    fn files_that_answer_are_opened() {
        let root = look_at("/").unwrap();
        assert!(open_below(&root, Path::new("/etc/passwd")).is_ok());
        let gone = open_below(&root, Path::new("/nonexistent/x")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(open_link(Path::new("/proc/self/exe")).is_ok());
    }
}
