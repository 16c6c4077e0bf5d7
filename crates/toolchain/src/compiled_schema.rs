// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A compiled schema, and the plan of what can be attached to this kernel.

pub use klogger_codegen::bpf::places::Place;
use klogger_codegen::bpf::places::Places;
use klogger_codegen::kernel::attach_points::Headers;
use klogger_codegen::kernel::{self, AttachPoint, Tracepoints};
use klogger_codegen::{KernelTypes, Refusal, bpf};
use klogger_os::Error;
use klogger_schema::Diagnostic;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Probe, Schema, Target};

/// A schema, compiled.
#[derive(Clone)]
pub struct CompiledSchema {
    pub schema: Schema,
    /// An ELF object for BPF; `None` if the schema has no probes, or the object is not needed.
    pub object: Option<Vec<u8>>,
}

impl CompiledSchema {
    /// Layouts of the schema's events, with ids from `base` on.
    pub fn layouts(&self, base: u16) -> Vec<EventLayout> {
        let events = self.schema.events.iter().zip(base..);
        events.map(|(e, id)| EventLayout::new(&self.schema.name, e, id)).collect()
    }
}

/// The plan for one probe on this kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Index of the target that will be attached.
    pub target: Option<usize>,
    /// Its places in this kernel: one, unless the target names several. Only of the bpf engine.
    pub places: Vec<Place>,
    /// Attach points that match its wildcards, but cannot be attached.
    pub left_out: Vec<String>,
    /// Why the alternatives before it, or all, cannot be attached; each with its index.
    pub refusals: Vec<(usize, Refusal)>,
}

impl Plan {
    /// No target can be attached.
    pub fn none(refusals: Vec<(usize, Refusal)>) -> Plan {
        Plan { target: None, places: Vec::new(), left_out: Vec::new(), refusals }
    }

    /// The places of this program of the probe.
    pub fn places_of(&self, program: &bpf::Program) -> impl Iterator<Item = &Place> {
        let is_its = self.target == Some(program.target);
        self.places.iter().filter(move |place| is_its && place.way == program.way)
    }

    /// What a target that names several attach points has become, in words.
    pub fn places_in_words(&self, target: &Target) -> Option<String> {
        let list = |names: Vec<&str>| match names.len() {
            0..=4 => names.join(", "),
            n => format!("{} and {} more", names[..3].join(", "), n - 3),
        };
        let places: Vec<&str> = self.places.iter().map(|place| place.name.as_str()).collect();
        let noun = if places.len() == 1 { "place" } else { "places" };
        let mut words = format!("{} {noun}: {}", places.len(), list(places));
        if !self.left_out.is_empty() {
            let left_out: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
            let count = left_out.len();
            let why = match target.kind {
                kind if kind.is_system_call() => {
                    "that this kernel does not have, or not with these parameters"
                }
                _ => "with other parameters",
            };
            words += &format!("; left out {count} {why}: {}", list(left_out));
        }
        (self.target.is_some() && target.is_many()).then_some(words)
    }
}

/// What the author of a schema can do about types that a kernel lacks.
const ANOTHER: &str = "name an alternative with 'or', or test for the member in C: \
                       docs/language/other-kernels.md";

/// Chooses for each probe the first alternative that the bpf engine can attach to this kernel.
pub fn plan(schema: &Schema, kernel: &KernelTypes) -> Result<Vec<Plan>, Error> {
    schema.probes.iter().map(|probe| plan_probe(probe, kernel)).collect()
}

fn plan_probe(probe: &Probe, kernel: &KernelTypes) -> Result<Plan, Error> {
    let mut refusals = Vec::new();
    for (i, target) in probe.targets.iter().enumerate() {
        if let Some(why) = &target.lacks {
            refusals.push((i, Refusal::of_this_kernel(why.clone(), Some(ANOTHER.into()))));
            continue;
        }
        let found = bpf::places::find(target, kernel).map_err(Error::new)?;
        match found {
            Ok(Places { places, left_out }) => {
                let places = places.into_iter().filter(|place| target.wants(&place.name)).collect();
                return Ok(Plan { target: Some(i), places, left_out, refusals });
            }
            Err(refusal) => refusals.push((i, refusal)),
        }
    }
    Ok(Plan::none(refusals))
}

/// The plan for a module.
#[derive(Clone, Debug)]
pub struct ModulePlan {
    pub probes: Vec<Plan>,
    /// All alternatives that this kernel may have. The first one that can be attached is used;
    /// headers do not tell which functions exist.
    pub attach_points: Vec<AttachPoint>,
}

/// The plan for the kernel engine, from a kernel's headers. `differs`: whether the compiler has
/// found that the prototype of a (probe, target) is not the kernel's.
pub fn plan_module(
    schema: &Schema,
    tracepoints: &Tracepoints,
    release: &str,
    differs: &dyn Fn(usize, usize) -> bool,
) -> ModulePlan {
    let mut plan = ModulePlan { probes: Vec::new(), attach_points: Vec::new() };
    for (p, probe) in schema.probes.iter().enumerate() {
        let mut refusals = Vec::new();
        let before = plan.attach_points.len();
        for (t, target) in probe.targets.iter().enumerate() {
            let headers = Headers { tracepoints, release, differs: differs(p, t) };
            match kernel::attach_points::find(target, &headers) {
                Ok(tracepoint) => {
                    plan.attach_points.push(AttachPoint { probe: p, target: t, tracepoint });
                }
                Err(refusal) => refusals.push((t, refusal)),
            }
        }
        let target = plan.attach_points.get(before).map(|point| point.target);
        plan.probes.push(Plan { target, ..Plan::none(refusals) });
    }
    plan
}

/// Errors of a schema for this kernel: prototypes that differ, and missing attach points for which
/// the schema names no alternative.
pub fn faults(schema: &Schema, plans: &[Plan]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (probe, plan) in schema.probes.iter().zip(plans).filter(|(_, p)| p.target.is_none()) {
        let foreseen = probe.targets.len() > 1;
        for (target, r) in plan.refusals.iter().filter(|(_, r)| r.wrong || !foreseen) {
            let diagnostic = Diagnostic::error(probe.targets[*target].span, r.message.clone());
            found.push(match &r.help {
                Some(help) => diagnostic.help(help.clone()),
                None => diagnostic.help(
                    "name an alternative with 'or', or see 'klogger show' for what \
                                     this kernel offers",
                ),
            });
        }
    }
    found
}
