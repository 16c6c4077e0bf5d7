// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Schemata, their events and probes as JSON, for `klogger show` and `klogger check`.

use super::states;
use crate::schemata::Opinion;
use klogger_schema::Severity;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Module, Probe, Rule, Schema, Target};
use klogger_toolchain::compiled_schema::Plan;
use serde_json::{Value, json};

/// `plans`: one for each probe, if known.
pub fn probes_json(schema: &Schema, plans: Option<&Vec<Plan>>) -> Vec<Value> {
    let one = |(i, probe): (usize, &Probe)| {
        let plan = plans.map(|p| &p[i]);
        let refusals = |p: &Plan| -> Vec<String> {
            p.refusals.iter().map(|(_, r)| r.message.clone()).collect()
        };
        json!({
            "targets": probe.targets.iter().map(Target::prototype).collect::<Vec<_>>(),
            "attach_points": probe.targets.iter().map(attach_point_json).collect::<Vec<_>>(),
            "line": schema.place(probe.span).1,
            "if": probe.switch.as_ref().map(|s| &s.parameter),
            "events": probe.calls.iter().map(|c| c.event.as_str()).collect::<Vec<_>>(),
            "attaches": plan.map(|p| p.target.is_some()),
            "places": plan.map(|p| p.places.iter().map(|at| &at.name).collect::<Vec<_>>()),
            "left_out": plan.map(|p| &p.left_out),
            "refusals": plan.map(refusals),
        })
    };
    schema.probes.iter().enumerate().map(one).collect()
}

fn attach_point_json(target: &Target) -> Value {
    let parameters: Vec<Value> =
        target.params.iter().map(|p| json!({ "type": p.ty, "name": p.name })).collect();
    json!({ "kind": target.kind.word(), "name": target.name, "parameters": parameters })
}

pub fn event_json(schema: &Schema, layout: &EventLayout) -> Value {
    json!({
        "name": layout.name,
        "doc": layout.doc,
        "line": schema.event(&layout.name).map(|e| schema.place(e.span).1),
        "role": layout.role,
        "bytes": layout.record_size(0),
        "bytes_max": layout.max_size(),
        "fields": layout.fields,
    })
}

/// Programs rely on the keys: a test lists them.
pub fn to_json(schema: &Schema, layouts: &[EventLayout], opinion: &Opinion) -> Value {
    let events: Vec<Value> = layouts.iter().map(|layout| event_json(schema, layout)).collect();
    let mut probes = probes_json(schema, opinion.plans.as_ref());
    if opinion.is_refused() {
        probes.iter_mut().for_each(|probe| probe["attaches"] = json!(false));
    }
    let refused =
        opinion.found.iter().find(|d| d.severity == Severity::Error).map(|d| d.message.clone());
    let module = |m: &Module| json!({ "name": m.name, "optional": m.optional });
    let rule = |r: &Rule| json!({ "name": r.name, "doc": r.doc, "text": r.text });
    let modules: Vec<Value> = schema.modules.iter().map(module).collect();
    json!({
        "schema": schema.name,
        "doc": schema.doc,
        "file": schema.file,
        "text": schema.text,
        "includes": schema.includes.files().collect::<Vec<_>>(),
        "events": events,
        "decodings": schema.decodings,
        "parameters": schema.parameters,
        "modules": modules,
        "states": schema.states.iter().map(|s| states::json(schema, s)).collect::<Vec<_>>(),
        "rules": schema.rules.iter().map(rule).collect::<Vec<_>>(),
        "probes": probes,
        "refused": refused,
        "kernel_error": opinion.unchecked,
    })
}
