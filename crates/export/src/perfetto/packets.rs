// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Packets and events that depend only on the log's preamble, or on one event.

use super::proto::{
    Clock, ClockSnapshot, Data, SchedProcessExec, SystemInfo, TaskNewtask, TracePacket, Utsname,
};
use crate::roles::{int_of, text_of};
use klogger_log::event::EventRef;
use klogger_log::preamble::Preamble;

/// Numbers of Perfetto's clocks.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

const CLONE_THREAD: u64 = 0x10000;

/// Perfetto's time is the time since boot. A log has the monotonic clock, which is the same as long
/// as the machine is not suspended.
pub fn clocks(preamble: &Preamble, start_ns: u64) -> TracePacket {
    let clock = |id, time| Clock { clock_id: Some(id), timestamp: Some(time) };
    let mut clocks = vec![clock(BOOTTIME, start_ns), clock(MONOTONIC, start_ns)];
    if preamble.clock.start_realtime_ns != 0 {
        clocks.push(clock(REALTIME, preamble.clock.start_realtime_ns));
    }
    TracePacket {
        timestamp: Some(start_ns),
        data: Some(Data::ClockSnapshot(ClockSnapshot { clocks })),
        ..TracePacket::default()
    }
}

/// Perfetto decodes the states of threads according to the kernel's version.
pub fn system(preamble: &Preamble) -> TracePacket {
    let host = &preamble.host;
    let known = |text: &String| Some(text.clone()).filter(|t| !t.is_empty());
    let utsname = Utsname {
        sysname: Some("Linux".into()),
        version: known(&host.kernel_version),
        // The states written here are those of kernels since 4.14.
        release: known(&host.kernel).or_else(|| Some("6.1".into())),
        machine: known(&host.machine),
    };
    let num_cpus = Some(host.cpus.len() as u32).filter(|n| *n > 0);
    let info = SystemInfo { utsname: Some(utsname), num_cpus };
    TracePacket { data: Some(Data::SystemInfo(info)), ..TracePacket::default() }
}

pub fn mark(event: &EventRef) -> String {
    let number = int_of(event, "number").unwrap_or_default();
    match text_of(event, "text").filter(|t| !t.is_empty()) {
        Some(text) => format!("MARK {number}: {text}"),
        None => format!("MARK {number}"),
    }
}

pub fn fork(event: &EventRef) -> TaskNewtask {
    let (pid, tgid) = (int_of(event, "pid"), int_of(event, "tgid"));
    let clone_flags = Some(if pid == tgid { 0 } else { CLONE_THREAD });
    TaskNewtask { pid: pid.map(|n| n as i32), comm: text_of(event, "comm"), clone_flags }
}

pub fn exec(event: &EventRef) -> SchedProcessExec {
    let number = |field| int_of(event, field).map(|n| n as i32);
    SchedProcessExec {
        filename: text_of(event, "filename"),
        pid: number("pid"),
        old_pid: number("old_pid"),
    }
}
