// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Larger rings, for CPUs whose own are too small. They are made, pinned and anchored like those
//! that a recording begins with.

use super::BpfEngine;
use super::anchors::RingAnchors;
use super::grace;
use super::keep::Kept;
use super::load::{Config, LARGER, larger_ring, map_memory};
use crate::cpu_rings::Growth;
use klogger_os::Error;
use klogger_ring::{RingReader, Rings};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes larger rings as long as they fit into the memory that they may use.
pub struct LargerRings {
    all: MapHandle,
    size: usize,
    left: u64,
    kept: Arc<Mutex<Kept>>,
    anchors: Arc<RingAnchors>,
}

impl LargerRings {
    /// `None` if this recording's rings do not grow.
    pub fn new(engine: &BpfEngine) -> Option<LargerRings> {
        let Config { larger: size, larger_memory: left, overwrite, .. } = engine.config;
        let all = engine.objects.first()?.object.maps().find(|m| m.name() == LARGER)?;
        let all = MapHandle::try_from(&all).ok().filter(|_| size > 0 && !overwrite)?;
        let (kept, anchors) = (engine.kept.clone(), engine.anchors.clone());
        Some(LargerRings { all, size, left, kept, anchors })
    }
}

impl Growth for LargerRings {
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error> {
        let bytes = Rings::stride(self.size);
        let Some(left) = self.left.checked_sub(bytes as u64) else { return Ok(None) };
        let cannot =
            |e: String| Error::new(format!("cannot make a larger ring for CPU {cpu}: {e}"));
        let map = larger_ring(self.size).map_err(|e| cannot(e.to_string()))?;
        let fd = map.as_fd().try_clone_to_owned().map_err(|e| cannot(e.to_string()))?;
        // Half of it is reserve for delays of its reader.
        let ring = Rings::new(map_memory(&fd, bytes)?, self.size, 1, 50);
        let reader = ring.reader(0);
        reader.open(false);
        // As for the first rings, the anchor is optional.
        let _ = self.anchors.add(cpu, &ring);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(cpu, &map)?;
        let (key, value) = (u32::from(cpu).to_ne_bytes(), fd.as_raw_fd().to_ne_bytes());
        self.all.update(&key, &value, MapFlags::ANY).map_err(|e| cannot(e.to_string()))?;
        self.left = left;
        Ok(Some(reader))
    }
    fn wait_for_writers(&self) {
        grace::wait();
    }
}
