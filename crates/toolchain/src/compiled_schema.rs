// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A schema with its compiled object, and the plan of what can be attached to this kernel.

use crate::host_kernel::has_fast_srcu;
use klogger_codegen::kernel::{self, Place, Tracepoint, Tracepoints};
use klogger_codegen::{KernelTypes, bpf};
use klogger_os::Error;
use klogger_schema::Diagnostic;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Probe, ProbeKind, Schema, Target};
use klogger_schema::nearest::nearest;

/// A schema, compiled.
#[derive(Clone)]
pub struct CompiledSchema {
    pub schema: Schema,
    /// An ELF object for BPF; none if there are no probes, or nobody wants them.
    pub object: Option<Vec<u8>>,
}

impl CompiledSchema {
    /// Layouts of the schema's events, with ids from `base` on.
    pub fn layouts(&self, base: u16) -> Vec<EventLayout> {
        let events = self.schema.events.iter().zip(base..);
        events.map(|(e, id)| EventLayout::new(&self.schema.name, e, id)).collect()
    }
}

/// What will become of one probe on this kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Index of the target that will be attached.
    pub target: Option<usize>,
    /// Why the alternatives before it, or all, will not.
    pub refusals: Vec<Refusal>,
}

#[derive(Clone, Debug)]
pub struct Refusal {
    pub target: usize,
    pub message: String,
    pub help: Option<String>,
    /// The schema is wrong, not only the kernel different.
    pub wrong: bool,
}

/// Chooses for each probe the first alternative that this kernel has.
pub fn plan(schema: &Schema, kernel: &KernelTypes) -> Result<Vec<Plan>, Error> {
    schema.probes.iter().map(|probe| plan_probe(probe, kernel)).collect()
}

fn plan_probe(probe: &Probe, kernel: &KernelTypes) -> Result<Plan, Error> {
    let mut refusals = Vec::new();
    for (i, target) in probe.targets.iter().enumerate() {
        match refuse(i, target, kernel)? {
            None => return Ok(Plan { target: Some(i), refusals }),
            Some(refusal) => refusals.push(refusal),
        }
    }
    Ok(Plan { target: None, refusals })
}

/// The kernel calls a program inside an RCU read section. Its end can set need-resched, and this
/// tracepoint fires before the flag is set: so the kernel calls itself until its stack is full.
/// Linux 7.2 with PREEMPT_RT panics of it.
const NEED_RESCHED: &str = "sched_set_need_resched_tp";

fn refuse(index: usize, target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let refusal = |message, help, wrong| Ok(Some(Refusal { target: index, message, help, wrong }));
    if !bpf::supports(target.kind) {
        let message =
            format!("the bpf engine does not attach probes of kind '{}'", target.kind.word());
        return refusal(
            message,
            Some("use 'probe tracepoint', or the kernel engine".into()),
            false,
        );
    }
    let Some(prototype) = kernel.tracepoint(&target.name).map_err(Error::new)? else {
        let known = kernel.tracepoints();
        let near = nearest(&target.name, known.iter().map(String::as_str));
        let help =
            if near.is_empty() { None } else { Some(format!("did you mean {}?", near.join(", "))) };
        return refusal(format!("this kernel has no tracepoint '{}'", target.name), help, false);
    };
    if target.name == NEED_RESCHED && has_fast_srcu(kernel) {
        let message = format!(
            "on this kernel programs of '{NEED_RESCHED}' can hit themselves until the stack is full"
        );
        return refusal(
            message,
            Some("leave the event out: 'klogger show' says which others there are".into()),
            false,
        );
    }
    match kernel.mismatch(target, &prototype).map_err(Error::new)? {
        None => Ok(None),
        Some(theirs) => {
            let message = format!("the prototype of '{}' is not the kernel's", target.name);
            refusal(message, Some(format!("schema: {}\nkernel: {theirs}", spell(target))), true)
        }
    }
}

/// What a module will have, and what not.
#[derive(Clone, Debug)]
pub struct ModulePlan {
    pub probes: Vec<Plan>,
    /// All alternatives that this kernel may have. The first that can be attached is taken: which
    /// functions there are, headers do not say.
    pub places: Vec<Place>,
}

/// The same for the kernel engine, from a kernel's headers. `differs` says of which (probe, target)
/// the compiler has found that the prototype is not the kernel's.
pub fn plan_module(
    schema: &Schema,
    tracepoints: &Tracepoints,
    release: &str,
    differs: &dyn Fn(usize, usize) -> bool,
) -> ModulePlan {
    let mut plan = ModulePlan { probes: Vec::new(), places: Vec::new() };
    for (p, probe) in schema.probes.iter().enumerate() {
        let mut refusals = Vec::new();
        let before = plan.places.len();
        for (t, target) in probe.targets.iter().enumerate() {
            let tracepoint =
                tracepoints.get(&target.name).filter(|_| target.kind == ProbeKind::Tracepoint);
            match refuse_in_module(t, target, tracepoint, differs(p, t)) {
                None => {
                    plan.places.push(Place { probe: p, target: t, tracepoint: tracepoint.cloned() })
                }
                Some(refusal) => refusals.push(refusal),
            }
        }
        plan.probes
            .push(Plan { target: plan.places.get(before).map(|place| place.target), refusals });
    }
    name_alternatives(schema, tracepoints, release, &mut plan);
    plan
}

fn refuse_in_module(
    index: usize,
    target: &Target,
    tracepoint: Option<&Tracepoint>,
    differs: bool,
) -> Option<Refusal> {
    let refusal = |message: String, help: &str, wrong| {
        Some(Refusal {
            target: index,
            message,
            help: Some(help.to_string()).filter(|h| !h.is_empty()),
            wrong,
        })
    };
    match (target.kind, tracepoint) {
        (kind, _) if !kernel::supports(kind) => refusal(
            format!("the kernel engine does not attach probes of kind '{}'", kind.word()),
            "it knows 'tracepoint', 'function' and 'return'",
            false,
        ),
        (ProbeKind::Tracepoint, None) => refusal(String::new(), "", false),
        (ProbeKind::Tracepoint, Some(theirs))
            if differs || target.params.len() > theirs.parameters.len() =>
        {
            refusal(
                format!("the prototype of '{}' is not the kernel's", target.name),
                &format!("schema: {}\nkernel: {}", spell(target), theirs.spell(&target.name)),
                true,
            )
        }
        (ProbeKind::Return, _) if target.params.len() > 1 => refusal(
            format!(
                "a probe of kind 'return' has one parameter, the result, and this one of '{}' has more",
                target.name
            ),
            "log the function's parameters by a probe of kind 'function'",
            true,
        ),
        (ProbeKind::Function, _) if target.params.len() > 6 => refusal(
            format!("the probe of '{}' has more than 6 parameters", target.name),
            "only the first 6 come in registers, where a probe finds them: leave the others out",
            true,
        ),
        _ => None,
    }
}

/// What a tracepoint may be called that this kernel does not have.
fn name_alternatives(
    schema: &Schema,
    tracepoints: &Tracepoints,
    release: &str,
    plan: &mut ModulePlan,
) {
    for (probe, refusal) in plan
        .probes
        .iter_mut()
        .enumerate()
        .flat_map(|(p, plan)| plan.refusals.iter_mut().map(move |r| (p, r)))
    {
        if refusal.message.is_empty() {
            let name = &schema.probes[probe].targets[refusal.target].name;
            let near = nearest(name, tracepoints.keys().map(String::as_str));
            refusal.message =
                format!("the headers of kernel {release} have no tracepoint '{name}'");
            refusal.help =
                Some(format!("did you mean {}?", near.join(", "))).filter(|_| !near.is_empty());
        }
    }
}

/// What is wrong with a schema on this kernel: prototypes that differ, and places that are missing
/// although the schema names no alternative for them.
pub fn faults(schema: &Schema, plans: &[Plan]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (probe, plan) in schema.probes.iter().zip(plans).filter(|(_, p)| p.target.is_none()) {
        let foreseen = probe.targets.len() > 1;
        for r in plan.refusals.iter().filter(|r| r.wrong || !foreseen) {
            let diagnostic = Diagnostic::error(probe.targets[r.target].span, r.message.clone());
            found.push(match &r.help {
                Some(help) => diagnostic.help(help.clone()),
                None => {
                    diagnostic.help("name an alternative with 'or', or see 'klogger show' for what this kernel offers")
                }
            });
        }
    }
    found
}

/// A target as the schema has it: `tracepoint sched_switch(bool, struct task_struct *)`.
pub fn spell(target: &Target) -> String {
    let types: Vec<_> = target.params.iter().map(|p| p.ty.as_str()).collect();
    format!("{} {}({})", target.kind.word(), target.name, types.join(", "))
}

/// A target without its parameters: `tracepoint sched_switch`.
pub fn short(kind: ProbeKind, name: &str) -> String {
    format!("{} {name}", kind.word())
}
