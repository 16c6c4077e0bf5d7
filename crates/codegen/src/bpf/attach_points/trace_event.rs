// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Trace events, as programs that get the record which the kernel makes for perf.
//!
//! The offsets of fields are those of the kernel for which the schema is compiled. When a program
//! is attached, the kernel checks that it does not read beyond the record.

use super::{Frame, Hit, Row};
use crate::bpf::places::{Places, find};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::{Refusal, did_you_mean};
use crate::trace_event::{Field, Shape, TraceEvent};
use klogger_schema::model::{Param, ProbeKind, Target};
use std::collections::BTreeSet;

pub(super) static ROW: Row = Row {
    kind: ProbeKind::TraceEvent,
    hit: Hit::Plain,
    counted: false,
    needs: None,
    refuse,
    section: |target| match target.is_many() {
        // The recorder attaches it to each.
        true => "tp".into(),
        false => format!("tp/{}", target.name.replacen(':', "/", 1)),
    },
    arguments,
    frame: Frame::none,
    names: without_tracepoint,
    parameters: |kernel, name| {
        let event = kernel.trace_event(name)?;
        Ok(event.map(|e| e.fields.iter().map(parameter).collect()).unwrap_or_default())
    },
};

/// The trace events that are not made of a tracepoint of their name, which is listed as such: those
/// of system calls. None for users who cannot read about them.
fn without_tracepoint(kernel: &KernelTypes) -> Vec<String> {
    let points: BTreeSet<String> = kernel.tracepoints().into_iter().collect();
    let is_other = |full: &String| full.split_once(':').is_some_and(|(_, n)| !points.contains(n));
    kernel.trace_events().unwrap_or_default().into_iter().filter(is_other).collect()
}

/// As a probe would declare it.
fn parameter(field: &Field) -> Param {
    let ty = match field.shape {
        Shape::Number | Shape::Pointer | Shape::Other => field.ty.clone(),
        Shape::Array(_) | Shape::Text => format!("const {} *", field.ty),
    };
    Param { ty, name: field.name.clone() }
}

fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let name = &target.name;
    let Some(event) = kernel.trace_event(name)? else {
        let known = kernel.trace_events()?;
        return Ok(Some(Refusal::of_this_kernel(
            format!("this kernel has no trace event '{name}'"),
            did_you_mean(name, known.iter().map(String::as_str)),
        )));
    };
    if event.is_made() {
        return Ok(Some(event.made()));
    }
    let problems = target.params.iter().map(|param| problem(param, &event, kernel));
    Ok(problems.into_iter().flatten().next())
}

/// Why a parameter is not a field of the event.
fn problem(param: &Param, event: &TraceEvent, kernel: &KernelTypes) -> Option<Refusal> {
    let (full, name) = (event.full_name(), &param.name);
    let Some(field) = event.field(name) else {
        let names = event.fields.iter().map(|f| f.name.as_str());
        let all: Vec<&str> = names.clone().collect();
        return Some(Refusal::of_the_schema(
            format!("trace event '{full}' has no field '{name}'"),
            did_you_mean(name, names).unwrap_or_else(|| format!("it has {}", all.join(", "))),
        ));
    };
    if field.shape == Shape::Other {
        return Some(Refusal::of_the_schema(
            format!("the field '{name}' of trace event '{full}' cannot be a parameter"),
            format!("omit it: a '{}' of this form is neither a number nor a text", field.ty),
        ));
    }
    if kernel.is_of_type(param, field) {
        return None;
    }
    Some(Refusal::of_the_schema(
        format!("the type of '{name}' is not that of the field of trace event '{full}'"),
        format!("schema: {}\nkernel: {}", param.declare(), parameter(field).declare()),
    ))
}

/// One program reads the records of all places of a target, so its fields must be where they are in
/// the first one. Others that match a wildcard are left out; one that is named is refused.
pub(in crate::bpf) fn keep_equal(
    target: &Target,
    found: &mut Places,
    kernel: &KernelTypes,
) -> Result<Option<Refusal>, Error> {
    let Some(first) = found.places.first().map(|place| place.name.clone()) else { return Ok(None) };
    let there = layout(target, &first, kernel)?;
    let mut equal = Vec::new();
    for place in found.places.drain(..) {
        if layout(target, &place.name, kernel)? == there {
            equal.push(place);
        } else if target.patterns().any(|pattern| pattern == place.name) {
            let message = format!(
                "the fields of trace event '{}' are not at the same places as those of '{first}'",
                place.name
            );
            let help = "write a second probe for it".into();
            return Ok(Some(Refusal::of_the_schema(message, help)));
        } else {
            found.left_out.push(place.name);
        }
    }
    found.places = equal;
    Ok(None)
}

/// Where a trace event has the fields that a target's parameters name, and what they are.
fn layout(
    target: &Target,
    name: &str,
    kernel: &KernelTypes,
) -> Result<Vec<(u32, u32, bool, Shape)>, Error> {
    let event = kernel.trace_event(name)?;
    let fields = event.iter().flat_map(|event| target.params.iter().map(|p| event.field(&p.name)));
    Ok(fields.flatten().map(|f| (f.offset, f.size, f.signed, f.shape)).collect())
}

/// Reads the fields from the record, to which `klogger_arguments` points.
fn arguments(target: &Target, kernel: &KernelTypes) -> Result<Vec<String>, Error> {
    let missing = |what: &str| Error(format!("this kernel has no {what}"));
    let first = match target.is_many() {
        true => find(target, kernel)?.ok().and_then(|found| found.places.into_iter().next()),
        false => None,
    };
    let name = first.map_or(target.name.clone(), |place| place.name);
    let event = kernel.trace_event(&name)?;
    let event = event.ok_or_else(|| missing(&target.label()))?;
    let of = |param: &Param| {
        let field = event.field(&param.name);
        let field = field.ok_or_else(|| missing(&format!("{}.{}", target.name, param.name)))?;
        let (ty, at) = (&param.ty, field.offset);
        Ok(match (field.shape, field.size, field.signed) {
            (Shape::Array(_) | Shape::Other, ..) => format!("({ty})klogger_field({at})"),
            (Shape::Text, ..) => format!("({ty})klogger_text_field({at})"),
            (Shape::Pointer | Shape::Number, size, signed) => {
                let sign = if signed { 's' } else { 'u' };
                format!("({ty})klogger_number_field(__{sign}{}, {at})", 8 * size)
            }
        })
    };
    target.params.iter().map(of).collect()
}
