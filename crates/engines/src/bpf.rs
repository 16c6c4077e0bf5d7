// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The bpf engine: loads compiled schemata, shares one set of rings between them, attaches their
//! programs.

mod anchors;
pub mod attach;
mod calibrate;
pub mod calls;
mod choice;
mod config;
mod counters;
mod engine;
mod fired;
mod grace;
pub mod hits;
mod keep;
mod kept_costs;
mod larger;
mod limits;
pub mod load;
mod needs;
mod otel;
mod pages;
pub mod pins;
mod placed;
mod prepare;
mod refused;
mod sampler;
mod snapshot;
mod stacks;
mod states;
mod try_load;
mod user_stacks;
mod wake_ups;

pub use engine::INFO;
pub use refused::Refused;
pub use stacks::Stacks;
pub use try_load::try_load;

use crate::scope::{SCOPE_BYTES, Scope};
use crate::threads::Threads;
use crate::user_code::Mappings;
use anchors::RingAnchors;
use counters::Counters;
use fired::FiredTable;
use hits::Hits;
use keep::Kept;
use klogger_codegen::{KernelTypes, Refusal};
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::{Error, Mapping};
use klogger_ring::{EVENTS_MAX, NESTED, Rings};
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan};
use libbpf_rs::{Link, MapCore, MapHandle, Object};
use limits::Limits;
use load::{
    Config, ENABLED, Part, STACKLESS, STACKS, Shared, USER_STACKS, load_object, map_fd, map_memory,
};
use otel::Otel;
use placed::{Numbered, Placed};
use snapshot::Snapshot;
use states::Tables;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use user_stacks::UserStacks;

/// Loaded programs, and the maps that they share with the recorder.
pub struct BpfEngine {
    objects: Vec<Loaded>,
    links: Vec<Link>,
    snapshots: Vec<Snapshot>,
    /// Of programs at several places.
    placed_links: Vec<OwnedFd>,
    rings: Rings,
    config: Config,
    nested: Rings,
    scope: Scope,
    ringless: Mapping,
    unread: Mapping,
    limits: Limits,
    fired: Option<FiredTable>,
    /// Events are logged on some CPUs only.
    some_cpus: bool,
    stacks: Option<Stacks>,
    user_stacks: Option<UserStacks>,
    /// If there are user stacks, or addresses of data.
    mappings: Option<Mappings>,
    /// If there are events with the request of their thread.
    otel: Option<Otel>,
    probes: Vec<ProbeState>,
    shared: Shared,
    /// What outlives this process if it is killed.
    kept: Arc<Mutex<Kept>>,
    anchors: Arc<RingAnchors>,
    hits: Mutex<Hits>,
    counters: Mutex<Vec<Counters>>,
    costs: Option<Costs>,
}

struct Loaded {
    object: Object,
    plan: Vec<Plan>,
    schema: String,
    base: u16,
    events: usize,
    enabled: Mapping,
    states: Option<Tables>,
    /// The places that have numbers, and programs of their own.
    places: Vec<Numbered>,
    placed: Vec<Placed>,
    /// Kept if copies of its programs may be needed.
    unit: Option<CompiledSchema>,
}

impl BpfEngine {
    /// Loads all compiled schemata and attaches nothing. `units`: each with the id of its first
    /// event; `plans`: one of each; `example`: as [`load::example`] makes it.
    pub fn load(
        units: &[(&CompiledSchema, u16)],
        plans: Vec<Vec<Plan>>,
        types: &KernelTypes,
        config: &Config,
        example: Option<&MapHandle>,
    ) -> Result<BpfEngine, Error> {
        load::keep_messages();
        let (objects, shared) = load_units(units, plans, types, config, example)?;
        let counters = units
            .iter()
            .zip(&objects)
            .map(|((unit, _), loaded)| Counters::open(&unit.schema, &loaded.object, config.rings));
        let counters: Vec<_> = counters.collect::<Result<_, _>>()?;
        let length = config.rings * Rings::stride(config.ring_size);
        let rings = Rings::new(
            map_memory(&shared.rings, length)?,
            config.ring_size,
            config.rings,
            config.lowwater,
        );
        let length = config.rings * Rings::stride(NESTED);
        let nested =
            Rings::new(map_memory(&shared.nested, length)?, NESTED, config.rings, config.lowwater);
        let ringless = shared.ringless.try_clone();
        let ringless =
            ringless.map_err(|e| Error::new(format!("cannot use the map of events: {e}")))?;
        let anchors = Arc::new(RingAnchors::new(&nested, ringless));
        let stacks = match &shared.stacks {
            Some((_, stackless)) => Some(Stacks::new(&objects, stackless)?),
            None => None,
        };
        let user_stacks = shared.user_stacks.as_ref().map(UserStacks::new).transpose()?;
        let data = units.iter().any(|(unit, _)| unit.schema.has_data_of_programs());
        let mappings =
            (data || user_stacks.is_some()).then(|| Mappings::watch(data)).transpose()?;
        let otel = Otel::watch(&objects)?;
        Ok(BpfEngine {
            objects,
            links: Vec::new(),
            snapshots: Vec::new(),
            placed_links: Vec::new(),
            rings,
            config: *config,
            nested,
            scope: Scope::new(map_memory(&shared.scope, SCOPE_BYTES)?),
            ringless: map_memory(&shared.ringless, 8 * EVENTS_MAX)?,
            unread: map_memory(&shared.unread, 8 * EVENTS_MAX)?,
            limits: Limits::new(&shared, config.rings)?,
            fired: shared.fired.as_ref().map(|fd| FiredTable::new(fd, config.rings)).transpose()?,
            some_cpus: false,
            hits: Mutex::new(Hits::new(config, &shared)?),
            counters: Mutex::new(counters.into_iter().flatten().collect()),
            stacks,
            user_stacks,
            mappings,
            otel,
            probes: Vec::new(),
            shared,
            kept: Arc::default(),
            anchors,
            costs: None,
        })
    }
}

impl BpfEngine {
    /// Records only these of the threads that are followed.
    fn choose(&mut self, threads: &Threads) -> Result<(), Error> {
        if !threads.are_all() {
            let followed = map_memory(&self.shared.other_scope, SCOPE_BYTES)?;
            let recorded = map_memory(&self.shared.scope, SCOPE_BYTES)?;
            self.scope = Scope::choosing(followed, recorded, threads.clone());
        }
        Ok(())
    }
}

/// Leaves out a probe that the schema has alternatives for, if what was refused is that this kernel
/// lacks something that it needs: objects of bundled schemata were compiled with the types of
/// another kernel.
fn leave_out(unit: &CompiledSchema, plan: &mut [Plan], refused: Box<Refused>) -> Result<(), Error> {
    let lacks = refused.lacks().map(|(probe, what)| (probe, what.to_string()));
    let planned = |probe: usize| {
        let alternatives = unit.schema.probes.get(probe)?.targets.len() > 1;
        plan.get(probe)?.target.filter(|_| alternatives)
    };
    let Some((probe, what, target)) =
        lacks.and_then(|(probe, what)| Some((probe, what, planned(probe)?)))
    else {
        return Err(refused.into());
    };
    let mut refusals = std::mem::take(&mut plan[probe].refusals);
    refusals.push((target, Refusal::of_this_kernel(what, None)));
    plan[probe] = Plan::none(refusals);
    Ok(())
}

/// The objects of all units, and the maps that they share, which are those of the first.
fn load_units(
    units: &[(&CompiledSchema, u16)],
    plans: Vec<Vec<Plan>>,
    types: &KernelTypes,
    config: &Config,
    example: Option<&MapHandle>,
) -> Result<(Vec<Loaded>, Shared), Error> {
    let mut objects: Vec<Loaded> = Vec::new();
    let mut shared: Option<Shared> = None;
    for ((unit, base), mut plan) in units.iter().zip(plans) {
        let probes = objects.iter().map(|o| o.plan.len() as u32).sum();
        let part = Part { base: *base, probes, copy: 0 };
        let object = loop {
            match load_object(unit, &plan, part, config, shared.as_ref(), example)? {
                Ok(object) => break object,
                Err(refused) => leave_out(unit, &mut plan, refused)?,
            }
        };
        if shared.is_none() {
            shared = Some(Shared::of(&object, config)?);
        }
        if let Some(shared) = shared.as_mut().filter(|s| s.stacks.is_none())
            && object.maps().any(|m| m.name() == STACKS)
        {
            shared.stacks = Some((map_fd(&object, STACKS)?, map_fd(&object, STACKLESS)?));
        }
        if let Some(shared) = shared.as_mut().filter(|s| s.fired.is_none())
            && object.maps().any(|m| m.name() == load::FIRED)
        {
            shared.fired = Some(map_fd(&object, load::FIRED)?);
        }
        if let Some(shared) = shared.as_mut().filter(|s| s.user_stacks.is_none())
            && object.maps().any(|m| m.name() == USER_STACKS)
        {
            shared.user_stacks = Some(map_fd(&object, USER_STACKS)?);
        }
        if let Some(shared) = shared.as_mut().filter(|s| s.otel.is_none())
            && object.maps().any(|m| m.name() == load::OTEL_PLACES)
        {
            let [places, unread] = [load::OTEL_PLACES, load::OTEL_UNREAD];
            shared.otel = Some([map_fd(&object, places)?, map_fd(&object, unread)?]);
        }
        if let Some(shared) = shared.as_mut().filter(|s| s.system_calls.is_none())
            && object.maps().any(|m| m.name() == load::CALL_TABLE)
        {
            let [table, entry, exit] = [load::CALL_TABLE, load::ON_ENTRY, load::ON_EXIT];
            shared.system_calls =
                Some([map_fd(&object, table)?, map_fd(&object, entry)?, map_fd(&object, exit)?]);
        }
        let enabled = map_memory(&map_fd(&object, ENABLED)?, EVENTS_MAX)?;
        // Number 0 is no place.
        let first = 1 + objects.iter().map(|o| o.places.len()).sum::<usize>();
        let places = placed::numbered(&unit.schema, &plan, first)?;
        let placed = placed::load(&object, &unit.schema, &plan, types, &places)?;
        let states = Tables::of(&object, &unit.schema)?;
        let (schema, events) = (unit.schema.name.clone(), unit.schema.events.len());
        let (base, unit) = (*base, hits::keep(unit, config));
        objects.push(Loaded {
            object,
            plan,
            schema,
            base,
            events,
            enabled,
            states,
            places,
            placed,
            unit,
        });
    }
    Ok((objects, shared.ok_or_else(|| Error::new("nothing to load"))?))
}
