// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Offsets in the file that a program shares, from `runtime/include/klogger/program_shm.h`.

pub use klogger_ring::layout::program_shm::*;

/// Bytes of a slot with a main ring of `size` bytes.
pub fn slot_bytes(size: usize) -> usize {
    SLOT_RINGS + size
}

/// Memory used by a thread whose ring has `size` bytes.
pub fn slot_memory(size: u64) -> u64 {
    slot_bytes(size as usize) as u64
}
