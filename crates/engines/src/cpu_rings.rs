// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rings of CPUs, as an engine hands them to the recorder, which drains them.

use crate::times::Times;
use klogger_os::Error;
use klogger_ring::{CpuReader, RingReader};

/// Rings of CPUs, and what the recorder needs to drain them.
pub struct CpuRings {
    /// The reader's side of the rings of each CPU that has some.
    pub readers: Vec<(u16, CpuReader)>,
    /// The clock of the times in their records.
    pub times: Times,
    pub wake_ups: Box<dyn WakeUps>,
    /// Makes larger rings, if the rings can be replaced.
    pub growth: Option<Box<dyn Growth>>,
}

/// Wake-ups from writers whose rings have passed the low-water mark.
pub trait WakeUps: Send {
    /// Passes on every wake-up until `go_on` returns false. It is called several times a second.
    /// Wake-ups that have arrived by then are still passed on.
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(WakeUp)) -> Result<(), Error>;
}

/// Makes larger rings for CPUs whose own are too small.
pub trait Growth: Send {
    /// Makes the reader's side of a larger ring, which writers use as soon as the old one is
    /// retired; `None` if no more memory may be used.
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error>;

    /// Returns when no writer uses a ring any more that was retired before the call.
    fn wait_for_writers(&self);
}

/// Why the drain threads are woken.
pub enum WakeUp {
    /// The ring of this CPU has passed its low-water mark.
    Filling(u32),
    /// Writers use other rings now. The old ones are complete.
    NewRings(Vec<(u16, CpuReader)>),
}
