// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Wake-ups from BPF programs whose rings have passed the low-water mark.

use super::load::CALLS;
use crate::cpu_rings::{WakeUp, WakeUps};
use klogger_os::Error;
use libbpf_rs::{MapCore, MapHandle, Object, RingBufferBuilder};
use std::time::Duration;

/// A BPF ring buffer that carries the numbers of CPUs.
pub struct WakeUpMap(MapHandle);

impl WakeUpMap {
    /// All objects share the map of the first one.
    pub fn new(object: &Object) -> Result<WakeUpMap, Error> {
        let map = object.maps().find(|m| m.name() == CALLS);
        let map =
            map.ok_or_else(|| Error::new(format!("the compiled schema has no map '{CALLS}'")))?;
        let handle = MapHandle::try_from(&map);
        let handle =
            handle.map_err(|e| Error::new(format!("cannot use the map '{CALLS}': {e}")))?;
        Ok(WakeUpMap(handle))
    }
}

impl WakeUps for WakeUpMap {
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(WakeUp)) -> Result<(), Error> {
        let broken = |e| Error::new(format!("cannot receive wake-ups: {e}"));
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .into_iter()
                .for_each(|b| heard(WakeUp::Filling(u32::from_ne_bytes(*b))));
            0
        };
        builder.add(&self.0, take).map_err(broken)?;
        let buffer = builder.build().map_err(broken)?;
        while go_on() {
            match buffer.poll(Duration::from_millis(100)) {
                Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => return Err(broken(e)),
                _ => {}
            }
        }
        Ok(())
    }
}
