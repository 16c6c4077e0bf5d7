// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The scope of a recording, as the kernel's probes see it: one bit for each thread.

use klogger_os::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each thread id, in both engines of the kernel.
pub const SCOPE_BYTES: usize = klogger_ring::layout::device::SCOPE_BYTES;
const _: () = assert!(SCOPE_BYTES == klogger_ring::layout::bpf::TIDS / 8);

/// The threads that are recorded: a bit each, which the built-in probes maintain.
#[derive(Clone)]
pub struct Scope(Arc<Mapping>);

impl Scope {
    /// The mapping is at least SCOPE_BYTES long.
    pub fn new(mapping: Mapping) -> Scope {
        Scope(Arc::new(mapping))
    }

    fn word(&self, tid: u32) -> (&AtomicU64, u64) {
        (self.0.word(tid as usize / 64 % (SCOPE_BYTES / 8) * 8), 1 << (tid % 64))
    }

    /// Puts a thread in scope. Probes add its children.
    pub fn add(&self, tid: u32) {
        let (word, bit) = self.word(tid);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    pub fn contains(&self, tid: u32) -> bool {
        let (word, bit) = self.word(tid);
        word.load(Ordering::Relaxed) & bit != 0
    }
}
