// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rate limits of events. BPF programs enforce them; here the limits are set and the counts of what
//! they left out are read.

use super::load::{Shared, map_memory};
use crate::losses::LeftOut;
use klogger_os::{Error, Mapping};
use klogger_ring::EVENTS_MAX;
use klogger_ring::layout::bpf;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// The limits and counts in memory: `struct klogger_rate` and `struct klogger_left_out` of the BPF
/// runtime.
pub struct Limits {
    rates: Mapping,
    left: Mapping,
    cpus: usize,
    ids: BTreeSet<u16>,
}

/// Bytes of the limits of all events.
const RATES: usize = bpf::RATE * EVENTS_MAX;
/// Bytes of the counts of one CPU.
const LEFT: usize = bpf::LEFT_OUT * EVENTS_MAX;

impl Limits {
    pub fn new(shared: &Shared, cpus: usize) -> Result<Limits, Error> {
        let rates = map_memory(&shared.rates, RATES)?;
        Ok(Limits {
            rates,
            left: map_memory(&shared.left, cpus * LEFT)?,
            cpus,
            ids: BTreeSet::new(),
        })
    }

    /// A burst may have a tenth of a second's worth of events, at least one.
    pub fn set(&mut self, id: u16, per_second: u64) {
        let step = 16_000_000_000 / per_second.max(1);
        let words = [
            (bpf::RATE_DUE, 0),
            (bpf::RATE_STEP, step),
            (bpf::RATE_AHEAD, (per_second / 10).saturating_sub(1) * step),
        ];
        for (member, word) in words {
            let at = bpf::RATE * usize::from(id) + member;
            self.rates.word(at).store(word, Ordering::Relaxed);
        }
        self.ids.insert(id);
    }

    pub fn is_limited(&self, id: u16) -> bool {
        self.ids.contains(&id)
    }

    pub fn left_out(&self) -> Vec<LeftOut> {
        let of = |cpu: usize, id: u16| {
            let at = cpu * LEFT + bpf::LEFT_OUT * usize::from(id);
            let word = |member: usize| self.left.word(at + member).load(Ordering::Relaxed);
            LeftOut {
                id,
                cpu: cpu as u16,
                count: word(bpf::LEFT_OUT_COUNT),
                first: word(bpf::LEFT_OUT_FIRST),
                last: word(bpf::LEFT_OUT_LAST),
            }
        };
        let all = (0..self.cpus).flat_map(|cpu| self.ids.iter().map(move |id| of(cpu, *id)));
        all.filter(|l| l.count > 0).collect()
    }
}
