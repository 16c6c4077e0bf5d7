// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Hits of triggers. BPF programs count them, whether or not there is room for an event.

use super::load::map_memory;
use crate::losses::Fired;
use klogger_os::{Error, Mapping};
use klogger_ring::layout::bpf;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Bytes of the counts of one CPU.
const OF_CPU: usize = bpf::FIRED * bpf::TRIGGERS_MAX;

/// The counts in memory: `struct klogger_fired` of the BPF runtime, by CPU and trigger.
pub struct FiredTable {
    memory: Mapping,
    cpus: usize,
}

impl FiredTable {
    pub fn new(map: &OwnedFd, cpus: usize) -> Result<FiredTable, Error> {
        Ok(FiredTable { memory: map_memory(map, cpus * OF_CPU)?, cpus })
    }

    /// Of all CPUs together. Triggers are numbered from 1.
    pub fn of(&self, trigger: u16) -> Fired {
        let at = bpf::FIRED * usize::from(trigger).saturating_sub(1);
        let of_cpu = |cpu: usize| {
            let word =
                |member| self.memory.word(cpu * OF_CPU + at + member).load(Ordering::Relaxed);
            let (hits, first, last) =
                (word(bpf::FIRED_HITS), word(bpf::FIRED_FIRST), word(bpf::FIRED_LAST));
            Fired { hits, first, last }
        };
        let found = (0..self.cpus).map(of_cpu).filter(|fired| fired.hits > 0);
        let sum = |a: Fired, b: Fired| Fired {
            hits: a.hits + b.hits,
            first: a.first.min(b.first),
            last: a.last.max(b.last),
        };
        found.reduce(sum).unwrap_or_default()
    }
}
