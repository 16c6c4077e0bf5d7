// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Measures what each event costs on this machine, before the recording starts. The result is
//! written into the log.
//!
//! A program that has all events of a schema ([`klogger_codegen::bpf::calibrate`]) is attached to a
//! tracepoint which a system call hits, with a small ring of its own. This thread hits it in short
//! blocks of three kinds that alternate: a probe that does nothing, one that only reads the clock,
//! and one that logs an event. The cost of an event is the difference between neighbouring blocks;
//! a block that an interrupt disturbed is one of many. Attaching takes longer than a block, and a
//! machine's speed changes. Therefore the cost of the empty probe is measured against a system call
//! without a tracepoint, beside it each time.

use super::attach::{Site, attach};
use super::kept_costs::{self, FOLDER, Measured};
use super::load::{self, Config};
use crate::costs::{SPREAD, judge, quantile};
use crate::scope::{SCOPE_BYTES, Scope};
use klogger_codegen::bpf::calibrate::{EMPTY, FIRST_EVENT, MEMORY, PLACES, PROGRAM};
use klogger_codegen::kernel_types::KernelTypes;
use klogger_log::preamble::{Costs, EventCost};
use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use klogger_os::{Affinity, Mapping, thread_cpu_ns};
use klogger_ring::{LOST, Rings};
use klogger_schema::layout::RECORD_MAX;
use klogger_schema::model::{ProbeKind, Target};
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hits of a block: long compared with reading the clock, short compared with disturbances.
const BLOCK: usize = 100;
/// Passes: each gives one cost. If they spread too far, the cost is not reported.
const PASSES: usize = 9;
/// Rounds of a pass: in each, every kind has a block. Fewer if there are many kinds.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=12;
/// Blocks that a pass may have, some 20 us each.
const BLOCKS: usize = 250;
/// Larger than the first-level caches, like the ring of a recording.
const RING: usize = 1 << 20;
/// The tracepoint that is hit, by a system call that does little else.
#[derive(Clone, Copy)]
enum Syscall {
    Prctl,
    Itimer,
}

impl Syscall {
    fn of(types: &KernelTypes) -> Option<(Syscall, &'static str)> {
        let known = |name: &str| types.tracepoint(name).is_ok_and(|t| t.is_some());
        [(Syscall::Prctl, PLACES[0]), (Syscall::Itimer, PLACES[1])]
            .into_iter()
            .find(|(_, name)| known(name))
    }

    fn hit(self) {
        /// An option that no kernel has.
        const OPTION: libc::c_int = 0x4b4c4701;
        // SAFETY: an option that is refused, and a timer that is read and set to nothing.
        unsafe {
            match self {
                Syscall::Prctl => _ = libc::prctl(OPTION, 0, 0, 0, 0),
                Syscall::Itimer => {
                    _ = libc::setitimer(
                        libc::ITIMER_VIRTUAL,
                        &std::mem::zeroed(),
                        std::ptr::null_mut(),
                    );
                }
            }
        }
    }

    /// The same system call path, without the tracepoint.
    fn miss(self) {
        // SAFETY: both only read.
        unsafe {
            match self {
                Syscall::Prctl => _ = libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0),
                Syscall::Itimer => {
                    _ = libc::getitimer(libc::ITIMER_VIRTUAL, &mut std::mem::zeroed())
                }
            }
        }
    }
}

/// Runs a block; returns ns per call, of this thread's CPU time.
fn timed(call: impl Fn()) -> f64 {
    let start = thread_cpu_ns();
    (0..BLOCK).for_each(|_| call());
    (thread_cpu_ns() - start) as f64 / BLOCK as f64
}

/// Programs that are loaded but not attached, and what need not be measured again.
pub struct Prepared {
    syscall: Option<(Syscall, &'static str)>,
    pinned_to: u32,
    schemata: Vec<OfSchema>,
}

struct OfSchema {
    events: Vec<String>,
    /// Under which name its costs are kept, if they can be.
    name: Option<String>,
    costs: Result<Source, Error>,
}

enum Source {
    Kept(Measured),
    Loaded(Arms),
}

impl Prepared {
    /// Takes some hundredths of a second; runs beside other preparations.
    pub fn load(units: &[&CompiledSchema], types: &KernelTypes, config: &Config) -> Prepared {
        load::keep_messages();
        let syscall = Syscall::of(types);
        let pinned_to = os::lowest_cpu().unwrap_or_default();
        let of_schema = |unit: &&CompiledSchema| {
            let (_, place) = syscall?;
            let events: Vec<String> = unit.schema.events.iter().map(|e| e.name.clone()).collect();
            let kind = (config.overwrite, config.scoped, config.larger > 0);
            // Not by its object: that has names of files which are others each time.
            let logged = format!("{:?}", unit.schema.events);
            let name = kept_costs::name((logged, place, pinned_to, kind));
            let arms = FIRST_EVENT as usize + events.len();
            let costs = match name
                .as_ref()
                .and_then(|name| kept_costs::find(FOLDER.as_ref(), name, arms))
            {
                Some(kept) => Ok(Source::Kept(kept)),
                None => Arms::load(unit, place, pinned_to, config).map(Source::Loaded),
            };
            Some(OfSchema { events, name, costs })
        };
        Prepared { syscall, pinned_to, schemata: units.iter().filter_map(of_schema).collect() }
    }

    /// `why` of the result says what could not be measured.
    pub fn measure(self) -> Costs {
        let mut costs = Costs::default();
        let Some((syscall, name)) = self.syscall else {
            costs.why = format!("this kernel has none of the tracepoints {}", PLACES.join(", "));
            return costs;
        };
        costs.place = name.into();
        for one in &self.schemata {
            let measured = match &one.costs {
                Ok(Source::Kept(kept)) => Ok(kept.clone()),
                Ok(Source::Loaded(arms)) => self.measure_arms(arms, syscall, name),
                Err(e) => Err(e.message.clone()),
            };
            match measured {
                Ok(measured) => {
                    let is_whole = add(&mut costs, &one.events, &measured);
                    let name = one.name.as_ref().filter(|_| is_whole);
                    if let (Some(name), Ok(Source::Loaded(_))) = (name, &one.costs) {
                        _ = kept_costs::keep(FOLDER.as_ref(), name, &measured);
                    }
                }
                Err(why) => costs.why = why,
            }
        }
        // The kernel takes long to free what a program has used.
        threads::try_start("klogger/free", move || drop(self));
        costs
    }

    fn measure_arms(&self, arms: &Arms, syscall: Syscall, name: &str) -> Result<Measured, String> {
        let _pinned =
            Affinity::to(self.pinned_to).map_err(|e| format!("cannot stay on one CPU: {e}"))?;
        arms.measure(syscall, name).map_err(|e| e.message)
    }
}

/// Whether all costs are known.
fn add(costs: &mut Costs, names: &[String], measured: &Measured) -> bool {
    let mut judged = measured.arms.iter().map(|values| judge(values));
    let (probe, hit) = (judged.next().flatten(), judged.next().flatten());
    costs.hits = measured.hits;
    costs.age_s = costs.age_s.max(measured.age());
    costs.probe = costs.probe.or(probe);
    costs.hit = costs.hit.or(hit);
    let events: Vec<EventCost> =
        names.iter().cloned().zip(judged).map(|(event, cost)| EventCost { event, cost }).collect();
    let is_whole = probe.is_some() && hit.is_some() && events.iter().all(|e| e.cost.is_some());
    costs.events.extend(events);
    if costs.probe.is_none() || costs.hit.is_none() || !is_whole {
        costs.why = SPREAD.into();
    }
    is_whole
}

fn median_of_differences(a: &[f64], b: &[f64]) -> f64 {
    quantile(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>(), 0.5)
}

/// A schema's loaded program, and its memory.
struct Arms {
    object: libbpf_rs::Object,
    memory: Mapping,
    rings: Mapping,
    ring: usize,
    overwrite: bool,
    events: usize,
}

impl Arms {
    fn load(unit: &CompiledSchema, place: &str, cpu: u32, config: &Config) -> Result<Arms, Error> {
        let cpus = cpu as usize + 1;
        let config =
            Config { rings: cpus, ring_size: RING, larger: config.larger.min(2 * RING), ..*config };
        // The hits of this thread are measured, which need not be chosen.
        let config = Config { choice: None, ..config };
        let object = load::load_alone(unit, PROGRAM, place, &config)?;
        let map = |name, length| load::map_memory(&load::map_fd(&object, name)?, length);
        let memory = map(MEMORY, 8)?;
        let rings = map(load::RINGS, cpus * Rings::stride(RING))?;
        let tid = std::process::id();
        Scope::new(map(load::SCOPE, SCOPE_BYTES)?).add(tid);
        let ring = cpu as usize * Rings::stride(RING);
        let arms = Arms {
            memory,
            rings,
            ring,
            overwrite: config.overwrite,
            events: unit.schema.events.len(),
            object,
        };
        arms.word(4).store(tid, Ordering::Relaxed);
        Ok(arms)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned; the program reads it with single loads.
        unsafe { AtomicU32::from_ptr(self.memory.at(at, 4).cast()) }
    }

    /// No writer runs: the ring is reset when it has no room for another block.
    fn make_room(&self) {
        let (head, limit, hard) = (
            self.rings.word(self.ring),
            self.rings.word(self.ring + 8),
            self.rings.word(self.ring + 32),
        );
        let end = if self.overwrite { u64::MAX } else { RING as u64 };
        if limit.load(Ordering::Relaxed) != end
            || head.load(Ordering::Relaxed) as usize + BLOCK * RECORD_MAX as usize > RING
        {
            head.store(0, Ordering::Relaxed);
            limit.store(end, Ordering::Relaxed);
            hard.store(end, Ordering::Relaxed);
        }
    }

    fn block(&self, arm: u32, syscall: Syscall) -> f64 {
        self.make_room();
        self.word(0).store(arm, Ordering::Relaxed);
        timed(|| syscall.hit())
    }

    fn lost(&self) -> bool {
        (0..self.events)
            .any(|id| self.rings.word(self.ring + LOST + 8 * id).load(Ordering::Relaxed) > 0)
    }

    fn measure(&self, syscall: Syscall, name: &str) -> Result<Measured, Error> {
        let kinds = FIRST_EVENT as usize + self.events;
        let rounds = (BLOCKS / kinds).clamp(*ROUNDS.start(), *ROUNDS.end());
        let mut arms = vec![Vec::new(); kinds];
        let before = bare(syscall, rounds * PASSES);
        let target = Target::bare(ProbeKind::Tracepoint, name);
        let site = Site::new(&self.object, &target);
        let link = attach(PROGRAM, &site)?;
        // The first blocks run with cold caches.
        (0..kinds as u32).for_each(|arm| _ = self.block(arm, syscall));
        let mut steps = Vec::new();
        for _ in 0..PASSES {
            let pass = self.pass(syscall, rounds);
            steps.push(median_of_differences(&pass[EMPTY as usize], &pass[kinds]));
            for (arm, values) in arms.iter_mut().enumerate() {
                values.push(median_of_differences(&pass[arm], &pass[EMPTY as usize]));
            }
        }
        drop(link);
        let after = bare(syscall, rounds * PASSES);
        if self.lost() {
            return Err(Error::new("the ring that the events are measured with was too small"));
        }
        for (values, step) in arms.iter_mut().flat_map(|values| values.iter_mut().zip(&steps)) {
            *values += step - (before + after) / 2.0;
        }
        let hits = (PASSES * rounds * BLOCK) as u64;
        Ok(Measured { arms, hits, at: os::monotonic_ns() })
    }

    /// Runs blocks of all kinds, and last a block without the tracepoint. Each round begins with
    /// another kind.
    fn pass(&self, syscall: Syscall, rounds: usize) -> Vec<Vec<f64>> {
        let kinds = FIRST_EVENT as usize + self.events + 1;
        let mut blocks = vec![Vec::with_capacity(rounds); kinds];
        for kind in (0..rounds).flat_map(|round| (0..kinds).map(move |n| (round + n) % kinds)) {
            let is_arm = kind + 1 < kinds;
            blocks[kind].push(if is_arm {
                self.block(kind as u32, syscall)
            } else {
                timed(|| syscall.miss())
            });
        }
        blocks
    }
}

/// The cost of a hit when no probe is attached, compared with the path without the tracepoint.
fn bare(syscall: Syscall, rounds: usize) -> f64 {
    let pairs = (0..rounds).map(|_| timed(|| syscall.hit()) - timed(|| syscall.miss()));
    quantile(&pairs.collect::<Vec<_>>(), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_block_does_not_count() {
        let (quiet, mut other) = (vec![100.0; 9], vec![140.0; 9]);
        other[3] = 90_000.0;
        assert_eq!(median_of_differences(&other, &quiet), 40.0);
    }
}
