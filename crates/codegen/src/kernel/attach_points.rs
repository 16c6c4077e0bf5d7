// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kinds of attach points of the kernel engine. One row each: how a target is checked against
//! the kernel's headers, and the C of its handler. `runtime/kernel/probe.c` attaches it, and
//! `crates/engines/src/kernel/probes.rs` explains its errors.

mod function;
mod returns;
mod tracepoint;

pub use tracepoint::prototype_complaint;

use super::tracepoints::{Tracepoint, Tracepoints};
use crate::refusal::Refusal;
use crate::text::Text;
use klogger_schema::model::{ProbeKind, Target};

/// What this engine knows of a kind.
pub struct Row {
    pub kind: ProbeKind,
    /// Whether the kernel's headers declare such attach points: those of tracepoints.
    pub in_headers: bool,
    /// The declaration of a target in the headers, or why a module cannot attach to it.
    find: fn(&Target, &Headers) -> Result<Option<Tracepoint>, Refusal>,
    /// The kernel option, CONFIG_..., without which the handler cannot be compiled.
    pub(super) config: Option<&'static str>,
    /// Adds the C of `function`, which the kernel calls, and what is needed to register it.
    pub(super) handler: fn(&mut Text, &Target, &AttachPoint, function: &str),
    /// The value of `kind` in `struct klogger_attach_point`, and the member that names the handler.
    pub(super) constant: &'static str,
    pub(super) member: fn(function: &str) -> String,
}

const ROWS: [&Row; 3] = [&tracepoint::ROW, &function::ROW, &returns::ROW];

/// What a target is compared with.
pub struct Headers<'a> {
    pub tracepoints: &'a Tracepoints,
    /// The kernel release, for messages.
    pub release: &'a str,
    /// The compiler has found that the kernel's prototype is a different one.
    pub differs: bool,
}

/// An alternative of a probe that will be in the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPoint {
    /// Index into `Schema::probes`, and into that probe's targets.
    pub probe: usize,
    pub target: usize,
    /// The kernel's declaration, if it is a tracepoint.
    pub tracepoint: Option<Tracepoint>,
}

/// The row of a kind, if this engine attaches such probes.
pub fn of(kind: ProbeKind) -> Option<&'static Row> {
    ROWS.into_iter().find(|row| row.kind == kind)
}

/// The declaration of a target in the headers, or why a module cannot attach to it. Functions have
/// no declaration here: whether one exists is known when the probe is attached.
pub fn find(target: &Target, headers: &Headers) -> Result<Option<Tracepoint>, Refusal> {
    match of(target.kind) {
        Some(_) if target.is_many() => Err(Refusal::of_this_kernel(
            format!("the kernel engine attaches a probe to one place, not to '{}'", target.label()),
            Some("write a probe for each place, or record with --engine bpf".into()),
        )),
        Some(row) => (row.find)(target, headers),
        None => {
            let has = ROWS.map(|row| row.kind);
            Err(Refusal::of_kind("kernel", target.kind, &has, ""))
        }
    }
}
