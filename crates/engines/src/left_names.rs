// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads out of scope that have ended, or have another name by now: a ring that built-in
//! probes write.

use klogger_os::Mapping;
use klogger_ring::layout::bpf as layout;
use std::sync::atomic::Ordering;

/// Bytes of the ring.
pub const BYTES: usize = layout::LEFT_NAMES_SIZE;

/// A thread that had this name until then. Times are those of the kernel's monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftName {
    pub tid: u32,
    pub tgid: u32,
    pub comm: Vec<u8>,
    /// When the thread started.
    pub start_ns: u64,
    pub until_ns: u64,
    /// Otherwise it has another name since.
    pub ended: bool,
}

/// The reader's side of the ring.
pub struct LeftNames {
    memory: Mapping,
    next: u64,
}

impl LeftNames {
    /// The mapping has [`BYTES`].
    pub fn new(memory: Mapping) -> LeftNames {
        LeftNames { memory, next: 0 }
    }

    /// All that came since the last call, in their order; those that were overwritten since are
    /// left out.
    pub fn take(&mut self) -> Vec<LeftName> {
        let head = self.memory.word(layout::LEFT_NAMES_HEAD).load(Ordering::Acquire);
        let first = self.next.max(head.saturating_sub(layout::LEFT_NAMES as u64));
        self.next = head;
        (first..head).filter_map(|n| self.read(n)).collect()
    }

    /// `None`: it is being written.
    fn read(&self, n: u64) -> Option<LeftName> {
        let slot = n as usize % layout::LEFT_NAMES;
        let at = layout::LEFT_NAMES_FIRST + slot * layout::LEFT_NAME;
        let word = |member: usize| self.memory.word(at + member).load(Ordering::Acquire);
        let is_whole = || word(layout::LEFT_NAME_SERIAL) == n + 1;
        if !is_whole() {
            return None;
        }
        let (ids, half) = (word(layout::LEFT_NAME_TID), layout::LEFT_NAME_COMM + 8);
        let mut comm = word(layout::LEFT_NAME_COMM).to_ne_bytes().to_vec();
        comm.extend_from_slice(&word(half).to_ne_bytes());
        comm.truncate(comm.iter().position(|c| *c == 0).unwrap_or(comm.len()));
        let name = LeftName {
            tid: u32::from_ne_bytes(*ids.to_ne_bytes().first_chunk()?),
            tgid: u32::from_ne_bytes(*ids.to_ne_bytes().last_chunk()?),
            comm,
            start_ns: word(layout::LEFT_NAME_START),
            until_ns: word(layout::LEFT_NAME_UNTIL),
            ended: word(layout::LEFT_NAME_ENDED) != 0,
        };
        is_whole().then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in memory of this process, as probes write it.
    fn write(memory: &Mapping, n: u64, tid: u32, comm: &[u8; 16]) {
        let at = layout::LEFT_NAMES_FIRST + n as usize % layout::LEFT_NAMES * layout::LEFT_NAME;
        let store = |member: usize, word: u64| {
            memory.word(at + member).store(word, Ordering::Release);
        };
        let half = |from: usize| u64::from_ne_bytes(*comm[from..].first_chunk().unwrap());
        let ids = [tid.to_ne_bytes(), (tid + 1).to_ne_bytes()].concat();
        store(layout::LEFT_NAME_TID, u64::from_ne_bytes(*ids.first_chunk().unwrap()));
        store(layout::LEFT_NAME_COMM, half(0));
        store(layout::LEFT_NAME_COMM + 8, half(8));
        store(layout::LEFT_NAME_START, n);
        store(layout::LEFT_NAME_ENDED, 1);
        store(layout::LEFT_NAME_UNTIL, n + 100);
        store(layout::LEFT_NAME_SERIAL, n + 1);
        memory.word(layout::LEFT_NAMES_HEAD).store(n + 1, Ordering::Release);
    }

    #[test]
    fn each_name_is_taken_once_and_the_newest_stay() {
        let memory = Mapping::own(BYTES).unwrap();
        write(&memory, 0, 7, b"a name of 15 by\0");
        let mut names = LeftNames::new(memory);
        let comm = b"a name of 15 by".to_vec();
        let first = LeftName { tid: 7, tgid: 8, comm, start_ns: 0, until_ns: 100, ended: true };
        assert_eq!(names.take(), [first]);
        assert_eq!(names.take(), []);
        let count = layout::LEFT_NAMES as u64;
        (1..count + 11).for_each(|n| write(&names.memory, n, n as u32, b"x\0yyyyyyyyyyyyyy"));
        let taken = names.take();
        assert_eq!((taken.len() as u64, taken[0].tid, &taken[0].comm[..]), (count, 11, &b"x"[..]));
        // One that is being written.
        names.memory.word(layout::LEFT_NAMES_HEAD).fetch_add(1, Ordering::Release);
        assert_eq!(names.take(), []);
    }
}
