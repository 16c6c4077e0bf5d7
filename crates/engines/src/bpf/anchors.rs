// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Anchors of the bpf engine, by which the rings are found in a memory image of a crashed kernel.
//! They are in maps, which outlive this process as the rings do.

use super::BpfEngine;
use super::load::map_memory;
use super::pins::{self, Pins};
use crate::anchor::{Anchors, RingLocation};
use crate::times::Times;
use klogger_os::{Error, Mapping};
use klogger_ring::{EVENTS_MAX, Rings};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The anchors of all rings of this recording.
pub struct RingAnchors {
    anchors: Anchors,
    nested: Rings,
    ringless: OwnedFd,
    /// Larger rings that were made before there was an anchor.
    waiting: Mutex<Vec<(u16, Rings)>>,
}

impl RingAnchors {
    pub fn new(nested: &Rings, ringless: OwnedFd) -> RingAnchors {
        let anchors = Anchors::new(Times::Ns);
        RingAnchors { anchors, nested: nested.clone(), ringless, waiting: Mutex::default() }
    }

    /// Writes the anchor of the rings that a recording begins with. `facts`: what a reader needs to
    /// know besides them.
    fn begin(
        &self,
        facts: &[u8],
        rings: &[RingLocation],
        ringless: &Mapping,
        room: &dyn Fn(usize) -> Result<Mapping, Error>,
    ) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.anchors.add(Some(facts), rings, ringless, room)?;
        waiting.drain(..).try_for_each(|(cpu, larger)| self.add_larger(cpu, &larger))
    }

    /// Adds a ring that replaces that of a CPU.
    pub fn add(&self, cpu: u16, larger: &Rings) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.anchors.are_there() {
            return self.add_larger(cpu, larger);
        }
        waiting.push((cpu, larger.clone()));
        Ok(())
    }

    fn add_larger(&self, cpu: u16, larger: &Rings) -> Result<(), Error> {
        let (main, nested) = (larger.place(0), self.nested.place(cpu.into()));
        let location = RingLocation { cpu, size: larger.size(), main, nested };
        let room = |bytes: usize| {
            let map = pins::memory("anchor", bytes)
                .map_err(|e| Error::new(format!("no memory for an anchor: {e}")))?;
            let fd = map.as_fd().try_clone_to_owned();
            map_memory(
                &fd.map_err(|e| Error::new(format!("cannot use memory for an anchor: {e}")))?,
                bytes,
            )
        };
        self.anchors.add(None, &[location], &map_memory(&self.ringless, 8 * EVENTS_MAX)?, &room)
    }
}

impl BpfEngine {
    /// Writes an anchor into a map, which outlives this process as the rings do.
    pub(super) fn drop_anchor(&self, facts: &[u8], pins: &Pins) -> Result<(), Error> {
        let location = |cpu| {
            let (main, nested) = (self.rings.place(cpu), self.nested.place(cpu));
            RingLocation { cpu: cpu as u16, size: self.rings.size(), main, nested }
        };
        let rings: Vec<RingLocation> = (0..self.rings.count()).map(location).collect();
        let room = |bytes: usize| {
            let map = pins.memory(pins::ANCHOR, bytes)?;
            map_memory(&map, bytes)
        };
        self.anchors.begin(facts, &rings, &self.ringless, &room)
    }
}
