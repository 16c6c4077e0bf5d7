// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Memory that is shared with the kernel or with a program, and accessed only by atomics.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// Memory shared with the kernel (a BPF map), or with a program (its file).
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
    /// Bytes of private memory in front of it.
    front: usize,
}

// SAFETY: it is plain memory; the ring's protocol defines who reads and writes what.
unsafe impl Send for Mapping {}
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `fd` for reading and writing, shared.
    pub fn new(fd: BorrowedFd, length: usize) -> io::Result<Mapping> {
        Mapping::with_flags(fd, 0, length, 0)
    }

    /// New private memory, filled with zeros.
    pub fn own(length: usize) -> io::Result<Mapping> {
        Mapping::made(-1, 0, length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// The same, from an offset on.
    pub fn part(fd: BorrowedFd, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::with_flags(fd, offset, length, 0)
    }

    /// Bytes of the front: whole pages for any page size.
    pub const FRONT: usize = 64 << 10;

    /// Maps a sparse file, most of which is never touched, with private memory in front of it.
    pub fn sparse(fd: BorrowedFd, length: usize) -> io::Result<Mapping> {
        Mapping::behind_front(fd, length, libc::MAP_SHARED)
    }

    /// The same, but what is written stays in this process: the file is left as it is.
    pub fn sparse_copy(fd: BorrowedFd, length: usize) -> io::Result<Mapping> {
        Mapping::behind_front(fd, length, libc::MAP_PRIVATE)
    }

    fn behind_front(fd: BorrowedFd, length: usize, kind: libc::c_int) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let flags = kind | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let whole = Mapping::FRONT.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice, and the file in place of a
        // part of it.
        let start = unsafe { libc::mmap64(ptr::null_mut(), whole, protection, anonymous, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(start.cast::<u8>().wrapping_add(Mapping::FRONT))
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        // From here on drop() unmaps it.
        let mapping = Mapping { address, length, front: Mapping::FRONT };
        // SAFETY: as above.
        match unsafe {
            libc::mmap64(address.as_ptr().cast(), length, protection, flags, fd.as_raw_fd(), 0)
        } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(mapping),
        }
    }

    /// The private memory in front of the shared memory, if there is any.
    pub fn front(&self) -> Option<*mut u8> {
        (self.front != 0).then(|| self.address.as_ptr().wrapping_sub(self.front))
    }

    fn with_flags(
        fd: BorrowedFd,
        offset: u64,
        length: usize,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        Mapping::made(fd.as_raw_fd(), offset, length, libc::MAP_SHARED | flags)
    }

    fn made(fd: RawFd, offset: u64, length: usize, flags: libc::c_int) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap64(ptr::null_mut(), length, protection, flags, fd, offset as libc::off64_t)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Mapping { address, length, front: 0 })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The word at `offset`, a multiple of 8.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8);
        assert!(at.addr().is_multiple_of(8), "not aligned");
        // SAFETY: within the mapping, aligned, and shared only through atomics.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// `count` words from `offset` on, a multiple of 8.
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let at = self.at(offset, 8 * count);
        assert!(at.addr().is_multiple_of(8), "not aligned");
        // SAFETY: as of one word. AtomicU64 has the layout of u64.
        unsafe { std::slice::from_raw_parts(at.cast(), count) }
    }

    /// The address of the byte at `offset`, which at least `length` bytes must follow.
    #[inline]
    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "outside the mapping"
        );
        // SAFETY: checked just above.
        unsafe { self.address.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by new(), and not used afterwards.
        unsafe {
            libc::munmap(
                self.address.as_ptr().wrapping_sub(self.front).cast(),
                self.front + self.length,
            )
        };
    }
}
