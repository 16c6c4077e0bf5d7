// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads everything that a recording with the bpf engine needs, and measures what its events cost.

use super::BpfEngine;
use super::calibrate::Prepared;
use super::choice::Choice;
use super::load::{self, Config};
use super::needs;
use super::pages;
use super::states;
use crate::request::{BUFFER_MAX, Request};
use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::attach_points;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use klogger_ring::Rings;
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::{Counter, Schema};
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan, faults, plan};
use klogger_toolchain::host_kernel::{self, Preemption};
use std::thread;

/// The least size of a larger ring, if the memory allows it.
const LARGER_MIN: u64 = 16 << 20;

/// Loads the engine. Measures what events cost, if requested; those of the built-in schema are rare
/// and left out.
/// `units`: those whose events it logs, each with the id of its first event.
pub fn load(request: &Request, units: &[(&CompiledSchema, u16)]) -> Result<BpfEngine, Error> {
    host_kernel::check_privilege()?;
    let rings = request.check_for_probes()?;
    let config = config(request, rings)?;
    let calibrate = needs::check(request, units, &config)? && request.calibrate;
    // In parallel, because loading takes longer.
    let example = threads::start("klogger/example", move || load::example(&config))?;
    let programs = request.target.programs(&request.command);
    let types = host_kernel::types()?.with_programs(programs);
    let (release, version, ..) = os::uname();
    let config = Config {
        preempt: host_kernel::preempts_programs(&types, &release, &version),
        preemption: host_kernel::preemption(&types, &version),
        preempt_count: types.preempt_count(),
        calls_32: klogger_codegen::system_calls::has_32_bit(&types),
        vmemmap: pages::vmemmap(units.iter().map(|(unit, _)| &unit.schema), &types)?,
        uprobe_multi: host_kernel::has_uprobe_multi(&types),
        ..config
    };
    states::check(units)?;
    let mut plans = Vec::new();
    for (unit, _) in units {
        let mut plan = plan(&unit.schema, &types)?;
        check_plan(unit, &plan)?;
        switch_off(&unit.schema, &mut plan);
        check_counters(&unit.schema, &types)?;
        check_overwrite(unit, &plan, &config)?;
        plans.push(plan);
    }
    check_files(units, &plans)?;
    let named: Vec<_> = units.iter().skip(1).map(|(unit, _)| *unit).collect();
    let (engine, prepared) = thread::scope(|scope| {
        let load = || threads::start_in(scope, || Prepared::load(&named, &types, &config));
        let prepared = calibrate.then(load).transpose()?;
        let example = example.join().unwrap_or(Ok(None));
        let engine = example
            .and_then(|example| BpfEngine::load(units, plans, &types, &config, example.as_ref()));
        Ok::<_, Error>((engine, prepared.and_then(|p| p.join().ok())))
    })?;
    let mut engine = engine?;
    engine.choose(&request.threads)?;
    let unmeasured = || request.calibrate.then(needs::unmeasured);
    engine.costs = prepared.map(Prepared::measure).or_else(unmeasured);
    Ok(engine)
}

/// What depends on the kernel's types is not known yet.
fn config(request: &Request, rings: usize) -> Result<Config, Error> {
    let memory = (rings * Rings::stride(request.buffer_size as usize)) as u64;
    let larger_memory = request.ring_memory.saturating_sub(memory);
    Ok(Config {
        rings,
        ring_size: request.buffer_size as usize,
        larger: larger_ring(request.buffer_size, larger_memory),
        larger_memory,
        scoped: request.is_scoped(),
        choice: Choice::of(request)?,
        overwrite: request.overwrite,
        lowwater: request.lowwater,
        preempt: false,
        preemption: Preemption::None,
        preempt_count: 0,
        vmemmap: 0,
        uprobe_multi: false,
        calls_32: false,
        cpus: cpu_bits(&request.cpus),
    })
}

/// A bit for each CPU. Numbers that no kernel has are left out.
fn cpu_bits(cpus: &[u32]) -> [u64; layout::CPUS_MAX / 64] {
    let mut bits = [0; layout::CPUS_MAX / 64];
    for cpu in cpus {
        if let Some(word) = bits.get_mut(*cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    bits
}

/// Bytes of the ring that replaces one of `size` bytes: much larger, as far as `memory` allows; 0:
/// rings do not grow.
fn larger_ring(size: u64, memory: u64) -> usize {
    let most = (16 * size).clamp(LARGER_MIN, BUFFER_MAX);
    let sizes = std::iter::successors(Some(most), |s| Some(s / 2)).take_while(|s| *s >= 2 * size);
    sizes.into_iter().find(|s| Rings::stride(*s as usize) as u64 <= memory).unwrap_or(0) as usize
}

/// Descriptors of a recording, at least: those of each schema are its maps, and at each place a
/// program and what attaches it. All system calls of a probe have one program.
const FILES: u64 = 60;
const FILES_OF_SCHEMA: u64 = 10;
const FILES_OF_PLACE: u64 = 2;

/// Where they do not suffice, messages of the kernel name all sorts of causes.
fn check_files(units: &[(&CompiledSchema, u16)], plans: &[Vec<Plan>]) -> Result<(), Error> {
    let probes = units.iter().flat_map(|(unit, _)| &unit.schema.probes);
    let places = probes.zip(plans.iter().flatten()).map(|(probe, plan)| {
        let target = plan.target.and_then(|number| probe.targets.get(number));
        let is_call = target.is_some_and(|target| target.kind.is_system_call());
        if is_call { plan.places.len().min(1) } else { plan.places.len() }
    });
    let places: usize = places.sum();
    let schemata = plans.len() as u64;
    let needed = FILES + FILES_OF_SCHEMA * schemata + FILES_OF_PLACE * places as u64;
    let limit = os::files::limit();
    if needed <= limit {
        return Ok(());
    }
    let message = format!(
        "a recording of these schemata needs about {needed} open files, and may have {limit}"
    );
    Err(Error::new(message).help("raise the limit: ulimit -n 4096 (RLIMIT_NOFILE)"))
}

/// A schema with an attach point that this kernel lacks is refused, unless the schema allows for
/// it.
fn check_plan(unit: &CompiledSchema, plans: &[Plan]) -> Result<(), Error> {
    let schema = &unit.schema;
    if let Some(fault) = faults(schema, plans).into_iter().next() {
        let (file, line) = schema.place(fault.span);
        let error = Error::new(format!("{file}:{line}: {}", fault.message));
        return Err(Error { help: fault.help, ..error });
    }
    if !schema.probes.is_empty() && plans.iter().all(|p| p.target.is_none()) {
        return Err(Error::new(format!(
            "none of the probes of schema '{}' can be attached to this kernel",
            schema.name
        ))
        .help(format!("'klogger show {}' shows why", schema.name)));
    }
    Ok(())
}

/// Probes that a parameter switches off are neither loaded nor attached.
fn switch_off(schema: &Schema, plans: &mut [Plan]) {
    for (probe, plan) in schema.probes.iter().zip(plans) {
        if !schema.is_on(probe) {
            *plan = Plan::none(Vec::new());
        }
    }
}

/// A schema that counts what this machine does not count is refused, unless it may be missing.
fn check_counters(schema: &Schema, types: &KernelTypes) -> Result<(), Error> {
    let needed = |c: &&Counter| !c.optional && !types.counts(c.counted);
    let Some(Counter { number, event, span, .. }) = schema.counters().find(needed) else {
        return Ok(());
    };
    let (file, line) = schema.place(*span);
    let what = format!("this machine does not count '{event}' (counter{number})");
    Err(Error::new(format!("{file}:{line}: {what}")).help(format!(
        "write 'counter{number} {event} optional' to record without it, with zeros; or count what \
         the kernel counts, such as page-faults"
    )))
}

/// In a ring that is overwritten, a thread that was preempted between reserving space and storing
/// its record could find that the space is another record's by then.
fn check_overwrite(unit: &CompiledSchema, plans: &[Plan], config: &Config) -> Result<(), Error> {
    if !config.overwrite || config.preemption != Preemption::CannotBeHeldOff {
        return Ok(());
    }
    let probes = unit.schema.probes.iter().zip(plans);
    let mut attached = probes.filter_map(|(probe, plan)| probe.targets.get(plan.target?));
    match attached.find(|target| attach_points::is_preempted(target.kind)) {
        None => Ok(()),
        Some(target) => Err(Error::new(format!(
            "a flight recorder cannot log {}: before Linux 6.11, threads can be preempted in its \
             program",
            target.label()
        ))
        .help("record without --overwrite, or boot this kernel with preempt=voluntary")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_a_bit() {
        let bits = cpu_bits(&[0, 65, 8191, 8192]);
        assert_eq!((bits[0], bits[1], bits[127]), (1, 2, 1 << 63));
        assert_eq!(bits.iter().map(|word| word.count_ones()).sum::<u32>(), 3);
    }

    #[test]
    fn larger_rings_use_the_memory_that_they_may() {
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
