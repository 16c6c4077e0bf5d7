// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tracepoints, as BPF programs that get their arguments with the kernel's types (`tp_btf`).

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::{Refusal, did_you_mean};
use crate::system_calls;
use klogger_schema::model::{Param, ProbeKind, Target};

pub(super) static ROW: Row = Row {
    kind: ProbeKind::Tracepoint,
    hit: Hit::Plain,
    counted: false,
    needs: None,
    refuse,
    section: |target| format!("tp_btf/{}", target.name),
    arguments: |target, _| {
        let typed = |(n, p): (usize, &Param)| format!("({})klogger_arguments[{n}]", p.ty);
        Ok(target.params.iter().enumerate().map(typed).collect())
    },
    frame: Frame::none,
    names: KernelTypes::tracepoints,
    parameters: |kernel, name| Ok(kernel.parameters(name)?.unwrap_or_default()),
};

/// The kernel calls a program in an RCU read section. The end of that section can set need-resched,
/// and this tracepoint fires before the flag is set, so that the kernel would recurse until its
/// stack is full. Linux 7.2 with PREEMPT_RT panics for this reason.
const NEED_RESCHED: &str = "sched_set_need_resched_tp";

fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let name = &target.name;
    let Some(prototype) = kernel.tracepoint(name)? else {
        let known = kernel.tracepoints();
        let call = system_calls::of_trace_event(name, kernel).map(|call| format!("write '{call}'"));
        return Ok(Some(Refusal::of_this_kernel(
            format!("this kernel has no tracepoint '{name}'"),
            call.or_else(|| did_you_mean(name, known.iter().map(String::as_str))),
        )));
    };
    if name == NEED_RESCHED && kernel.has_fast_srcu() {
        return Ok(Some(Refusal::of_this_kernel(
            format!(
                "on this kernel programs of '{NEED_RESCHED}' can hit themselves until the stack is \
                 full"
            ),
            Some("leave the event out: 'klogger show' shows which others there are".into()),
        )));
    }
    let theirs = kernel.mismatch(target, &prototype)?;
    Ok(theirs.map(|theirs| {
        Refusal::of_the_schema(
            format!("the prototype of '{name}' is not the kernel's"),
            format!("schema: {}\nkernel: {theirs}", target.prototype()),
        )
    }))
}
