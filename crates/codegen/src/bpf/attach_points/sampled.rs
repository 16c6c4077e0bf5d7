// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Timers, samples and breakpoints: programs that run when a performance event of a CPU has counted
//! enough.
//!
//! A probe declares by name what it needs of the sample. Its event exists on each CPU and counts
//! all threads there; the scope of what is logged is decided as at any other place.

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::{Refusal, did_you_mean};
use klogger_schema::attach_points::{Rate, period_ns, sample};
use klogger_schema::counted::{self, Counted};
use klogger_schema::model::{Param, ProbeKind, Target};

/// A parameter: its type and name, and its value in C.
type Parameter = (&'static str, &'static str, &'static str);

const IP: Parameter = ("u64", "ip", "klogger_sampled_ip()");
const USER: Parameter = ("bool", "user", "klogger_sampled_user()");
const ADDRESS: Parameter = ("u64", "address", "klogger_sampled_address()");
const PERIOD: Parameter = ("u64", "period", "klogger_sampled_period()");
/// Of a timer, whose event has no period of its own for hits that were missed: see [`passed`].
const PASSED: Parameter = ("u64", "period", "klogger_passed");

pub(super) static TIMER: Row = Row {
    kind: ProbeKind::Timer,
    refuse: |target, _| Ok(unknown(target)),
    // Any rate is possible; this one does not keep step with what the kernel does regularly.
    names: |_| vec!["99Hz".into()],
    parameters: |_, _| Ok(declared(ProbeKind::Timer)),
    ..SAMPLE
};

pub(super) static BREAKPOINT: Row = Row {
    kind: ProbeKind::Breakpoint,
    refuse: |target, _| Ok(unknown(target)),
    names: |_| Vec::new(),
    parameters: |_, _| Ok(declared(ProbeKind::Breakpoint)),
    ..SAMPLE
};

/// As a constant, so that the others can begin with it.
const SAMPLE: Row = Row {
    kind: ProbeKind::Sample,
    hit: Hit::Plain,
    counted: true,
    needs: Some("KLOGGER_SAMPLES"),
    refuse,
    section: |_| "perf_event".into(),
    frame: Frame::none,
    arguments,
    names,
    parameters: |_, _| Ok(declared(ProbeKind::Sample)),
};

pub(super) static ROW: Row = SAMPLE;

fn parameters(kind: ProbeKind) -> &'static [Parameter] {
    match kind {
        ProbeKind::Timer => &[IP, USER, PASSED],
        ProbeKind::Breakpoint => &[IP, USER, ADDRESS],
        _ => &[IP, USER, ADDRESS, PERIOD],
    }
}

fn declared(kind: ProbeKind) -> Vec<Param> {
    let param = |(ty, name, _): &Parameter| Param { ty: (*ty).into(), name: (*name).into() };
    parameters(kind).iter().map(param).collect()
}

/// Whether a probe asks how much time a hit stands for.
pub(in crate::bpf) fn asks_for_passed(target: &Target) -> bool {
    target.kind == ProbeKind::Timer && target.params.iter().any(|p| p.name == PASSED.1)
}

/// Whether hits come so many times a second, whatever a program does.
pub(in crate::bpf) fn is_regular(target: &Target) -> bool {
    target.kind == ProbeKind::Timer
        || sample(&target.name).is_some_and(|s| matches!(s.rate, Rate::Hz(_)))
}

/// The statement with which a timer's program begins that asks for it; it runs at each hit, also
/// at those that are not logged.
pub(in crate::bpf) fn passed(target: &Target, probe: usize) -> String {
    match period_ns(&target.name).filter(|_| asks_for_passed(target)) {
        Some(ns) => format!("\t__u64 klogger_passed = klogger_timer_passed({probe}, {ns}ull);\n"),
        None => String::new(),
    }
}

/// All that this machine counts, with a rate of the usual kind.
fn names(kernel: &KernelTypes) -> Vec<String> {
    let sampled = |name: String| {
        let counted = Counted::of(&name).filter(|c| kernel.counts(*c))?;
        let each = counted.is_software() && !counted.is_clock();
        Some(if each { format!("{name} every 1") } else { format!("{name} at 99Hz") })
    };
    counted::names().into_iter().filter_map(sampled).collect()
}

fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let known = sample(&target.name).is_none_or(|s| kernel.counts(s.counted));
    if known {
        return Ok(unknown(target));
    }
    let event = target.name.split(' ').next().unwrap_or_default();
    Ok(Some(Refusal::of_this_kernel(
        format!("this machine does not count '{event}'"),
        Some(
            "virtual machines often have no hardware counters: name an alternative with 'or', for \
             example 'timer 99Hz()'; 'klogger tracepoints' lists what is counted here"
                .into(),
        ),
    )))
}

/// A parameter that such a probe does not have.
fn unknown(target: &Target) -> Option<Refusal> {
    let known = parameters(target.kind);
    let is_known = |p: &&Param| known.iter().any(|(_, name, _)| *name == p.name);
    let param = target.params.iter().find(|p| !is_known(p))?;
    let all: Vec<_> = declared(target.kind).iter().map(Param::declare).collect();
    let near = did_you_mean(&param.name, known.iter().map(|(_, name, _)| *name));
    Some(Refusal::of_the_schema(
        format!("a {} has no parameter '{}'", target.kind.noun(), param.name),
        near.unwrap_or_else(|| format!("it has {}, in any order", all.join(", "))),
    ))
}

fn arguments(target: &Target, _: &KernelTypes) -> Result<Vec<String>, Error> {
    let of = |param: &Param| {
        let found = parameters(target.kind).iter().find(|(_, name, _)| *name == param.name);
        let (_, _, value) = found.ok_or_else(|| Error(format!("no value '{}'", param.name)))?;
        Ok(format!("({}){value}", param.ty))
    };
    target.params.iter().map(of).collect()
}
