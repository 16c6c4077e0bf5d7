// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! All rings of a recording.

use super::{Mark, RingReader};
use crate::layout::ring::{CONTROL, SLACK};
use klogger_os::Mapping;
use std::sync::Arc;

/// All rings of a recording, in one mapping.
#[derive(Clone)]
pub struct Rings {
    mapping: Arc<Mapping>,
    size: usize,
    count: usize,
    /// The low-water mark in bytes: a writer that fills more wakes the reader.
    mark: usize,
}

impl Rings {
    /// Bytes of one CPU's element for a ring of `size` bytes.
    pub fn stride(size: usize) -> usize {
        CONTROL + size + SLACK
    }

    /// `size` is a power of two; `lowwater` is the share in percent that should stay free.
    pub fn new(mapping: Mapping, size: usize, count: usize, lowwater: u32) -> Rings {
        assert!(
            size.is_power_of_two()
                && mapping.length() >= count * Rings::stride(size)
                && lowwater < 100
        );
        let mark = size / 100 * (100 - lowwater as usize);
        Rings { mapping: Arc::new(mapping), size, count, mark }
    }

    /// The reader's side of the ring of `cpu`. Only one reader at a time may take records out.
    pub fn reader(&self, cpu: usize) -> RingReader {
        assert!(cpu < self.count);
        let base = cpu * Rings::stride(self.size);
        RingReader::new(self.mapping.clone(), base, self.size, Mark::At(self.mark as u64))
    }

    /// Bytes of each ring.
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The offset of the ring of `cpu` in the mapping.
    pub fn place(&self, cpu: usize) -> (&Mapping, usize) {
        (&self.mapping, cpu * Rings::stride(self.size))
    }
}
