// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls, as programs of the tracepoints `sys_enter` and `sys_exit` that are not attached:
//! the one program that is attached there passes a hit on to those of its call
//! (`runtime/bpf/calls.h`).

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes};
use crate::system_calls;
use klogger_schema::attach_points::syscall::ALL_CALLS;
use klogger_schema::model::{Param, ProbeKind, Target};
use klogger_schema::system_calls::Machine;

pub(super) static ENTRY: Row = Row {
    kind: ProbeKind::Syscall,
    hit: Hit::CallEntry,
    counted: false,
    needs: Some("KLOGGER_SYSTEM_CALLS"),
    refuse: system_calls::refuse,
    section: |_| "tp_btf/sys_enter".into(),
    frame,
    arguments: |target, _| arguments(target),
    names: system_calls::names,
    parameters: |kernel, name| Ok(system_calls::parameters(kernel, ProbeKind::Syscall, name)),
};

pub(super) static RETURN: Row = Row {
    kind: ProbeKind::ReturnSyscall,
    hit: Hit::CallExit,
    counted: false,
    needs: Some("KLOGGER_SYSTEM_CALLS"),
    refuse: system_calls::refuse,
    section: |_| "tp_btf/sys_exit".into(),
    frame,
    arguments: |target, _| arguments(target),
    // Those that can be entered.
    names: |_| Vec::new(),
    parameters: |kernel, name| Ok(system_calls::parameters(kernel, ProbeKind::ReturnSyscall, name)),
};

/// The names of all calls of a kernel, without that which stands for all.
pub(in crate::bpf) fn single(kernel: &KernelTypes) -> Vec<String> {
    system_calls::names(kernel).into_iter().filter(|name| name != ALL_CALLS).collect()
}

/// Whether a name of a list of system calls is the name of one, of any machine: then a kernel that
/// does not have it leaves it out.
pub(in crate::bpf) fn is_another(target: &Target, name: &str) -> bool {
    target.kind.is_system_call()
        && [Machine::X86, Machine::Arm].iter().any(|machine| machine.number(name).is_some())
}

/// Whether the running call is one of a 32-bit program, once for all arguments.
fn frame(_: &Target) -> Frame {
    let before = "\t__attribute__((unused)) const int klogger_32 = klogger_is_32();\n".into();
    Frame { before, ..Frame::default() }
}

/// The tracepoint to which the program for all calls is attached, with its name.
pub fn way(kind: ProbeKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ProbeKind::Syscall => Some(("sys_enter", "klogger_all_calls_sys_enter")),
        ProbeKind::ReturnSyscall => Some(("sys_exit", "klogger_all_calls_sys_exit")),
        _ => None,
    }
}

/// The arguments are in the registers that the call saved, also when it returns.
fn arguments(target: &Target) -> Result<Vec<String>, Error> {
    let all = target.name == ALL_CALLS;
    let mut before: Vec<&str> = Vec::new();
    if target.kind == ProbeKind::ReturnSyscall {
        before.push("klogger_arguments[1]");
    }
    if all {
        before.push("klogger_call_number(klogger_arguments[0])");
    }
    let of = |(n, param): (usize, &Param)| {
        let ty = &param.ty;
        match n.checked_sub(before.len()) {
            None => format!("({ty}){}", before[n]),
            Some(n) => format!("({ty})klogger_argument(klogger_arguments[0], {n}, klogger_32)"),
        }
    };
    Ok(target.params.iter().enumerate().map(of).collect())
}
