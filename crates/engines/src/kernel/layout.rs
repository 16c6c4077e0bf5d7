// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the rings are in the memory that the core module shares.

use super::device::{self, Device};
use super::schemata::failed;
use crate::anchor::{Anchors, RingLocation};
use klogger_os::{Error, Mapping};
use klogger_ring::layout::ring::MASK;
use klogger_ring::{CpuReader, EVENTS_MAX, RingReader, Rings};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The offsets of rings in their mapping.
#[derive(Clone, Copy)]
pub struct Layout {
    pub ring_size: usize,
    pub stride: usize,
    pub cpus: usize,
}

impl Layout {
    pub fn map(&self, device: &Device) -> Result<Mapping, Error> {
        device.map(device::MAP_RINGS, self.stride * self.cpus).map_err(failed("share its rings"))
    }

    /// CPUs that have rings. A CPU that was offline has none: its part of the mapping is empty.
    fn there(&self, rings: &Mapping) -> impl Iterator<Item = usize> {
        let has_ring =
            |cpu: &usize| rings.word(cpu * self.stride + MASK).load(Ordering::Relaxed) != 0;
        (0..self.cpus).filter(has_ring)
    }

    pub fn readers(&self, rings: &Arc<Mapping>) -> Vec<(u16, CpuReader)> {
        self.there(rings).map(|cpu| (cpu as u16, self.reader(rings, cpu))).collect()
    }

    fn location<'a>(&self, rings: &'a Mapping, cpu: usize) -> RingLocation<'a> {
        let main = cpu * self.stride;
        let nested = main + Rings::stride(self.ring_size);
        RingLocation {
            cpu: cpu as u16,
            size: self.ring_size,
            main: (rings, main),
            nested: (rings, nested),
        }
    }

    /// The nested ring follows the main one.
    fn reader(&self, rings: &Arc<Mapping>, cpu: usize) -> CpuReader {
        let main = cpu * self.stride;
        let nested = main + Rings::stride(self.ring_size);
        CpuReader::new(
            RingReader::of_kernel(rings.clone(), main, self.ring_size),
            Some(RingReader::of_kernel(rings.clone(), nested, klogger_ring::NESTED)),
        )
    }
}

/// Adds an anchor: where these rings are in physical memory, for a search in a memory image.
pub fn add_anchor(
    anchors: &Anchors,
    device: &Device,
    layout: &Layout,
    rings: &Mapping,
    facts: Option<&[u8]>,
) -> Result<(), Error> {
    let ringless =
        device.map(device::MAP_RINGLESS, 8 * EVENTS_MAX).map_err(failed("share its memory"))?;
    let locations: Vec<RingLocation> =
        layout.there(rings).map(|cpu| layout.location(rings, cpu)).collect();
    let room = |bytes: usize| {
        device.map(device::MAP_ANCHOR, bytes).map_err(failed("share memory for an anchor"))
    };
    anchors.add(facts, &locations, &ringless, &room)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Memory of the test in place of the device's.
    pub fn memory(length: usize) -> Mapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length as u64).unwrap();
        Mapping::new(file.as_fd(), length).unwrap()
    }

    #[test]
    fn rings_lie_side_by_side() {
        let ring_size = 16 << 10;
        let stride = Rings::stride(ring_size) + Rings::stride(klogger_ring::NESTED);
        let layout = Layout { ring_size, stride, cpus: 3 };
        let rings = Arc::new(memory(3 * stride));
        // CPU 2 was offline and has no ring.
        let masks = [0, stride].map(|cpu| cpu + MASK);
        masks.iter().for_each(|at| rings.word(*at).store(ring_size as u64 - 1, Ordering::Relaxed));
        // Heads of CPU 1's rings.
        rings.word(stride).store(8, Ordering::Relaxed);
        rings.word(stride + Rings::stride(ring_size)).store(16, Ordering::Relaxed);
        let fills: Vec<_> =
            layout.readers(&rings).iter().map(|(cpu, reader)| (*cpu, reader.fill())).collect();
        assert_eq!(fills, [(0, 0), (1, 24)]);
    }
}
