// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `Engine` trait for the bpf engine.

use super::BpfEngine;
use super::attach::{InPrograms, Site};
use super::calls::{Asking, Calls};
use super::counters::Counters;
use super::larger::LargerRings;
use super::load::{Part, map_memory};
use super::otel::Otel;
use super::placed::Numbered;
use super::snapshot::Snapshot;
use super::states::Tables;
use super::wake_ups::WakeUpMap;
use super::{attach, grace, prepare};
use crate::cpu_rings::{CpuRings, Growth};
use crate::engine::{Engine, EngineInfo, Forecast, Moment, events_of, reasons};
use crate::left_names::{self, LeftNames};
use crate::losses::{Fired, LeftOut, MissedHits};
use crate::request::{FIRST_ID, Request};
use crate::scope::Scope;
use crate::stacks::StackTable;
use crate::threads::Threads;
use crate::times::Times;
use crate::user_code::UserCode;
use klogger_codegen::bpf::places::call_lists;
use klogger_codegen::bpf::{MAKER, Program, programs};
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::Error;
use klogger_ring::CpuReader;
use klogger_ring::layout::bpf as layout;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::{Plan, plan};
use klogger_toolchain::host_kernel;
use libbpf_rs::{MapCore, MapFlags};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{MutexGuard, PoisonError};

/// Its entry in the registry.
pub const INFO: EngineInfo = EngineInfo {
    name: "bpf",
    description: "probes in the kernel, as BPF programs",
    check: || host_kernel::check_privilege().and_then(|()| host_kernel::check_has_types()),
    probes: true,
    finds_programs: false,
    maker: &MAKER,
    plan: Some(|schema| {
        Ok(Forecast { plans: plan(schema, &host_kernel::types()?)?, unchecked: None })
    }),
    build: None,
    logs: |_, unit| unit.object.is_some(),
    prepare: |request, _| Ok(Box::new(prepare::load(request, &INFO.units(request))?)),
};

impl Engine for BpfEngine {
    fn info(&self) -> &'static EngineInfo {
        &INFO
    }

    fn limit(&mut self, id: u16, per_second: u64) -> Result<(), Error> {
        self.limits.set(id, per_second);
        Ok(())
    }

    fn choose_cpus(&mut self, _cpus: &[u32]) -> Result<(), Error> {
        // The numbers are in the configuration of the programs.
        self.some_cpus = true;
        Ok(())
    }

    fn choose_threads(&mut self, _threads: &Threads) -> Result<(), Error> {
        // They are in the configuration of the programs.
        Ok(())
    }

    fn costs(&self) -> Option<Costs> {
        self.costs.clone()
    }

    fn ring_size(&self, request: &Request) -> u64 {
        request.buffer_size
    }

    fn cpus(&self) -> usize {
        self.config.rings
    }

    fn cpu_rings(&self) -> Result<Option<CpuRings>, Error> {
        let reader = |cpu| CpuReader::new(self.rings.reader(cpu), Some(self.nested.reader(cpu)));
        let object = self.objects.first().ok_or_else(|| Error::new("nothing is loaded"))?;
        Ok(Some(CpuRings {
            // A CPU that is offline may come back.
            readers: (0..self.config.rings).map(|cpu| (cpu as u16, reader(cpu))).collect(),
            times: Times::Ns,
            wake_ups: Box::new(WakeUpMap::new(&object.object)?),
            growth: LargerRings::new(self).map(|larger| Box::new(larger) as Box<dyn Growth>),
        }))
    }

    fn attach(&mut self, request: &Request) -> Result<(), Error> {
        let mut attaching = Attaching {
            programs: InPrograms::new(request.target.programs(&request.command)),
            calls: Calls::default(),
        };
        // As loaded: probes that are switched off keep their numbers.
        let mut probes = 0;
        for (n, (unit, base)) in INFO.units(request).into_iter().enumerate() {
            let part = Part { base, probes, copy: 0 };
            self.attach_unit(n, &unit.schema, part, &mut attaching)?;
            probes += unit.schema.probes.len() as u32;
        }
        if let Some([table, ..]) = &self.shared.system_calls {
            let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
            self.links.extend(attaching.calls.attach(&self.objects, table, &mut hits)?);
        }
        Ok(())
    }

    fn places(&self) -> Vec<String> {
        self.objects.iter().flat_map(|o| &o.places).map(Numbered::name).collect()
    }

    fn probes(&self) -> &[ProbeState] {
        &self.probes
    }

    fn enable(&self, disabled: &[u16]) -> Result<(), Error> {
        self.clear_variables()?;
        self.counters().iter().for_each(Counters::reset);
        self.objects.iter().filter_map(|o| o.states.as_ref()).for_each(Tables::begin);
        let ids = self.ids().filter(|id| !disabled.contains(id));
        ids.for_each(|id| self.switch(id, true));
        Ok(())
    }

    fn list(&self, moment: Moment, make_room: &mut dyn FnMut()) -> Vec<Error> {
        let mut take = |list: &Snapshot| list.take(moment, make_room).err();
        self.snapshots.iter().filter_map(&mut take).collect()
    }

    fn scope(&self) -> Option<&Scope> {
        Some(&self.scope)
    }

    fn left_names(&self) -> Result<Option<LeftNames>, Error> {
        let memory = map_memory(&self.shared.left_names, left_names::BYTES)?;
        Ok(Some(LeftNames::new(memory)))
    }

    fn keep(&mut self, facts: &[u8]) -> Result<(), Error> {
        self.keep_all(facts)
    }

    fn set_enabled(&self, event: &EventLayout, on: bool) {
        self.switch(event.id, on);
    }

    fn look(&self) {
        self.counters().iter_mut().for_each(Counters::look);
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).look(&self.objects, true);
    }

    fn disable(&self) {
        self.ids().for_each(|id| self.switch(id, false));
    }

    fn detach(&mut self) {
        self.links.clear();
        self.snapshots.clear();
        self.placed_links.clear();
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).detach();
        grace::wait();
    }

    fn account(&mut self, ledger: &mut Ledger) {
        let missing = self.counters().iter().flat_map(Counters::entries).collect::<Vec<_>>();
        ledger.entries.extend(missing);
        let states = self.objects.iter().filter_map(|o| o.states.as_ref());
        ledger.entries.extend(states.flat_map(Tables::entries));
        ledger.entries.extend(self.otel.iter().flat_map(Otel::entries));
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.limits.left_out()
    }

    fn ringless(&self, id: u16) -> u64 {
        self.ringless.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn unread(&self, id: u16) -> u64 {
        self.unread.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn fired(&self, trigger: u16) -> Option<Fired> {
        Some(self.fired.as_ref().map(|table| table.of(trigger)).unwrap_or_default())
    }

    fn missed_hits(&self) -> Vec<MissedHits> {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        hits.look(&self.objects, false);
        hits.missed(&self.objects)
    }

    fn user_code(&self) -> Option<UserCode> {
        let mappings = self.mappings.as_ref()?;
        let stacks = self.user_stacks.as_ref();
        Some(stacks.map_or_else(|| mappings.code(&[], Vec::new()), |stacks| stacks.code(mappings)))
    }

    fn stacks(&self) -> Option<&dyn StackTable> {
        self.stacks.as_ref().map(|table| table as &dyn StackTable)
    }
}

/// What the log says of a probe.
fn state(schema: &Schema, index: usize, plan: &Plan) -> ProbeState {
    let probe = &schema.probes[index];
    let shown = &probe.targets[plan.target.unwrap_or(0)];
    let refused = plan.refusals.iter().map(|(_, r)| r.message.clone());
    ProbeState {
        schema: schema.name.clone(),
        target: shown.label(),
        attached: plan.target.is_some(),
        note: reasons(refused.chain(plan.places_in_words(shown))),
        events: events_of(probe),
    }
}

/// What the probes of all schemata have in common while they are attached.
struct Attaching {
    programs: InPrograms,
    calls: Calls,
}

impl BpfEngine {
    /// Attaches the probes of a schema, whose programs are in object `n`.
    fn attach_unit(
        &mut self,
        n: usize,
        schema: &Schema,
        part: Part,
        attaching: &mut Attaching,
    ) -> Result<(), Error> {
        let Some(loaded) = self.objects.get(n) else { return Ok(()) };
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, plan) in loaded.plan.iter().enumerate() {
            if !schema.is_on(&schema.probes[i]) {
                continue;
            }
            self.probes.push(state(schema, i, plan));
            let Some(target) = plan.target.map(|target| &schema.probes[i].targets[target]) else {
                continue;
            };
            // None of its system calls is wanted.
            if plan.places.is_empty() {
                continue;
            }
            let mut placed = loaded.placed.iter().filter(|placed| placed.probe == i).peekable();
            if placed.peek().is_some() {
                for placed in placed {
                    self.placed_links.extend(placed.attach()?);
                    hits.add_placed(n, part, placed)?;
                }
                continue;
            }
            let its = |f: &Program| f.probe == i && plan.places_of(f).next().is_some();
            let program = programs(schema).into_iter().find(its);
            let program =
                program.ok_or_else(|| Error::new("a planned program was not generated"))?;
            if target.kind.is_system_call() {
                let number = part.probes as usize + i;
                let list = call_lists(schema).iter().position(|p| *p == program);
                let asking = Asking { program: &program.name, number, target, list };
                let places = loaded.places.iter().filter(|place| place.probe == i);
                attaching.calls.add(n, &loaded.object, &asking, places)?;
                continue;
            }
            let programs = Some(&attaching.programs);
            let places = loaded.places.iter().filter(|place| place.probe == i).collect();
            let site = Site { object: &loaded.object, target, programs, places };
            let attached = attach::attach(&program.name, &site)?;
            match Snapshot::of(target, attached.links) {
                Ok(snapshot) => self.snapshots.push(snapshot),
                Err(links) => {
                    self.links.extend(links);
                    hits.add(n, part, i, &program.name, target, attached.sampler);
                }
            }
        }
        Ok(())
    }

    fn counters(&self) -> MutexGuard<'_, Vec<Counters>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self) -> impl Iterator<Item = u16> {
        self.objects.iter().flat_map(|o| o.base..o.base + o.events as u16)
    }

    fn switch(&self, id: u16, enabled: bool) {
        if let Some(o) =
            self.objects.iter().find(|o| (o.base..o.base + o.events as u16).contains(&id))
        {
            let at = o.enabled.at(usize::from(id - o.base), 1);
            let state = if enabled { self.state_of(id) } else { 0 };
            // SAFETY: within the mapping; programs read the byte with single loads.
            unsafe { AtomicU8::from_ptr(at) }.store(state, Ordering::Relaxed);
        }
    }

    /// What it takes for an event that is on to be logged: an enum klogger_state.
    fn state_of(&self, id: u16) -> u8 {
        let is_own = id < FIRST_ID + self.objects.first().map_or(0, |own| own.events as u16);
        let limited = if self.limits.is_limited(id) { layout::LIMITED } else { 0 };
        let placed = if self.some_cpus && !is_own { layout::SOME_CPUS } else { 0 };
        (limited | placed).max(1)
    }

    /// Resets the variables that schemata keep between hits to what they were before the first hit.
    fn clear_variables(&self) -> Result<(), Error> {
        for map in self
            .objects
            .iter()
            .flat_map(|o| o.object.maps())
            .filter(|m| m.name().to_string_lossy().ends_with(".bss"))
        {
            let zeros = vec![0; map.value_size() as usize];
            let cannot = |e| Error::new(format!("cannot clear the variables of a schema: {e}"));
            map.update(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY).map_err(cannot)?;
        }
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).begin(&self.objects);
        Ok(())
    }
}
