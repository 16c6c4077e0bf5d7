// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Maps a program's file. The program can truncate it at any time, and then an access beyond its
//! end raises SIGBUS. The handler here maps zeros in place of the missing page and marks the file
//! as broken.

use klogger_os::Mapping;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// How many files can be mapped at a time.
pub const MAPS_MAX: usize = 8192;

/// What the signal handler reads: where a file is mapped, and whether an access has failed. Free if
/// `length` is 0.
struct Range {
    taken: AtomicBool,
    start: AtomicUsize,
    length: AtomicUsize,
    broken: AtomicBool,
}

static RANGES: [Range; MAPS_MAX] = [const {
    Range {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; MAPS_MAX];
static PAGE: AtomicUsize = AtomicUsize::new(4096);
static HANDLER: Once = Once::new();

/// An entry of the table, held while a file is mapped.
pub struct Guard(usize);

impl Guard {
    fn new() -> io::Result<Guard> {
        HANDLER.call_once(install);
        let free = |range: &Range| {
            range.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = RANGES.iter().position(free);
        place
            .map(Guard)
            .ok_or_else(|| io::Error::other(format!("{MAPS_MAX} programs are recorded already")))
    }

    fn cover(&self, start: usize, length: usize) {
        let range = &RANGES[self.0];
        range.broken.store(false, Ordering::Relaxed);
        range.start.store(start, Ordering::Relaxed);
        // Pairs with the handler's load.
        range.length.store(length, Ordering::Release);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        RANGES[self.0].length.store(0, Ordering::Release);
        RANGES[self.0].taken.store(false, Ordering::Release);
    }
}

fn install() {
    let handler =
        on_bus_error as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: the structure is valid; the handler is async-signal-safe.
    unsafe {
        PAGE.store(libc::sysconf(libc::_SC_PAGESIZE).max(4096) as usize, Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

/// Maps a page of zeros in place of a missing one. A fault outside of the table is raised again,
/// with the default handler.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid info. mmap and signal are plain system calls, and errno is
    // restored. The page is in a mapping of the table, whose contents are untrusted anyway.
    unsafe {
        let errno = *libc::__errno_location();
        let address = (*info).si_addr() as usize;
        let page = PAGE.load(Ordering::Relaxed);
        let hit = RANGES.iter().find(|r| {
            let length = r.length.load(Ordering::Acquire);
            address.wrapping_sub(r.start.load(Ordering::Relaxed)) < length
        });
        let put = |range: &Range| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = (address & !(page - 1)) as *mut libc::c_void;
            range.broken.store(true, Ordering::Release);
            libc::mmap(at, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                != libc::MAP_FAILED
        };
        if !hit.is_some_and(put) {
            libc::signal(signal, libc::SIG_DFL);
        }
        *libc::__errno_location() = errno;
    }
}

/// The whole of a program's file, mapped.
pub struct SharedFile {
    pub mapping: Arc<Mapping>,
    guard: Guard,
}

impl SharedFile {
    /// `length` is a multiple of 4096.
    pub fn new(file: &File, length: usize) -> io::Result<SharedFile> {
        SharedFile::of(Mapping::sparse(file.as_fd(), length)?, length)
    }

    /// The same, but the file is left as it is, whatever is written.
    pub fn copy(file: &File, length: usize) -> io::Result<SharedFile> {
        SharedFile::of(Mapping::sparse_copy(file.as_fd(), length)?, length)
    }

    fn of(mapping: Mapping, length: usize) -> io::Result<SharedFile> {
        let (guard, mapping) = (Guard::new()?, Arc::new(mapping));
        guard.cover(mapping.at(0, length) as usize, length);
        Ok(SharedFile { mapping, guard })
    }

    /// Whether an access found a part of the file missing.
    pub fn is_broken(&self) -> bool {
        RANGES[self.guard.0].broken.load(Ordering::Acquire)
    }

    pub fn long(&self, offset: usize) -> &AtomicU64 {
        self.mapping.word(offset)
    }

    pub fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self.mapping.at(offset, 4);
        assert!(offset.is_multiple_of(4));
        // SAFETY: within the mapping, aligned, and shared only through atomics.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    pub fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: within the mapping, and shared only through atomics.
        unsafe { AtomicU8::from_ptr(self.mapping.at(offset, 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_reads_as_zeros_and_is_known_to_be_broken() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * 65536).unwrap();
        let (whole, cut) = (tempfile::tempfile().unwrap(), file);
        whole.set_len(65536).unwrap();
        let (whole, map) =
            (SharedFile::new(&whole, 65536).unwrap(), SharedFile::new(&cut, 4 * 65536).unwrap());
        map.word(0).store(7, Ordering::Relaxed);
        map.word(65536 * 3).store(8, Ordering::Relaxed);
        assert!(!map.is_broken());
        cut.set_len(65536).unwrap();
        assert_eq!((map.word(0).load(Ordering::Relaxed), map.is_broken()), (7, false));
        assert_eq!((map.word(65536 * 3).load(Ordering::Relaxed), map.is_broken()), (0, true));
        map.byte(65536 * 3 + 4096).store(1, Ordering::Relaxed);
        assert!(!whole.is_broken());
    }

    #[test]
    fn entries_of_the_table_are_reused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        for _ in 0..2 * MAPS_MAX {
            assert!(!SharedFile::new(&file, 4096).unwrap().is_broken());
        }
    }
}
