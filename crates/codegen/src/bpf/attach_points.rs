// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kinds of attach points of the bpf engine. One row each: how a target is checked against the
//! kernel's types, what its program looks like, and which attach points the kernel has.
//! `crates/engines/src/bpf/attach.rs` has the same rows for attaching programs.

mod snapshot;
mod trace_event;
mod tracepoint;
mod usdt;
mod user;

use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::Refusal;
use klogger_schema::model::{Param, ProbeKind, Target};

/// What this engine knows of a kind.
pub struct Row {
    pub kind: ProbeKind,
    /// Such programs run with preemption on, also on kernels on which those of tracepoints do not.
    pub(super) preempted: bool,
    /// Why the kernel cannot attach it: it has no such attach point, or the prototype differs from
    /// the schema's.
    refuse: fn(&Target, &KernelTypes) -> Result<Option<Refusal>, Error>,
    /// The section of the ELF object that holds a target's program, from which libbpf takes the
    /// program's type and what it attaches to.
    pub(super) section: fn(&Target) -> String,
    /// The parameters as the body gets them, in C; the program's context is `klogger_arguments`, a
    /// pointer to u64.
    pub(super) arguments: fn(&Target, &KernelTypes) -> Result<Vec<String>, Error>,
    /// What a program does before its hit begins, and after it has ended; mostly nothing.
    pub(super) frame: fn(&Target) -> Frame,
    /// The names of all attach points of the kind that a kernel has.
    names: fn(&KernelTypes) -> Vec<String>,
    /// The parameters of an attach point, as a schema would declare them.
    parameters: fn(&KernelTypes, name: &str) -> Result<Vec<Param>, Error>,
}

const ROWS: [&Row; 7] = [
    &tracepoint::ROW,
    &trace_event::ROW,
    &user::ROW,
    &user::RETURN_ROW,
    &usdt::ROW,
    &snapshot::START,
    &snapshot::END,
];

/// C statements of a program besides its hit.
#[derive(Default)]
pub(super) struct Frame {
    /// They may return 0: then there is no hit.
    pub before: String,
    pub after: &'static str,
}

impl Frame {
    fn none(_: &Target) -> Frame {
        Frame::default()
    }
}

/// An attach point of a kernel.
pub struct AttachPoint {
    row: &'static Row,
    pub name: String,
}

impl AttachPoint {
    pub fn kind(&self) -> ProbeKind {
        self.row.kind
    }

    /// As a schema would declare them.
    pub fn parameters(&self, kernel: &KernelTypes) -> Result<Vec<Param>, Error> {
        (self.row.parameters)(kernel, &self.name)
    }
}

/// The row of a kind, if this engine attaches such probes.
pub fn of(kind: ProbeKind) -> Option<&'static Row> {
    ROWS.into_iter().find(|row| row.kind == kind)
}

/// Whether programs of a kind run with preemption on, on every kernel that preempts.
pub fn is_preempted(kind: ProbeKind) -> bool {
    of(kind).is_some_and(|row| row.preempted)
}

/// `None` if the target can be attached to the kernel with these types.
pub fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    match of(target.kind) {
        Some(row) => (row.refuse)(target, kernel),
        None => {
            let elsewhere = match crate::kernel::attach_points::of(target.kind) {
                Some(_) if kernel.takes_modules() => "; the kernel engine attaches such probes",
                Some(_) | None => "; 'klogger tracepoints' lists those of a kernel",
            };
            let has = ROWS.map(|row| row.kind);
            Ok(Some(Refusal::of_kind("bpf", target.kind, &has, elsewhere)))
        }
    }
}

/// All attach points of a kernel, of every kind that this engine attaches.
pub fn list(kernel: &KernelTypes) -> Vec<AttachPoint> {
    let of_row = |row: &'static Row| {
        (row.names)(kernel).into_iter().map(move |name| AttachPoint { row, name })
    };
    ROWS.into_iter().flat_map(of_row).collect()
}
