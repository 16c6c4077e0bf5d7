// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From a target to its places in a kernel: one, or those that its list and its wildcards name.

use super::attach_points::{names, way};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::Refusal;
use klogger_schema::attach_points::PLACES_MAX;
use klogger_schema::model::Target;
use klogger_schema::wildcard::matches;
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

/// The places of a target in a kernel, or why it has none.
pub fn find(target: &Target, kernel: &KernelTypes) -> Result<Result<Places, Refusal>, Error> {
    let mut found = Places::default();
    let mut why = None;
    for pattern in target.patterns() {
        if !is_pattern(pattern, target) {
            match way(&target.at(pattern), kernel)? {
                Ok(way) => found.add(pattern, way),
                Err(refusal) => return Ok(Err(refusal)),
            }
            continue;
        }
        let all = names(target.kind, kernel);
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
    let distinct: BTreeSet<String> = found.left_out.drain(..).collect();
    found.left_out.extend(distinct);
    Ok(match (found.places.len(), why) {
        (0, why) => Err(none(target, found.left_out.len(), why)),
        (n, _) if n > PLACES_MAX => Err(too_many(target, n, "match, with these parameters")),
        _ => Ok(found),
    })
}

fn is_pattern(name: &str, target: &Target) -> bool {
    target.is_many() && name.contains(['*', '?'])
}

impl Places {
    fn add(&mut self, name: &str, way: usize) {
        if self.places.iter().all(|place| place.name != name) {
            self.places.push(Place { name: name.into(), way });
        }
    }
}

fn too_many(target: &Target, count: usize, how: &str) -> Refusal {
    Refusal::of_the_schema(
        format!(
            "'{}' is too many places: {count} of this kernel's {}s {how}",
            target.label(),
            target.kind.noun()
        ),
        format!("a probe has at most {PLACES_MAX} places: write more of their names"),
    )
}

/// No attach point matches, or none with these parameters.
fn none(target: &Target, left_out: usize, why: Option<Refusal>) -> Refusal {
    let label = target.label();
    match why {
        None => Refusal::of_this_kernel(
            format!("this kernel has no {} '{}'", target.kind.noun(), target.name),
            Some(format!(
                "'klogger places WORD --kind {}' lists those with a word",
                target.kind.word().replace(' ', "-")
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
