// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How much memory a recording with the bpf engine needs besides its rings, where a control group
//! limits it. The tables are known before they are made; what the kernel's verifier and the types
//! of the kernel take for a while was measured.

use super::load::{self, Config, LARGER, NESTED_RINGS, RINGS, Shared};
use super::states;
use crate::request::{RECORDER, Request};
use klogger_log::preamble::Costs;
use klogger_os::cgroup_memory;
use klogger_os::{Error, machine};
use klogger_ring::Rings;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use libbpf_rs::{MapType, OpenObject};
use std::collections::BTreeSet;

/// The types of the kernel, once read, per byte of their file.
const PER_BYTE_OF_TYPES: u64 = 7;
/// The verifier, while it looks at the programs of the bundled schemata, one after the other.
const VERIFIER: u64 = 32 << 20;
/// The same for the program that measures costs, which has all events of a schema: it keeps what is
/// known at each branch, so that it needs more for each event (measured: up to 6 MiB).
const VERIFIER_OF_COSTS: u64 = 16 << 20;
const VERIFIER_OF_EVENT: u64 = 8 << 20;

/// Refuses what does not fit into the control groups of this process: the kernel would kill the
/// recorder. Returns whether there is memory for measuring what events cost as well.
pub fn check(
    request: &Request,
    units: &[(&CompiledSchema, u16)],
    config: &Config,
) -> Result<bool, Error> {
    let Some(left) = cgroup_memory::left() else { return Ok(true) };
    let tables = tables(units, config)?;
    // What larger rings are like is learnt from one.
    let larger = if config.larger > 0 { Rings::stride(config.larger) as u64 } else { 0 };
    let types = host_kernel::types_size() * PER_BYTE_OF_TYPES;
    let besides = RECORDER + types + VERIFIER + tables + larger;
    let needed = request.check_group(config.rings, besides, &left)?;
    Ok(needed + tables + of_costs(units) <= left.bytes)
}

/// The schemata are measured one after the other.
fn of_costs(units: &[(&CompiledSchema, u16)]) -> u64 {
    let events = units.iter().map(|(unit, _)| unit.schema.events.len()).max().unwrap_or_default();
    VERIFIER_OF_COSTS + VERIFIER_OF_EVENT * events as u64
}

/// What the log says of costs that were not measured.
pub fn unmeasured() -> Costs {
    let why = "the control group has too little memory to measure them".into();
    Costs { why, ..Costs::default() }
}

/// Bytes of all maps but the rings. Those that all objects share are made once.
fn tables(units: &[(&CompiledSchema, u16)], config: &Config) -> Result<u64, Error> {
    let mut bytes = 0;
    let mut shared = BTreeSet::new();
    for (unit, _) in units {
        let mut open = load::open_object(unit, Default::default(), config, None, None)?;
        states::set_sizes(&mut open, &unit.schema)?;
        bytes += of_object(&open, &mut shared);
    }
    Ok(bytes)
}

/// `shared`: those of other objects that all share.
fn of_object(open: &OpenObject, shared: &mut BTreeSet<String>) -> u64 {
    let cpus = machine::possible_cpus();
    let maps = open.maps().filter(|map| {
        let name = map.name().to_string_lossy();
        let is_ring = [RINGS, LARGER, NESTED_RINGS].contains(&&*name);
        !is_ring && (!Shared::is_one(&name) || shared.insert(name.into_owned()))
    });
    maps.map(|map| {
        let copies = match map.map_type() {
            MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash => cpus,
            _ => 1,
        };
        let entry = u64::from(map.key_size() + map.value_size()).next_multiple_of(8);
        entry * u64::from(map.max_entries()) * copies
    })
    .sum()
}
