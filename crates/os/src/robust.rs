// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The list of robust futexes of a thread: when the thread ends, for whatever reason, the kernel
//! marks each of them. So a program that shares a futex with a recorder sees that the recorder was
//! killed, without a system call.

use super::{Mapping, check};
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel finds the futex of each entry at the same distance. Entries are in private memory in
/// front of the shared memory ([`Mapping::FRONT`]), because otherwise a program could change the
/// list.
const AT_ENTRY: usize = 4096;
/// The kernel follows at most 2048 entries.
const ENTRIES_MAX: usize = 2000;

#[repr(C)]
struct Entry {
    next: *mut Entry,
}

/// `struct robust_list_head` of linux/futex.h.
#[repr(C)]
struct Head {
    first: Entry,
    offset: libc::c_long,
    pending: *mut Entry,
}

/// The list of the thread that made it. The kernel uses it until the thread ends, so its head is
/// never freed.
pub struct Robust {
    head: *mut Head,
    thread: u32,
    /// Each futex on the list holds a copy.
    count: Arc<()>,
}

/// A futex on the list. Dropping this removes it from the list, which must happen in the list's own
/// thread.
pub struct Kept {
    entry: *mut Entry,
    head: *mut Head,
    _mapping: Arc<Mapping>,
    _count: Arc<()>,
}

// SAFETY: the list is made, changed and emptied in one thread; its owner is sent to another thread
// only before the list is made and when it is empty.
unsafe impl Send for Robust {}
unsafe impl Send for Kept {}

impl Robust {
    /// Replaces libc's list, which is used only by robust mutexes; this thread has none. `futex`:
    /// its offset in each mapping.
    pub fn new(futex: usize) -> io::Result<Robust> {
        let offset = (AT_ENTRY + futex) as libc::c_long;
        let head = Box::new(Head {
            first: Entry { next: ptr::null_mut() },
            offset,
            pending: ptr::null_mut(),
        });
        let head = Box::into_raw(head);
        // SAFETY: the head is never freed, and describes an empty list: its first entry is itself.
        unsafe {
            (*head).first.next = head.cast();
            let bytes = size_of::<Head>();
            check(libc::syscall(libc::SYS_set_robust_list, head, bytes) as libc::c_int)?;
            Ok(Robust { head, thread: libc::gettid() as u32, count: Arc::new(()) })
        }
    }

    /// Puts the futex of a mapping on the list; `None` if the list is full.
    pub fn keep(&self, mapping: &Arc<Mapping>, futex: &AtomicU32) -> Option<Kept> {
        if Arc::strong_count(&self.count) > ENTRIES_MAX {
            return None;
        }
        let entry = mapping.front()?.wrapping_add(Mapping::FRONT - AT_ENTRY).cast::<Entry>();
        // SAFETY: the entry is in the front of the mapping, which is used for nothing else and
        // lives as long as Kept. The stores are volatile, because the kernel may read between any
        // two of them.
        unsafe {
            ptr::write_volatile(entry, Entry { next: (*self.head).first.next });
            ptr::write_volatile(&raw mut (*self.head).first.next, entry);
        }
        futex.store(self.thread, Ordering::Release);
        Some(Kept { entry, head: self.head, _mapping: mapping.clone(), _count: self.count.clone() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: all entries are those of other objects of this type, which leave the list before
        // their memory is unmapped; the last one's next is the head.
        unsafe {
            let mut at: *mut Entry = self.head.cast();
            while (*at).next != self.entry {
                at = (*at).next;
                if at == self.head.cast() {
                    return;
                }
            }
            ptr::write_volatile(&raw mut (*at).next, (*self.entry).next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::thread;

    const AT: usize = 104;
    const DIED: u32 = 0x4000_0000;

    /// When a thread ends, all futexes on its list at that time are marked, and no others.
    #[test]
    fn the_kernel_marks_the_futexes_of_an_ended_thread() {
        let files: Vec<_> = (0..4).map(|_| tempfile::tempfile().unwrap()).collect();
        files.iter().for_each(|f| f.set_len(8192).unwrap());
        let maps: Vec<_> =
            files.iter().map(|f| Arc::new(Mapping::sparse(f.as_fd(), 8192).unwrap())).collect();
        // SAFETY: within the mapping, aligned, and shared only through atomics.
        let word = |map: &Mapping| {
            unsafe { AtomicU32::from_ptr(map.at(AT, 4).cast()) }.load(Ordering::Acquire)
        };
        let mine = maps.clone();
        let run = move || {
            let list = Robust::new(AT).unwrap();
            // SAFETY: as above.
            let futex = |map: &Mapping| unsafe { AtomicU32::from_ptr(map.at(AT, 4).cast()) };
            let mut kept: Vec<_> =
                mine[..3].iter().map(|map| list.keep(map, futex(map)).unwrap()).collect();
            // One from the middle of the list.
            drop(kept.remove(1));
            std::mem::forget(kept);
            list.thread
        };
        let tid = thread::spawn(run).join().unwrap();
        assert_eq!(maps.iter().map(|m| word(m)).collect::<Vec<_>>(), [DIED, tid, DIED, 0]);
    }
}
