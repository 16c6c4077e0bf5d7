// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kinds of attach points of the bpf engine. One row each: how a target is checked against the
//! kernel's types, what its program looks like, and which attach points the kernel has.
//! `crates/engines/src/bpf/attach.rs` has the same rows for attaching programs.

mod function;
pub(super) mod sampled;
mod snapshot;
pub mod syscall;
pub(super) mod trace_event;
mod tracepoint;
mod usdt;
pub(super) mod user;

use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::Refusal;
use klogger_schema::model::{Param, ProbeKind, Target};

/// What this engine knows of a kind.
pub struct Row {
    pub kind: ProbeKind,
    pub(super) hit: Hit,
    /// The recorder knows how many hits there should be, so the program counts those that there
    /// are.
    pub(super) counted: bool,
    /// What the BPF runtime has only for schemata that define this name.
    pub(super) needs: Option<&'static str>,
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

/// How a program begins and ends its hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    Plain,
    /// Such programs run with preemption on, also on kernels on which those of tracepoints do not.
    Preempted,
    /// Called by the program that runs at every entry to a system call.
    CallEntry,
    /// As above, at every return.
    CallExit,
}

impl Hit {
    /// The calls of the runtime, up to the arguments that all of them have.
    pub(super) fn calls(self) -> (&'static str, &'static str) {
        match self {
            Hit::Plain => ("klogger_begin(", "klogger_end("),
            Hit::Preempted => ("klogger_begin_preempted(&klogger_hit, ", "klogger_end_preempted("),
            Hit::CallEntry => ("klogger_begin_call(", "klogger_end_entry("),
            Hit::CallExit => ("klogger_begin_call(", "klogger_end_exit("),
        }
    }
}

/// A kind has several rows if there are several ways to attach it, in order of preference.
const ROWS: [&Row; 18] = [
    &tracepoint::ROW,
    &trace_event::ROW,
    &function::FENTRY,
    &function::KPROBE,
    &function::UNTYPED_KPROBE,
    &function::FEXIT,
    &function::KRETPROBE,
    &function::UNTYPED_KRETPROBE,
    &user::ROW,
    &user::RETURN_ROW,
    &usdt::ROW,
    &sampled::TIMER,
    &sampled::ROW,
    &sampled::BREAKPOINT,
    &snapshot::START,
    &snapshot::END,
    &syscall::ENTRY,
    &syscall::RETURN,
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

/// The first row of a kind, if this engine attaches such probes.
pub fn of(kind: ProbeKind) -> Option<&'static Row> {
    ways(kind).next()
}

/// All rows of a kind.
pub fn ways(kind: ProbeKind) -> impl Iterator<Item = &'static Row> {
    ROWS.into_iter().filter(move |row| row.kind == kind)
}

/// Whether programs of a kind run with preemption on, on every kernel that preempts.
pub fn is_preempted(kind: ProbeKind) -> bool {
    of(kind).is_some_and(|row| row.hit == Hit::Preempted)
}

/// The way in which the kernel with these types attaches the target: the number of a row of
/// [`ways`]. If there is none, why not, by the first one.
pub fn way(target: &Target, kernel: &KernelTypes) -> Result<Result<usize, Refusal>, Error> {
    let mut refusal = None;
    for (number, row) in ways(target.kind).enumerate() {
        match (row.refuse)(target, kernel)? {
            None => return Ok(Ok(number)),
            Some(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    match refusal {
        Some(refusal) => Ok(Err(refusal)),
        None => {
            let elsewhere = match crate::kernel::attach_points::of(target.kind) {
                Some(_) if kernel.takes_modules() => "; the kernel engine attaches such probes",
                Some(_) | None => "; 'klogger tracepoints' lists those of a kernel",
            };
            let has: Vec<ProbeKind> =
                ProbeKind::ALL.into_iter().filter(|kind| of(*kind).is_some()).collect();
            Ok(Err(Refusal::of_kind("bpf", target.kind, &has, elsewhere)))
        }
    }
}

/// The names of all attach points of a kind that a kernel has.
pub fn names(kind: ProbeKind, kernel: &KernelTypes) -> Vec<String> {
    ways(kind).flat_map(|row| (row.names)(kernel)).collect()
}

/// All attach points of a kind that a kernel has.
pub fn list(kind: ProbeKind, kernel: &KernelTypes) -> Vec<AttachPoint> {
    let of_row = |row: &'static Row| {
        (row.names)(kernel).into_iter().map(move |name| AttachPoint { row, name })
    };
    ways(kind).flat_map(of_row).collect()
}
