// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Functions of programs and libraries, by uprobes: their programs get the registers of the thread,
//! as `struct pt_regs`.

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::Refusal;
use klogger_schema::model::{Param, ProbeKind, Target};

pub(super) static ROW: Row = Row {
    kind: ProbeKind::User,
    hit: Hit::Preempted,
    counted: false,
    needs: None,
    refuse,
    section: |_| "uprobe".into(),
    arguments: |target, types| Ok(typed(target, types, "klogger_user_argument")),
    frame: Frame::none,
    names: |_| Vec::new(),
    parameters: |_, _| Ok(Vec::new()),
};

pub(super) static RETURN_ROW: Row = Row {
    kind: ProbeKind::ReturnUser,
    hit: Hit::Preempted,
    counted: false,
    needs: None,
    refuse,
    section: |_| "uretprobe".into(),
    arguments: |target, types| Ok(typed(target, types, "klogger_user_result")),
    frame: Frame::none,
    names: |_| Vec::new(),
    parameters: |_, _| Ok(Vec::new()),
};

/// Each parameter, as a macro of the BPF runtime reads it. The upper bits of a register with a
/// narrow type are undefined; conversions take the lower ones, but that to `bool` would take all.
pub(super) fn typed(target: &Target, types: &KernelTypes, read: &str) -> Vec<String> {
    let one = |(n, Param { ty, .. }): (usize, &Param)| match types.is_bool(ty) {
        true => format!("({ty})(__u8){read}({n})"),
        false => format!("({ty}){read}({n})"),
    };
    target.params.iter().enumerate().map(one).collect()
}

fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    Ok(unpassable(target).or_else(|| kernel.refuse_in_program(target)))
}

/// Whether a parameter is not passed as an integer is.
pub(in crate::bpf) fn unpassable(target: &Target) -> Option<Refusal> {
    target.params.iter().filter(|param| !param.ty.contains('*')).find_map(|param| {
        let has = |words: &[&str]| param.ty.split_whitespace().any(|word| words.contains(&word));
        let (what, help) = if has(&["float", "double"]) {
            (
                "a floating-point number, which a probe cannot read",
                "leave it out: such numbers are in registers of their own, and are not counted",
            )
        } else if has(&["struct", "union"]) {
            (
                "a structure, which has no register of its own",
                "write integers for its registers, or a pointer if it is passed by address",
            )
        } else if has(&["__int128"]) {
            (
                "an integer of 128 bits, in two registers",
                "write two of 64 bits: long low, long high",
            )
        } else {
            return None;
        };
        let message = format!("the parameter '{}' is {what}", param.declare());
        Some(Refusal::of_the_schema(message, help.into()))
    })
}
