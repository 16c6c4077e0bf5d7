// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kinds of attach points that this engine's modules can have. One row each: how a target is
//! checked against the kernel's headers, and the C of its handler. How the core module attaches it
//! is in `runtime/kernel/probe.c`, and what its errors mean in
//! `crates/engines/src/kernel/probes.rs`.

mod function;
mod returns;
mod tracepoint;

use super::tracepoints::{Tracepoint, Tracepoints};
use crate::refusal::Refusal;
use crate::text::Text;
use klogger_schema::model::{ProbeKind, Target};

/// What this engine knows of a kind.
pub struct Row {
    pub kind: ProbeKind,
    /// Whether the kernel's headers declare such attach points: those of tracepoints.
    pub in_headers: bool,
    /// What the headers have for a target, or why a module cannot attach to it.
    find: fn(&Target, &Headers) -> Result<Option<Tracepoint>, Refusal>,
    /// Without this option of its own, CONFIG_..., a kernel cannot compile the handler.
    pub(super) config: Option<&'static str>,
    /// The C of `function`, which the kernel calls, and what of the kernel's it takes to register
    /// it.
    pub(super) handler: fn(&mut Text, &Target, &AttachPoint, function: &str),
    /// The value of `kind` in `struct klogger_place`, and the member that names the handler.
    pub(super) constant: &'static str,
    pub(super) member: fn(function: &str) -> String,
}

const ROWS: [&Row; 3] = [&tracepoint::ROW, &function::ROW, &returns::ROW];

/// What a target is compared with.
pub struct Headers<'a> {
    pub tracepoints: &'a Tracepoints,
    /// Of the kernel, for messages.
    pub release: &'a str,
    /// The compiler has found that the prototype is not the kernel's.
    pub differs: bool,
}

/// An alternative of a probe that the module will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPoint {
    /// Index into `Schema::probes`, and into that probe's targets.
    pub probe: usize,
    pub target: usize,
    /// The kernel's declaration, if it is one of a tracepoint.
    pub tracepoint: Option<Tracepoint>,
}

/// The row of a kind, if this engine attaches such probes.
pub fn of(kind: ProbeKind) -> Option<&'static Row> {
    ROWS.into_iter().find(|row| row.kind == kind)
}

/// What the headers have for a target, or why a module cannot attach to it. That headers have
/// nothing for a function means nothing: whether there is one is known when it is attached.
pub fn find(target: &Target, headers: &Headers) -> Result<Option<Tracepoint>, Refusal> {
    match of(target.kind) {
        Some(row) => (row.find)(target, headers),
        None => {
            let has = ROWS.map(|row| row.kind);
            Err(Refusal::of_kind("kernel", target.kind, &has, ""))
        }
    }
}
