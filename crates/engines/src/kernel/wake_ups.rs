// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Wake-ups through the device: a ring has passed its low-water mark, or rings were replaced
//! because a CPU came online.

use super::device::{self, Device};
use super::layout::{Layout, add_anchor};
use super::schemata::failed;
use crate::anchor::Anchors;
use crate::cpu_rings::{WakeUp, WakeUps};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::CpuReader;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

const LISTEN: Duration = Duration::from_millis(100);

/// The device, and what is needed to map new rings.
pub struct DeviceWakeUps {
    pub device: Arc<Device>,
    pub anchors: Arc<Anchors>,
    pub cpus: usize,
}

impl DeviceWakeUps {
    fn pass_on(&self, heard: &dyn Fn(WakeUp)) -> Result<(), Error> {
        for call in self.device.calls().map_err(failed("report which rings fill up"))? {
            heard(match call {
                device::CALL_RESIZED => WakeUp::NewRings(self.new_rings()?),
                cpu => WakeUp::Filling(cpu),
            });
        }
        Ok(())
    }

    fn new_rings(&self) -> Result<Vec<(u16, CpuReader)>, Error> {
        let about = self.device.rings().map_err(failed("report its new rings"))?;
        let layout = Layout {
            ring_size: about.ring_size as usize,
            stride: about.stride as usize,
            cpus: self.cpus,
        };
        let rings = Arc::new(layout.map(&self.device)?);
        // Optional: without the anchor the recording continues, but cannot be found after a crash.
        let _ = add_anchor(&self.anchors, &self.device, &layout, &rings, None);
        Ok(layout.readers(&rings))
    }
}

impl WakeUps for DeviceWakeUps {
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(WakeUp)) -> Result<(), Error> {
        while go_on() {
            os::poll_readable(&[self.device.as_fd()], LISTEN)
                .map_err(failed("report which rings fill up"))?;
            self.pass_on(heard)?;
        }
        // Wake-ups that arrived while `go_on` changed.
        self.pass_on(heard)
    }
}
