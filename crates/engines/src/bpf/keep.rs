// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Pins what must outlive this process if it is killed.

use super::BpfEngine;
use super::pins::{self, Pins};
use klogger_os::Error;
use libbpf_rs::MapHandle;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::PoisonError;

/// What outlives this process if it is killed, as soon as there is a log that it belongs to.
#[derive(Default)]
pub struct Kept {
    pins: Option<Pins>,
    /// Larger rings that were made before that.
    waiting: Vec<(u16, MapHandle)>,
}

impl Kept {
    pub fn keep(&mut self, cpu: u16, ring: &MapHandle) -> Result<(), Error> {
        match &self.pins {
            Some(pins) => pins.map(&pins::larger(cpu), ring.as_fd()),
            None => {
                let again = MapHandle::try_from(ring);
                let again = again.map_err(|e| {
                    Error::new(format!("cannot keep the larger ring of CPU {cpu}: {e}"))
                })?;
                self.waiting.push((cpu, again));
                Ok(())
            }
        }
    }
}

impl BpfEngine {
    /// Pins all that is needed to read the rings, and `facts`.
    pub(super) fn keep_all(&self, facts: &[u8]) -> Result<(), Error> {
        let pins = Pins::new()?;
        self.pin_all(&pins)?;
        // Optional: where the kernel does not report physical pages, the rings cannot be found in a
        // memory image.
        let _ = self.drop_anchor(facts, &pins);
        // Last: a folder with this file is complete.
        pins.facts(facts)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut kept.waiting);
        let mut waiting = waiting.iter();
        let pinned =
            waiting.try_for_each(|(cpu, ring)| pins.map(&pins::larger(*cpu), ring.as_fd()));
        kept.pins = Some(pins);
        pinned
    }

    fn pin_all(&self, pins: &Pins) -> Result<(), Error> {
        let shared = &self.shared;
        pins.map(pins::RINGS, shared.rings.as_fd())?;
        pins.map(pins::NESTED, shared.nested.as_fd())?;
        pins.map(pins::RINGLESS, shared.ringless.as_fd())?;
        pins.map(pins::UNREAD, shared.unread.as_fd())?;
        pins.map(pins::CAUGHT, shared.caught.as_fd())?;
        if let Some((stacks, stackless)) = &shared.stacks {
            pins.map(pins::STACKS, stacks.as_fd())?;
            pins.map(pins::STACKLESS, stackless.as_fd())?;
        }
        for o in &self.objects {
            for (n, p) in o.placed.iter().enumerate() {
                pins.program(&o.schema, &p.name(n), p.program.as_fd())?;
            }
            for p in o.object.progs_mut().filter(|p| p.as_fd().as_raw_fd() >= 0) {
                pins.program(&o.schema, &p.name().to_string_lossy(), p.as_fd())?;
            }
        }
        Ok(())
    }
}
