// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Notifications of new files in folders.

use super::check;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub struct Inotify(OwnedFd);

/// A file was created in a watched folder.
pub struct Event {
    /// The folder, by the number from [`Inotify::watch`]. -1: notifications were lost, so all
    /// folders must be read.
    pub watch: i32,
    pub name: Vec<u8>,
}

impl Inotify {
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: no pointers; the descriptor is new and ours.
        unsafe {
            let fd = check(libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK))?;
            Ok(Inotify(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Watches a folder for new names.
    pub fn watch(&self, folder: &Path) -> io::Result<i32> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        let mask = libc::IN_MOVED_TO | libc::IN_CREATE | libc::IN_ONLYDIR;
        // SAFETY: the path is valid and ends with a NUL.
        check(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), mask) })
    }

    /// Ends a watch.
    pub fn forget(&self, watch: i32) {
        // SAFETY: no pointers. If the folder is gone, so is the watch.
        unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), watch) };
    }

    /// All notifications since the last call.
    pub fn read(&self) -> Vec<Event> {
        let mut buffer = [0u8; 16 << 10];
        let mut events = Vec::new();
        loop {
            // SAFETY: the buffer is as long as is said.
            let n =
                unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
            if n <= 0 {
                return events;
            }
            parse(&buffer[..n as usize], &mut events);
        }
    }
}

/// `struct inotify_event` is wd, mask, cookie, length (32 bits each), then the name, padded with
/// NULs.
fn parse(mut bytes: &[u8], events: &mut Vec<Event>) {
    const HEAD: usize = 16;
    while bytes.len() >= HEAD {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (watch, mask, length) = (word(0) as i32, word(4), word(12) as usize);
        let end = (HEAD + length).min(bytes.len());
        let name = bytes[HEAD..end].iter().copied().take_while(|c| *c != 0).collect();
        events
            .push(Event { watch: if mask & libc::IN_Q_OVERFLOW != 0 { -1 } else { watch }, name });
        bytes = &bytes[end..];
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
