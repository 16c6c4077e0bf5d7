// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Access to files through a descriptor of their folder, so that they cannot be replaced meanwhile.

use super::{Error, check};
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    pub fn of(found: &Metadata) -> FileId {
        FileId { device: found.dev(), inode: found.ino() }
    }

    /// Of an open file, from what the kernel knows of it already: the server of its file system is
    /// not asked, which may not answer.
    pub fn known(file: &File) -> io::Result<FileId> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(file, "", flags, StatxFlags::INO)?;
        let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(FileId { device, inode: found.stx_ino })
    }

    /// Whether this is an open file. Of file systems without a device of their own (major number 0:
    /// btrfs, overlayfs), `stat()` and the kernel's records have different ones.
    pub fn is(self, found: FileId) -> bool {
        let nameless = |device| libc::major(device) == 0;
        self.inode == found.inode
            && (self.device == found.device || nameless(self.device) || nameless(found.device))
    }
}

/// What was looked for; `None`: it is not there. If the look itself has failed, nobody knows.
pub fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// Whether a path leads to something.
pub fn is_there(path: &Path) -> io::Result<bool> {
    unless_absent(path.metadata()).map(|found| found.is_some())
}

/// The number of the mount through which a file was opened, which the kernel knows without asking
/// the file system.
pub fn mount_number(file: &File) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, "", flags, StatxFlags::MNT_ID)?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_known.then_some(found.stx_mnt_id).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// A descriptor of a file of `folder` that allows to inspect but not to read it (O_PATH): links are
/// not followed, and opening a device has no effect on it.
pub fn look_in(folder: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name is valid and ends with a NUL; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::openat(folder.as_raw_fd(), name.as_ptr(), flags))?;
        Ok(File::from_raw_fd(fd))
    }
}

/// A descriptor of a file that allows to inspect but not to read it. The last link is followed.
pub fn look_at(path: impl AsRef<Path>) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path)
}

/// Opens for reading and writing exactly the file that [`look_in`] has found, even if its name
/// refers to another one by now.
pub fn open_seen(seen: &File) -> io::Result<File> {
    reopen(seen, File::options().read(true).write(true))
}

/// Opens the file of a descriptor that only allows to inspect it. Opening a FIFO does not wait.
fn reopen(seen: &File, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(libc::O_NONBLOCK).open(path_of(seen))
}

/// A path of what a descriptor is open on, for calls that take no descriptor.
pub(crate) fn path_of(seen: &File) -> String {
    format!("/proc/self/fd/{}", seen.as_raw_fd())
}

/// Opens a file for reading, if it is a regular one. What a path refers to may be chosen by other
/// users: a FIFO would wait for a writer, and opening a device can have effects.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_seen_regular(&look_at(path)?)
}

/// The same for a file that can only be inspected ([`look_in`], [`look_at`]).
pub fn open_seen_regular(seen: &File) -> io::Result<File> {
    if !seen.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    reopen(seen, File::options().read(true))
}

/// Opens a regular file of a folder for reading, if only one of these users can have written it.
/// Any user can make a file, a link or a FIFO of any name in a folder such as /tmp. The error says
/// why it is not opened; `NotFound`: it is not there.
pub fn open_of(folder: &File, name: &OsStr, users: &[u32]) -> io::Result<File> {
    let seen = look_in(folder, name)?;
    let about = seen.metadata()?;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !about.is_file() {
        return refused("it is not a regular file".into());
    }
    if !users.contains(&about.uid()) {
        return refused(format!("it belongs to user {}, who is not trusted with it", about.uid()));
    }
    // A group with the number of its user is that user's own.
    let by_group = about.mode() & 0o020 != 0 && about.gid() != about.uid() && about.gid() != 0;
    if about.mode() & 0o002 != 0 || by_group {
        return refused("others can write it".into());
    }
    // Where links to files of others are allowed (fs.protected_hardlinks).
    if about.nlink() != 1 {
        return refused("it has several names (hard links)".into());
    }
    open_seen_regular(&seen)
}

/// openat2: `resolve` limits where the path may lead. Without `root`, a path that is not absolute
/// begins in the current folder.
fn open_how(
    root: Option<&File>,
    path: &Path,
    flags: libc::c_int,
    resolve: u64,
) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let root = root.map_or(libc::AT_FDCWD, |root| root.as_raw_fd());
    // SAFETY: zeros are a valid value; the path ends with a NUL; the descriptor is new and ours.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (flags | libc::O_CLOEXEC) as u64;
        how.resolve = resolve;
        let size = size_of_val(&how);
        let fd = libc::syscall(libc::SYS_openat2, root, path.as_ptr(), &how, size);
        Ok(File::from_raw_fd(check(fd as libc::c_int)?))
    }
}

/// Opens a folder by its path below `root`: `..` does not leave `root`, and links are not followed.
pub fn open_folder_below(root: &File, path: &Path) -> io::Result<File> {
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    open_how(Some(root), path, libc::O_RDONLY | libc::O_DIRECTORY, resolve)
}

/// Opens a file to read it, by its path below `root`: neither `..` nor links leave `root`. What is
/// not a regular file can only be inspected: opening a device has no effect on it.
pub fn open_below(root: &File, path: &Path) -> io::Result<File> {
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    let seen = open_how(Some(root), path, libc::O_PATH, resolve)?;
    match seen.metadata()?.is_file() {
        true => reopen(&seen, File::options().read(true)),
        false => Ok(seen),
    }
}

/// Opens a file that the kernel makes when it is read, by a path that comes from a schema. Links
/// out of /proc and /sys lead nowhere: the file must be one of these file systems, or of a control
/// group.
pub fn open_kernel_text(path: &str) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = open_how(None, Path::new(path), flags, libc::RESOLVE_NO_MAGICLINKS)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // SAFETY: zeros are a valid value, which the call fills in.
    let kind = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        check(libc::fstatfs(file.as_raw_fd(), &mut about))?;
        about.f_type as u64
    };
    match kind as i64 {
        // Texts have the size of a page. What is binary may be registers of a device.
        SYSFS_MAGIC if about.len() != super::memory::page_size() as u64 => {
            Err(io::Error::other("it is not a text"))
        }
        libc::PROC_SUPER_MAGIC | SYSFS_MAGIC | CGROUP_MAGIC | CGROUP2_MAGIC => Ok(file),
        _ => Err(io::Error::other("it is not a file of /proc or /sys")),
    }
}

/// include/uapi/linux/magic.h
const SYSFS_MAGIC: i64 = 0x6265_6572;
const CGROUP_MAGIC: i64 = 0x27_e0eb;
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// If the path is that of a descriptor of this process, programs that it starts do not get it: they
/// would keep a pipe open whose reader waits for its end.
pub fn keep_from_commands(path: &Path) {
    let folder = path.parent().and_then(Path::to_str);
    let number = path.file_name().and_then(OsStr::to_str).and_then(|name| name.parse().ok());
    if let (Some("/dev/fd" | "/proc/self/fd"), Some(number @ 3..)) = (folder, number) {
        super::do_not_pass_on(number);
    }
}

/// A file by the number of a descriptor that this process has inherited for itself alone. Programs
/// that it starts do not get it.
pub(crate) fn inherited_file(number: RawFd) -> io::Result<File> {
    super::do_not_pass_on(number);
    // SAFETY: it is open, and nothing else in this process knows of it.
    unsafe {
        check(libc::fcntl(number, libc::F_GETFD))?;
        Ok(File::from_raw_fd(number))
    }
}

/// Lets a command inherit these descriptors, and no other program that is started meanwhile.
pub fn pass_on(command: &mut Command, descriptors: Vec<RawFd>) {
    let pass = move || {
        for number in &descriptors {
            // SAFETY: no pointers.
            check(unsafe { libc::fcntl(*number, libc::F_SETFD, 0) })?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(pass) };
}

/// The root directory of a process.
pub fn root_of(pid: u32) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    File::options().read(true).custom_flags(flags).open(format!("/proc/{pid}/root"))
}

/// klogger's folder for what may be made again; `None`: neither HOME nor XDG_CACHE_HOME is set.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Some(base?.join("klogger"))
}

/// The folder of a file: that of a bare name is the current one.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether this process may create files in a folder.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a NUL.
    let code =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) };
    check(code).map(drop)
}

/// A file that cannot be made, or written.
pub fn cannot_write(path: &Path, error: io::Error) -> Error {
    let other = "choose another file with -o FILE";
    let (why, help) = match error.kind() {
        io::ErrorKind::PermissionDenied => ("permission denied".into(), other.into()),
        io::ErrorKind::NotFound => {
            let folder = folder_of(path).display();
            let remedy = match folder_of(path).is_symlink() {
                true => format!("{folder} is a link to nothing; {other}"),
                false => format!("make it with 'mkdir -p {folder}', or {other}"),
            };
            (format!("there is no directory {folder}"), remedy)
        }
        io::ErrorKind::StorageFull => {
            ("there is no space left".into(), format!("free some space, or {other}"))
        }
        _ => (error.to_string(), other.into()),
    };
    Error::new(format!("cannot write {}: {why}", path.display())).help(help)
}

/// Whether it is /dev/null, by whatever name.
pub fn discards(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == libc::makedev(1, 3)
}

/// Bytes that this process can still write to new files in the file system of a path.
pub fn room(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    // Some have no limit of bytes, or of files, and say 0 of 0.
    Ok(match (found.f_files != 0 && found.f_favail == 0, found.f_blocks) {
        (true, _) => 0,
        (false, 0) => u64::MAX,
        (false, _) => found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Removes a file from `folder`.
pub fn remove_in(folder: &File, name: &OsStr) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name is valid and ends with a NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// As many files as other users' programs may need, besides those for our own.
const FILES: libc::rlim_t = 64 << 10;

/// The limits of open files that this process was started with; 0, 0: they are unchanged.
static SOFT_AT_START: AtomicU64 = AtomicU64::new(0);
static HARD_AT_START: AtomicU64 = AtomicU64::new(0);

/// Raises the limit of open files as far as possible. Processes that were started before keep their
/// limit; the recorded command gets the old one.
pub fn raise_limit() {
    // SAFETY: the structure is valid for both calls. If they fail, the old limit stays.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            if HARD_AT_START.load(Ordering::Relaxed) == 0 {
                SOFT_AT_START.store(limit.rlim_cur, Ordering::Relaxed);
                HARD_AT_START.store(limit.rlim_max, Ordering::Relaxed);
            }
            let more = libc::rlimit { rlim_cur: FILES, rlim_max: FILES };
            limit.rlim_cur = limit.rlim_max;
            if limit.rlim_max >= FILES || libc::setrlimit(libc::RLIMIT_NOFILE, &more) != 0 {
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
    }
}

/// For a child between fork and exec: the limits of open files that this process was started with.
pub(crate) fn restore_limit() {
    let [soft, hard] = [&SOFT_AT_START, &HARD_AT_START].map(|limit| limit.load(Ordering::Relaxed));
    if hard > 0 {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the structure is valid. Limits may always be lowered.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// How many files this process may have open.
pub fn limit() -> u64 {
    // SAFETY: the structure is valid.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        match libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) {
            0 => limit.rlim_cur,
            _ => u64::MAX,
        }
    }
}

/// Removes these bits from the mode of files that this process creates from now on.
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

pub fn effective_gid() -> u32 {
    // SAFETY: no pointers; it cannot fail.
    unsafe { libc::getegid() }
}

/// 64 random bits from the kernel, which cannot be predicted.
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the length of bytes is passed. So few bytes are returned completely or not at all.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == 8 { u64::from_ne_bytes(bytes) } else { super::monotonic_ns() }
}
