// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to perfetto`: a trace for ui.perfetto.dev and trace_processor.
//!
//! Scheduler events are written in Perfetto's own types, so that its tables `sched`,
//! `thread_state`, `thread` and `process` are filled; see [`crate::roles`]. Some of the other
//! events begin and end slices; see [`slices`]. The rest are instants; see [`instants`].

mod arguments;
mod instants;
mod line;
mod packets;
mod proto;
mod slices;
mod tracks;

use crate::exporter::{FileExporter, Format, Report, Written};
use crate::roles::{Role, int, int_of, text_of};
use crate::states::States;
use crate::switches::{Switch, is_recorded, not_recorded};
use instants::{Instants, Known};
use klogger_log::damage::Damage;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::ledger::{Entry, Key, Severity};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use line::Line;
use packets::{clocks, exec, fork, mark, system};
use prost::Message;
use proto::{
    Data, FtraceEvent, FtraceEventBundle, Kernel, Process, ProcessTree, SchedProcessExit,
    SchedSwitch, TaskRename, Thread, Trace, TracePacket, Wake,
};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Packets that are collected before they are written.
const PACKETS: usize = 1 << 11;
/// Events of a CPU that are collected before they become a packet.
const BUNDLE: usize = 1 << 10;
/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// A trace in Perfetto's own format.
pub struct Perfetto;

impl Format for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn description(&self) -> &'static str {
        "A trace for ui.perfetto.dev and trace_processor"
    }

    fn suffix(&self) -> &'static str {
        ".pftrace"
    }
}

impl FileExporter for Perfetto {
    fn write(
        &self,
        reader: &Reader,
        _: Option<&str>,
        sink: &mut dyn Write,
        report: Report,
    ) -> io::Result<Written> {
        let later = write(reader, sink, report)?;
        let damage = reader.damage().iter().chain(&later).cloned().collect();
        Ok(Written { damage, notes: Vec::new() })
    }
}

/// Writes the whole log to `sink`; returns the damage found in the log.
///
/// `progress` is called with the number of events that have been read, and of all (if known).
fn write(
    reader: &Reader,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<Vec<Damage>> {
    let mut conversion = Conversion::new(reader);
    let mut merge = reader.merge(&Selection::default());
    let (mut done, total) = (0, reader.totals().0);
    let mut buffer = Vec::new();
    while let Some(event) = merge.next() {
        conversion.push(&event);
        if conversion.packets.len() >= PACKETS {
            conversion.drain(&mut buffer, sink)?;
        }
        done += 1;
        if done % REPORT_EVERY == 0 {
            progress(done, total);
        }
    }
    let damage = merge.damage().to_vec();
    conversion.finish(reader, &damage);
    conversion.drain(&mut buffer, sink)?;
    sink.flush()?;
    Ok(damage)
}

struct Conversion {
    /// By event.
    roles: Vec<Role>,
    states: States,
    instants: Instants,
    decoder: Decoder,
    processes: Processes,
    lines: BTreeMap<u16, Line>,
    /// Every thread is recorded.
    complete: bool,
    start_ns: u64,
    packets: Vec<TracePacket>,
    switches: Vec<Switch>,
}

impl Conversion {
    fn new(reader: &Reader) -> Conversion {
        let preamble = reader.preamble();
        let start_ns = reader.span().0;
        let mut packets = vec![clocks(preamble, start_ns), system(preamble)];
        Conversion {
            roles: Role::all(&preamble.events),
            states: States::new(preamble),
            instants: Instants::new(preamble, &mut packets),
            decoder: Decoder::new(reader),
            processes: Processes::new(reader),
            lines: BTreeMap::new(),
            complete: preamble.scope == "all",
            start_ns,
            packets,
            switches: Vec::new(),
        }
    }

    fn push(&mut self, event: &EventRef) {
        let role = self.roles[event.index];
        match role {
            Role::Rename => self.rename(event),
            // The new thread is not the one that had its id before.
            Role::Fork => self.instants.forget(int_of(event, "pid").unwrap_or(-1)),
            _ => {}
        }
        self.processes.apply(event);
        if let Role::Exit = role {
            self.instants.exit(
                int_of(event, "pid").unwrap_or(-1),
                event.time_ns,
                &mut self.packets,
            );
        }
        self.gap(event, role);
        match (role, event.origin) {
            (Role::Lost, origin) => self.lost(event, origin),
            (Role::Mark, _) => self.instant(event, Some(mark(event))),
            (Role::Exists, _) => self.exists(event),
            (_, Origin::Cpu(cpu)) => self.of_cpu(event, role, cpu),
            (_, Origin::Recorder | Origin::Thread { .. }) => self.instant(event, None),
        }
    }

    fn instant(&mut self, event: &EventRef, name: Option<String>) {
        let known = Known { decoder: &self.decoder, processes: &self.processes };
        self.instants.push(event, name, &known, &mut self.packets);
    }

    /// Finds missing events: by serial numbers, or from a `LOST` event.
    fn gap(&mut self, event: &EventRef, role: Role) {
        let Origin::Cpu(number) = event.origin else { return };
        if let Some(since_ns) = self.line(number).cpu.missing(event, role) {
            self.missing(number, since_ns);
        }
    }

    /// Events of a CPU are missing from this time on.
    fn missing(&mut self, number: u16, since_ns: u64) {
        self.instants.lost(Origin::Cpu(number), &mut self.packets);
        let mut switches = std::mem::take(&mut self.switches);
        self.line(number).cpu.lost(since_ns, &mut switches);
        self.switches = switches;
        self.push_switches(number);
        self.bundle(number);
        self.line(number).lost = true;
    }

    fn line(&mut self, number: u16) -> &mut Line {
        let complete = self.complete;
        self.lines.entry(number).or_insert_with(|| Line::new(number, complete))
    }

    fn of_cpu(&mut self, event: &EventRef, role: Role, number: u16) {
        let mut switches = std::mem::take(&mut self.switches);
        let told = self.line(number).cpu.see(event, role, &mut switches);
        self.switches = switches;
        self.push_switches(number);
        if !told {
            self.single(event, role, number);
        }
    }

    /// Writes an event that is not part of a switch.
    fn single(&mut self, event: &EventRef, role: Role, number: u16) {
        let running = self.lines.get(&number).map_or(not_recorded(number), |l| l.cpu.running());
        let (by, kernel) = match role {
            // A thread that is not recorded has no further events: it would stay runnable to the
            // end.
            Role::Waking { pid, .. } if !self.in_scope(int(event, Some(pid))) => {
                return self.instant(event, None);
            }
            Role::Waking { pid, prio, cpu, waker } => (
                int(event, waker).unwrap_or(running),
                Kernel::SchedWaking(self.wake(event, pid, prio, cpu)),
            ),
            Role::Wakeup { pid, prio, cpu, new } => {
                let wake = self.wake(event, pid, prio, cpu);
                let is_new = int(event, new).is_some_and(|n| n != 0);
                (
                    running,
                    if is_new { Kernel::SchedWakeupNew(wake) } else { Kernel::SchedWakeup(wake) },
                )
            }
            Role::Fork => {
                (int_of(event, "parent").unwrap_or(running), Kernel::TaskNewtask(fork(event)))
            }
            Role::Exec => {
                (int_of(event, "pid").unwrap_or(running), Kernel::SchedProcessExec(exec(event)))
            }
            Role::Exit => (
                int_of(event, "pid").unwrap_or(running),
                Kernel::SchedProcessExit(self.exit(event)),
            ),
            // It was written before the process table was updated.
            Role::Rename => return,
            Role::Other
            | Role::Left { .. }
            | Role::Out { .. }
            | Role::In { .. }
            | Role::Exists
            | Role::Lost
            | Role::Mark => return self.instant(event, None),
        };
        self.push_kernel(number, event.time_ns, by, kernel);
    }

    fn in_scope(&self, pid: Option<i64>) -> bool {
        self.complete || pid.is_some_and(|pid| self.processes.row(pid).is_some())
    }

    fn wake(&self, event: &EventRef, pid: usize, prio: Option<usize>, cpu: Option<usize>) -> Wake {
        let [pid, prio, target_cpu] = [Some(pid), prio, cpu].map(|place| int(event, place));
        Wake {
            comm: pid.and_then(|pid| self.comm(pid)),
            pid: pid.map(|n| n as i32),
            prio: prio.map(|n| n as i32),
            target_cpu: target_cpu.map(|n| n as i32),
        }
    }

    fn exit(&self, event: &EventRef) -> SchedProcessExit {
        let pid = int_of(event, "pid");
        let tgid = pid
            .and_then(|pid| self.processes.row(pid))
            .map(|row| row.tgid)
            .filter(|tgid| *tgid > 0);
        SchedProcessExit {
            comm: pid.and_then(|pid| self.comm(pid)),
            pid: pid.map(|n| n as i32),
            tgid: tgid.map(|n| n as i32),
        }
    }

    fn rename(&mut self, event: &EventRef) {
        let Origin::Cpu(cpu) = event.origin else { return };
        let pid = int_of(event, "pid").unwrap_or_default();
        let rename = TaskRename {
            pid: Some(pid as i32),
            oldcomm: self.comm(pid),
            newcomm: text_of(event, "comm"),
        };
        self.push_kernel(cpu, event.time_ns, pid, Kernel::TaskRename(rename));
        // The process in a process tree takes precedence.
        let tgid = self.processes.row(pid).map(|row| row.tgid).filter(|tgid| *tgid > 0);
        let thread = Thread {
            tid: Some(pid as i32),
            name: text_of(event, "comm"),
            tgid: tgid.map(|n| n as i32),
        };
        let tree = ProcessTree { threads: vec![thread], ..ProcessTree::default() };
        self.packet(Some(event.time_ns), Data::ProcessTree(tree));
    }

    fn exists(&mut self, event: &EventRef) {
        let number = |field| int_of(event, field).map(|n| n as i32);
        let comm = text_of(event, "comm").unwrap_or_default();
        let command = text_of(event, "command").unwrap_or_default();
        let mut tree = ProcessTree::default();
        if number("pid") == number("tgid") {
            let known = !command.is_empty();
            let words = if known {
                command.split(' ').map(String::from).collect()
            } else {
                vec![comm.clone()]
            };
            let (pid, ppid) = (number("pid"), number("ppid"));
            tree.processes.push(Process {
                pid,
                ppid,
                cmdline: words,
                cmdline_is_comm: Some(!known),
            });
        }
        tree.threads.push(Thread { tid: number("pid"), name: Some(comm), tgid: number("tgid") });
        self.packet(Some(event.time_ns), Data::ProcessTree(tree));
    }

    fn lost(&mut self, event: &EventRef, origin: Origin) {
        let count = int_of(event, "count").unwrap_or_default();
        if !matches!(origin, Origin::Cpu(_)) {
            self.instants.lost(origin, &mut self.packets);
        }
        self.instant(event, Some(format!("LOST {count}")));
    }

    fn push_switches(&mut self, cpu: u16) {
        for switch in std::mem::take(&mut self.switches) {
            let kernel = SchedSwitch {
                prev_comm: self.comm(switch.prev),
                prev_pid: Some(switch.prev as i32),
                prev_prio: switch.prev_prio.map(|n| n as i32),
                prev_state: switch.prev_state.map(|state| self.states.shown(state)),
                next_comm: self.comm(switch.next),
                next_pid: Some(switch.next as i32),
                next_prio: switch.next_prio.map(|n| n as i32),
            };
            self.push_kernel(cpu, switch.time_ns, switch.prev, Kernel::SchedSwitch(kernel));
        }
    }

    fn push_kernel(&mut self, cpu: u16, time_ns: u64, by: i64, event: Kernel) {
        let line = self.line(cpu);
        line.events.push(FtraceEvent {
            timestamp: Some(time_ns),
            pid: Some(by as u32),
            event: Some(event),
        });
        if line.events.len() >= BUNDLE {
            self.bundle(cpu);
        }
    }

    /// Makes a packet of the events that were collected for a CPU.
    fn bundle(&mut self, cpu: u16) {
        let Some(line) = self.lines.get_mut(&cpu).filter(|l| !l.events.is_empty()) else { return };
        let lost_events = std::mem::take(&mut line.lost).then_some(true);
        let event = std::mem::take(&mut line.events);
        let bundle = FtraceEventBundle { cpu: Some(cpu.into()), event, lost_events };
        self.packet(None, Data::FtraceEvents(bundle));
    }

    fn packet(&mut self, timestamp: Option<u64>, data: Data) {
        self.packets.push(TracePacket { timestamp, data: Some(data), ..TracePacket::default() });
    }

    fn comm(&self, pid: i64) -> Option<String> {
        let name =
            if is_recorded(pid) { self.processes.name(pid) } else { Some(&b"not recorded"[..]) };
        name.map(|n| String::from_utf8_lossy(n).into_owned())
    }

    /// Writes what is left of all CPUs, and losses without a `LOST` record.
    fn finish(&mut self, reader: &Reader, damage: &[Damage]) {
        for cpu in self.lines.keys().copied().collect::<Vec<_>>() {
            if let Some(line) = self.lines.get_mut(&cpu) {
                line.cpu.settle(&mut self.switches);
            }
            self.push_switches(cpu);
            self.bundle(cpu);
        }
        let told = |e: &Entry| e.key == Key::RingFull.info().name;
        self.instants.finish(&mut self.packets);
        let ledger = reader.ledger(damage);
        for entry in ledger.entries.iter().filter(|e| e.severity >= Severity::Loss && !told(e)) {
            self.instants.push_loss(
                entry,
                entry.from_ns.unwrap_or(self.start_ns),
                &mut self.packets,
            );
        }
    }

    fn drain(&mut self, buffer: &mut Vec<u8>, sink: &mut dyn Write) -> io::Result<()> {
        let trace = Trace { packet: std::mem::take(&mut self.packets) };
        buffer.clear();
        trace.encode(buffer).map_err(io::Error::other)?;
        sink.write_all(buffer)
    }
}
