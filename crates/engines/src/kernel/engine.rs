// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `Engine` trait for the kernel engine.

use super::device::{self, SchemaAbout};
use super::layout::add_anchor;
use super::schemata::failed;
use super::wake_ups::DeviceWakeUps;
use super::{KernelEngine, probes};
use crate::cpu_rings::CpuRings;
use crate::engine::{Engine, EngineInfo, Forecast};
use crate::losses::{Fired, MissedHits};
use crate::request::Request;
use crate::scope::Scope;
use crate::stacks::StackTable;
use klogger_codegen::kernel::MAKER;
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::Error;
use klogger_schema::layout::EventLayout;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::{host_kernel, kbuild};
use std::sync::atomic::Ordering;

/// Its entry in the registry.
pub const INFO: EngineInfo = EngineInfo {
    name: "kernel",
    description: "probes in the kernel, as modules built for it; and programs, as user",
    check: || {
        host_kernel::check_module_privilege().and_then(|()| host_kernel::check_takes_modules())
    },
    probes: true,
    finds_programs: false,
    maker: &MAKER,
    plan: Some(|schema| {
        let unchecked = Some(
            "types of parameters are compared when modules are built, and functions are looked up \
             when they are attached",
        );
        Ok(Forecast { plans: kbuild::plan_probes(schema)?, unchecked })
    }),
    build: Some(kbuild::build),
    logs,
    prepare: |request, _| Ok(Box::new(KernelEngine::load(request, &INFO.units(request))?)),
};

/// Schemata that are in the kernel already may have `klogger()` calls and no probes.
fn logs(request: &Request, unit: &CompiledSchema) -> bool {
    !unit.schema.probes.is_empty() || request.resident.contains(&unit.schema.name)
}

impl Engine for KernelEngine {
    fn info(&self) -> &'static EngineInfo {
        &INFO
    }

    fn lacks_stacks(&self) -> bool {
        true
    }

    fn costs(&self) -> Option<Costs> {
        self.costs.clone()
    }

    fn ring_size(&self, request: &Request) -> u64 {
        request.buffer_size
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn cpu_rings(&self) -> Result<Option<CpuRings>, Error> {
        let (device, anchors) = (self.device.clone(), self.anchors.clone());
        Ok(Some(CpuRings {
            readers: self.layout.readers(&self.rings),
            times: self.times.clone(),
            wake_ups: Box::new(DeviceWakeUps { device, anchors, cpus: self.layout.cpus }),
            growth: None,
        }))
    }

    fn attach(&mut self, request: &Request) -> Result<(), Error> {
        self.device.attach().map_err(failed("attach its probes"))?;
        let units = INFO.units(request);
        for (((unit, _), about), ours) in units.iter().zip(&self.schemata).zip(&self.ours) {
            let places = self.places(about)?;
            let states = probes::states(&unit.schema, &places);
            if *ours {
                probes::check(&unit.schema, &states)?;
            }
            self.probes.extend(states);
        }
        Ok(())
    }

    fn probes(&self) -> &[ProbeState] {
        &self.probes
    }

    fn enable(&self, disabled: &[u16]) -> Result<(), Error> {
        self.device.forget().map_err(failed("clear the variables of a schema"))?;
        self.ids.iter().for_each(|id| self.switch(*id, !disabled.contains(id)));
        Ok(())
    }

    fn scope(&self) -> Option<&Scope> {
        Some(&self.scope)
    }

    /// Nothing outlives the recorder. But if the kernel crashes, its memory image has the rings.
    fn keep(&mut self, facts: &[u8]) -> Result<(), Error> {
        // Optional: where the kernel does not report physical pages, the rings cannot be found in
        // an image.
        let _ = add_anchor(&self.anchors, &self.device, &self.layout, &self.rings, Some(facts));
        Ok(())
    }

    fn set_enabled(&self, event: &EventLayout, on: bool) {
        self.switch(event.id, on);
    }

    fn disable(&self) {
        self.ids.iter().for_each(|id| self.switch(*id, false));
    }

    fn detach(&mut self) {
        // It cannot fail; closing the device would detach the probes as well.
        let _ = self.device.detach();
    }

    fn account(&mut self, ledger: &mut Ledger) {
        ledger.kernel_clock = self.times.event_clock();
    }

    fn ringless(&self, id: u16) -> u64 {
        self.ringless.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn fired(&self, trigger: u16) -> Option<Fired> {
        let at = device::FIRED * usize::from(trigger).checked_sub(1)?;
        let word = |member| self.fired.word(at + member).load(Ordering::Relaxed);
        let hits = word(device::FIRED_HITS);
        if hits == 0 {
            return Some(Fired::default());
        }
        let time = |member| self.times.ns(word(member));
        Some(Fired { hits, first: time(device::FIRED_FIRST), last: time(device::FIRED_LAST) })
    }

    fn missed_hits(&self) -> Vec<MissedHits> {
        let mut missed = Vec::new();
        for about in &self.schemata {
            for place in self.places(about).unwrap_or_default().iter().filter(|p| p.missed > 0) {
                let (schema, place, count) = (about.name(), place.name(), place.missed);
                missed.push(MissedHits {
                    schema,
                    place,
                    count,
                    spans: Vec::new(),
                    why: String::new(),
                    sampled: false,
                });
            }
        }
        missed
    }

    fn stacks(&self) -> Option<&dyn StackTable> {
        self.stacks.as_ref().map(|table| table as &dyn StackTable)
    }
}

impl KernelEngine {
    fn switch(&self, id: u16, on: bool) {
        // Fails only for an event that the kernel does not know.
        let _ = self.device.event(id, on);
    }

    fn places(&self, about: &SchemaAbout) -> Result<Vec<device::ProbeAbout>, Error> {
        (0..about.probes)
            .map(|place| self.device.place(about.index, place).map_err(failed("report its probes")))
            .collect()
    }
}
