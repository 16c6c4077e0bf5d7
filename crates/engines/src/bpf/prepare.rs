// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The part of a recording that is in the kernel: probes, loaded, attached, and detached again.

use super::checks::{check_buffers, check_plan};
use super::{BUFFER_MAX, Engine, FIRST_ID, Options, Target};
use crate::workload::{Held, Running};
use klogger_engines::bpf::{BpfEngine, load};
use klogger_engines::calibrate::Prepared;
use klogger_engines::engine::Probing;
use klogger_engines::kernel::{self, KernelEngine};
use klogger_log::preamble::{Costs, RateLimit};
use klogger_os as os;
use klogger_os::Error;
use klogger_os::machine;
use klogger_os::processes;
use klogger_ring::Rings;
use klogger_schema::layout::EventLayout;
use klogger_toolchain::compiled_schema::{CompiledSchema, plan};
use klogger_toolchain::host_kernel;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long an ended thread may take until the kernel frees it, after its last event.
const LAST_EVENTS: Duration = Duration::from_millis(300);

/// A ring that takes the place of one which is too small has so many bytes, if it may.
const LARGER_MIN: u64 = 16 << 20;

/// Everything loaded and checked, nothing attached yet.
pub struct Probes {
    pub engine: Box<dyn Probing>,
    /// CPUs that have a ring: numbers below this.
    pub rings: usize,
    pub costs: Option<Costs>,
}

/// The built-in unit and those that have probes, each with the id of its first event.
fn probed<'a>(options: &'a Options, builtin: &'a CompiledSchema) -> Vec<(&'a CompiledSchema, u16)> {
    let mut base = FIRST_ID;
    let all = std::iter::once(builtin).chain(&options.units).map(|unit| {
        let first = base;
        base += unit.schema.events.len() as u16;
        (unit, first)
    });
    all.filter(|(unit, _)| options.is_probed(unit)).collect()
}

/// The engine, and what its events cost, if that is wanted. Those of the built-in schema are rare.
fn load_bpf(
    options: &Options,
    units: &[(&CompiledSchema, u16)],
    rings: usize,
) -> Result<(Box<dyn Probing>, Option<Costs>), Error> {
    let larger_memory = options
        .ring_memory
        .saturating_sub((rings * Rings::stride(options.buffer_size as usize)) as u64);
    let config = load::Config {
        rings,
        ring_size: options.buffer_size as usize,
        larger: larger_ring(options.buffer_size, larger_memory),
        larger_memory,
        scoped: options.target.is_scoped(),
        overwrite: options.overwrite,
        lowwater: options.lowwater,
        preempt: false,
    };
    // Beside what takes longer.
    let example = thread::spawn(move || load::example(&config));
    let types = host_kernel::types()?;
    let (release, version, ..) = os::uname();
    let config = load::Config {
        preempt: host_kernel::preempts_programs(&types, &release, &version),
        ..config
    };
    let mut plans = Vec::new();
    for (unit, _) in units {
        let plan = plan(&unit.schema, &types)?;
        check_plan(unit, &plan)?;
        plans.push(plan);
    }
    let named: Vec<_> = units.iter().skip(1).map(|(unit, _)| *unit).collect();
    let (engine, prepared) = thread::scope(|scope| {
        let prepared =
            options.calibrate.then(|| scope.spawn(|| Prepared::load(&named, &types, &config)));
        let example = example.join().unwrap_or(Ok(None));
        let engine =
            example.and_then(|example| BpfEngine::load(units, plans, &config, example.as_ref()));
        (engine, prepared.and_then(|p| p.join().ok()))
    });
    let (engine, costs) = (engine?, prepared.map(Prepared::measure));
    Ok((Box::new(engine), costs))
}

/// Bytes of a ring that takes the place of one of `size` bytes: enough for what is much more than
/// was expected, as far as `memory` goes; 0: no ring grows.
fn larger_ring(size: u64, memory: u64) -> usize {
    let most = (16 * size).clamp(LARGER_MIN, BUFFER_MAX);
    let sizes = std::iter::successors(Some(most), |s| Some(s / 2)).take_while(|s| *s >= 2 * size);
    sizes.into_iter().find(|s| Rings::stride(*s as usize) as u64 <= memory).unwrap_or(0) as usize
}

fn load_module(options: &Options, units: &[(&CompiledSchema, u16)]) -> Result<KernelEngine, Error> {
    let config = kernel::Config {
        modules: options.modules.as_deref(),
        ring_size: options.buffer_size,
        scoped: options.target.is_scoped(),
        overwrite: options.overwrite,
        lowwater: options.lowwater,
        calibrate: options.calibrate,
    };
    KernelEngine::load(units, &config)
}

impl Probes {
    pub fn load(options: &Options, builtin: &CompiledSchema) -> Result<Probes, Error> {
        match options.engine {
            Engine::Kernel => host_kernel::check_module_privilege()?,
            Engine::Auto | Engine::Bpf | Engine::User => host_kernel::check_privilege()?,
        }
        if options.target.is_scoped() {
            host_kernel::check_pid_namespace()?;
        }
        let cpus = machine::online_cpus()?;
        let rings = cpus.iter().max().map_or(1, |c| *c as usize + 1);
        check_buffers(options, rings)?;
        let units = probed(options, builtin);
        let (engine, costs): (Box<dyn Probing>, _) = match options.engine {
            Engine::Kernel => {
                let engine = load_module(options, &units)?;
                let costs = engine.costs.clone();
                (Box::new(engine), costs)
            }
            Engine::Auto | Engine::Bpf | Engine::User => load_bpf(options, &units, rings)?,
        };
        Ok(Probes { engine, rings, costs })
    }

    pub fn limit(&mut self, limits: &[RateLimit], layouts: &[EventLayout]) -> Result<(), Error> {
        for limit in limits {
            for layout in layouts.iter().filter(|e| e.name == limit.event) {
                self.engine.limit(layout.id, limit.per_second)?;
            }
        }
        Ok(())
    }

    pub fn attach(&mut self, options: &Options, builtin: &CompiledSchema) -> Result<(), Error> {
        self.engine.attach(&probed(options, builtin))
    }

    /// Sets the scope bits. Returns (process, thread) of all that exist now.
    pub fn put_in_scope(&self, target: &Target, held: Option<&Held>) -> Vec<(u32, u32)> {
        let threads = |pid: u32| processes::threads_of(pid).into_iter().map(move |tid| (pid, tid));
        match (target, held) {
            (Target::All, _) => processes::all_processes().into_iter().flat_map(threads).collect(),
            (Target::Command(_), held) => {
                let pid = held.map(Held::pid).unwrap_or_default();
                self.engine.scope().add(pid);
                vec![(pid, pid)]
            }
            (Target::Processes(pids), _) => {
                let mut found = Vec::new();
                for &pid in pids {
                    self.add_threads(pid, &mut found);
                }
                found
            }
        }
    }

    /// The probes are attached already: a thread made by one in scope is in scope. So once no new
    /// ones show up that are not, all are.
    fn add_threads(&self, pid: u32, found: &mut Vec<(u32, u32)>) {
        loop {
            let new: Vec<u32> = processes::threads_of(pid)
                .into_iter()
                .filter(|t| !self.engine.scope().contains(*t))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.engine.scope().add(tid);
            }
        }
        found.extend(processes::threads_of(pid).into_iter().map(|tid| (pid, tid)));
    }

    /// A thread's last event comes after its process is seen to have ended. None is waited for that
    /// still runs.
    pub fn wait_for_last_events(
        &self,
        target: &Target,
        running: Option<&Running>,
        followed: &[OwnedFd],
    ) {
        let followed: Vec<_> = followed.iter().map(AsFd::as_fd).collect();
        let ended = os::poll_readable(&followed, Duration::ZERO)
            .is_ok_and(|r| r.iter().all(|ended| *ended));
        let pids: Vec<u32> = match (target, running) {
            (Target::Processes(pids), _) if ended => pids.clone(),
            (Target::All | Target::Processes(_) | Target::Command(_), running) => {
                running.map(Running::pid).into_iter().collect()
            }
        };
        let deadline = Instant::now() + LAST_EVENTS;
        while pids.iter().any(|pid| self.engine.scope().contains(*pid)) && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_rings_are_as_large_as_they_may_be() {
        let (m, g) = (1u64 << 20, 1u64 << 30);
        assert_eq!(larger_ring(4 * m, g), 64 << 20);
        assert_eq!(larger_ring(64 << 10, g), 16 << 20);
        assert_eq!(larger_ring(128 * m, g), 256 << 20);
        // A power of two, and the pages around it.
        assert_eq!(larger_ring(4 * m, 64 * m), 32 << 20);
        assert_eq!(larger_ring(4 * m, 9 * m), 8 << 20);
        assert_eq!(larger_ring(4 * m, 8 * m), 0);
        assert_eq!(larger_ring(256 * m, g), 0);
        assert_eq!(larger_ring(4 * m, 0), 0);
    }
}
