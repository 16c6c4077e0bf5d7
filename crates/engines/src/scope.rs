// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The scope of a recording, as the kernel's probes see it: one bit for each thread.

use crate::threads::Threads;
use klogger_os::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each thread id, in both engines of the kernel.
pub const SCOPE_BYTES: usize = klogger_ring::layout::device::SCOPE_BYTES;
const _: () = assert!(SCOPE_BYTES == klogger_ring::layout::bpf::TIDS / 8);

/// The threads that are recorded: a bit each, which the built-in probes maintain.
#[derive(Clone)]
pub struct Scope {
    /// Those that are followed.
    followed: Bits,
    /// Those that are recorded, if only some of them are, and what these match.
    chosen: Option<(Bits, Arc<Threads>)>,
}

/// A bit for each thread, at least SCOPE_BYTES.
#[derive(Clone)]
struct Bits(Arc<Mapping>);

impl Bits {
    fn word(&self, tid: u32) -> (&AtomicU64, u64) {
        (self.0.word(tid as usize / 64 % (SCOPE_BYTES / 8) * 8), 1 << (tid % 64))
    }

    fn add(&self, tid: u32) {
        let (word, bit) = self.word(tid);
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

impl Scope {
    /// The mapping is at least SCOPE_BYTES long.
    pub fn new(mapping: Mapping) -> Scope {
        Scope { followed: Bits(Arc::new(mapping)), chosen: None }
    }

    /// Of the threads that are `followed`, only some are recorded. Both mappings are at least
    /// SCOPE_BYTES long.
    pub fn choosing(followed: Mapping, recorded: Mapping, threads: Threads) -> Scope {
        let chosen = Some((Bits(Arc::new(recorded)), Arc::new(threads)));
        Scope { followed: Bits(Arc::new(followed)), chosen }
    }

    /// Follows a thread. Probes add its children.
    pub fn add(&self, tid: u32) {
        self.followed.add(tid);
        self.choose(tid);
    }

    /// Decides whether a thread that exists already is recorded, if only some are. Probes decide it
    /// again whenever the thread runs into one.
    pub fn choose(&self, tid: u32) {
        if let Some((recorded, threads)) = &self.chosen
            && threads.has(tid)
        {
            recorded.add(tid);
        }
    }

    /// Whether a thread is followed.
    pub fn contains(&self, tid: u32) -> bool {
        let (word, bit) = self.followed.word(tid);
        word.load(Ordering::Relaxed) & bit != 0
    }
}
