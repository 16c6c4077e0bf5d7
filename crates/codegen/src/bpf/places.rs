// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From a target to its places in a kernel: one, or those that its list and its wildcards name.

use super::attach_points::{names, syscall, trace_event, user, way};
use super::{Program, numbers_places, programs};
use crate::kernel_types::{Error, InPrograms, KernelTypes};
use crate::refusal::Refusal;
use klogger_schema::model::{ProbeKind, Schema, Target};
use klogger_schema::wildcard::{self, matches};
use std::collections::BTreeSet;

/// Where a probe is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: String,
    /// The number of the way in which it is attached: see [`super::attach_points::ways`].
    pub way: usize,
}

/// The places of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub places: Vec<Place>,
    /// Those that match its wildcards, but cannot be attached: as a rule for their parameters.
    pub left_out: Vec<String>,
}

/// Attach points that match a target's wildcards at most: each is compared with its prototype.
const MATCHES_MAX: usize = 4096;

/// Whether the places of a target have numbers, which `klogger_place()` gives.
pub fn have_numbers(schema: &Schema, target: &Target) -> bool {
    target.kind.takes_many() && (target.is_many() || numbers_places(schema))
}

/// The number of the place in C, where it is found out at a hit. `LIST` is a number of
/// [`call_lists`].
pub(super) fn number_in_c(kind: ProbeKind) -> Option<&'static str> {
    match kind {
        kind if kind.is_system_call() => Some("klogger_place_of_call(klogger_arguments[0], LIST)"),
        kind => kind.finds_place().then_some("klogger_place_of_link(klogger_arguments)"),
    }
}

/// The programs for system calls whose places have numbers. The position of one is its number.
pub fn call_lists(schema: &Schema) -> Vec<Program> {
    let is_one = |p: &Program| {
        let target = &schema.probes[p.probe].targets[p.target];
        target.kind.is_system_call() && have_numbers(schema, target)
    };
    programs(schema).into_iter().filter(is_one).collect()
}

/// The places of a target in a kernel, or why it has none.
pub fn find(target: &Target, kernel: &KernelTypes) -> Result<Result<Places, Refusal>, Error> {
    if target.is_many() && target.kind.is_in_program() {
        return Ok(in_programs(target, kernel));
    }
    let mut found = Places::default();
    let mut why = None;
    for pattern in target.patterns() {
        if !is_pattern(pattern, target) {
            match way(&target.at(pattern), kernel)? {
                Ok(way) => found.add(pattern, way),
                // A list names what kernels of several versions and machines call.
                Err(refusal)
                    if target.is_many()
                        && !refusal.wrong
                        && syscall::is_another(target, pattern) =>
                {
                    found.left_out.push(pattern.into());
                    why = why.or(Some(refusal));
                }
                Err(refusal) => return Ok(Err(refusal)),
            }
            continue;
        }
        let all = candidates(target.kind, kernel)?;
        let matching: Vec<&String> = all.iter().filter(|name| matches(pattern, name)).collect();
        if matching.len() > MATCHES_MAX {
            return Ok(Err(too_many(target, matching.len(), "match")));
        }
        for name in matching {
            match way(&target.at(name), kernel)? {
                Ok(way) => found.add(name, way),
                Err(refusal) => {
                    found.left_out.push(name.clone());
                    why = why.or(Some(refusal));
                }
            }
        }
    }
    if target.kind == ProbeKind::TraceEvent
        && let Some(refusal) = trace_event::keep_equal(target, &mut found, kernel)?
    {
        return Ok(Err(refusal));
    }
    Ok(bounded(target, found, why))
}

/// The names that a wildcard is compared with.
fn candidates(kind: ProbeKind, kernel: &KernelTypes) -> Result<Vec<String>, Error> {
    match kind {
        // Also those that are listed as tracepoints.
        ProbeKind::TraceEvent => kernel.trace_events(),
        kind if kind.is_system_call() => Ok(syscall::single(kernel)),
        _ => Ok(names(kind, kernel)),
    }
}

/// Of a target that names several places in programs.
fn in_programs(target: &Target, kernel: &KernelTypes) -> Result<Places, Refusal> {
    if let Some(refusal) = user::unpassable(target) {
        return Err(refusal);
    }
    // Until the program is known, the names are as they are written.
    let found = kernel.places_in_programs(target)?.unwrap_or_else(|| InPrograms {
        names: target.patterns().map(String::from).collect(),
        left_out: Vec::new(),
    });
    let place = |name| Place { name, way: 0 };
    let places = found.names.into_iter().map(place).collect();
    bounded(target, Places { places, left_out: found.left_out }, None)
}

/// Not more places than there can be, and one at least. `why` one was left out.
fn bounded(target: &Target, found: Places, why: Option<Refusal>) -> Result<Places, Refusal> {
    let left_out: BTreeSet<String> = found.left_out.into_iter().collect();
    let found = Places { left_out: left_out.into_iter().collect(), ..found };
    match (found.places.len(), why) {
        (0, why) => Err(none(target, found.left_out.len(), why)),
        (n, _) if n > target.kind.places_max() => {
            Err(too_many(target, n, "match, with these parameters"))
        }
        _ => Ok(found),
    }
}

pub(super) fn is_pattern(name: &str, target: &Target) -> bool {
    target.is_many() && wildcard::is_pattern(name)
}

impl Places {
    fn add(&mut self, name: &str, way: usize) {
        if self.places.iter().all(|place| place.name != name) {
            self.places.push(Place { name: name.into(), way });
        }
    }
}

fn too_many(target: &Target, count: usize, how: &str) -> Refusal {
    let (label, noun) = (target.label(), target.kind.noun());
    let message = match target.kind.is_in_program() {
        true => format!("'{label}' is too many places: {count} match"),
        false => {
            format!("'{label}' is too many places: {count} of this kernel's {noun}s {how}")
        }
    };
    let most = target.kind.places_max();
    let help = format!("a probe has at most {most} places: write more of their names");
    Refusal::of_the_schema(message, help)
}

/// No attach point matches, or none with these parameters.
fn none(target: &Target, left_out: usize, why: Option<Refusal>) -> Refusal {
    let label = target.label();
    match why {
        None => Refusal::of_this_kernel(
            format!("this kernel has no {} '{}'", target.kind.noun(), target.name),
            Some(format!(
                "'klogger places WORD --kind {}' lists those with a word",
                match target.kind {
                    ProbeKind::Return => ProbeKind::Function.word(),
                    kind => kind.word().trim_start_matches("return "),
                }
            )),
        ),
        // Not for one of them only.
        Some(why) if !why.wrong => why,
        Some(why) => Refusal {
            message: format!(
                "none of the {left_out} places that '{label}' matches can be attached: of the \
                 first, {}",
                why.message
            ),
            ..why
        },
    }
}
