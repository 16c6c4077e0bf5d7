// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to lttng`: a trace as LTTng's kernel tracer would write it, for tools that know its events:
//! the LTTng analyses, Trace Compass.
//!
//! Scheduler events are recognized by their roles, interrupts and system calls by slices; see
//! [`crate::roles`] and [`interrupts`]. All other events are written as logged, with the name
//! `SCHEMA:EVENT`.
//!
//! **Invariant:** names and values are those of LTTng 2.6 ([`VERSION`]), because readers derive the
//! others from this version.

mod classes;
mod interrupts;

use super::metadata::{Environment, Metadata, Setting};
use super::{Streams, each, tsdl};
use crate::roles::{Place, Role, int, int_of};
use crate::states::States;
use crate::switches::{Cpu, Switch, is_recorded};
use classes::{Arg, Classes, Field, push_fields};
use interrupts::{Part, call_name};
use klogger_log::damage::Damage;
use klogger_log::event::{EventRef, Value};
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use klogger_os::outputs::{Folder, Old};
use klogger_schema::layout::EventLayout;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// The latest version in which soft interrupts have the names that the LTTng analyses know. Trace
/// Compass knows both.
const VERSION: [(&str, i64); 3] =
    [("tracer_major", 2), ("tracer_minor", 6), ("tracer_patchlevel", 0)];

/// The LTTng analyses look for the version in a directory of this name.
const DOMAIN: &str = "kernel";

/// `MAX_RT_PRIO`: it is subtracted from priorities in switches, but not in wake-ups.
const RT: i64 = 100;
/// The priority if the log does not have it: that of a thread with nice 0.
const PRIO: i64 = 120;

/// The parent of kernel threads.
const KTHREADD: i64 = 2;

pub fn write(
    reader: &Reader,
    dir: &Folder,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(u64, Vec<Damage>)> {
    let dir = dir.make_folder(DOMAIN.as_ref(), 0o777)?;
    // The LTTng analyses use only the time in which all streams have packets. All CPUs were
    // recorded all the time.
    let (begin_ns, end_ns) = reader.span();
    let mut streams = Streams { begin_ns: Some(begin_ns), ..Streams::new(reader, &dir) };
    let mut lttng = Lttng::new(reader);
    let (done, damage) =
        each(reader, &mut streams, progress, |event, streams| lttng.push(event, streams))?;
    lttng.finish(&mut streams)?;
    streams.close(end_ns)?;
    let plain = Metadata::new(reader, &reader.ledger(&damage), streams.classes());
    let events = Cow::Owned(lttng.classes.into_layouts());
    let metadata = Metadata { events, environment: environment(plain.environment), ..plain };
    dir.write("metadata".as_ref(), 0o666, Old::Refuse, tsdl::text(&metadata).as_bytes())?;
    Ok((done, damage))
}

/// LTTng's variables, followed by klogger's own.
fn environment(own: Environment) -> Environment {
    let text = |text: &str| Setting::Text(text.into());
    let mut all: Environment = vec![
        ("domain".into(), text(DOMAIN)),
        ("tracer_name".into(), text("lttng-modules")),
        ("converted_by".into(), text("klogger")),
    ];
    all.extend(VERSION.iter().map(|(name, n)| (name.to_string(), Setting::Number(*n))));
    all.extend(own.into_iter().filter_map(|(name, setting)| match name.as_str() {
        "tracer_name" => None,
        "tracer_version" => Some(("klogger_version".into(), setting)),
        _ => Some((name, setting)),
    }));
    all
}

/// Where an event is written.
#[derive(Clone, Copy)]
struct At {
    origin: Origin,
    time_ns: u64,
    serial: u64,
}

struct Lttng {
    machine: String,
    /// By event type.
    roles: Vec<Role>,
    states: States,
    parts: Vec<Option<Part>>,
    /// By event type: the index of its field `irq`, if it has only `irq` and `name`.
    named: Vec<Option<usize>>,
    irq_names: HashMap<i64, Vec<u8>>,
    processes: Processes,
    /// The last known priority of each thread.
    prios: HashMap<i64, i64>,
    cpus: BTreeMap<u16, Cpu>,
    /// Every thread is recorded.
    complete: bool,
    switches: Vec<Switch>,
    classes: Classes,
}

impl Lttng {
    fn new(reader: &Reader) -> Lttng {
        let preamble = reader.preamble();
        Lttng {
            machine: preamble.host.machine.clone(),
            roles: Role::all(&preamble.events),
            states: States::new(preamble),
            parts: preamble.events.iter().map(Part::of).collect(),
            named: preamble.events.iter().map(irq_of_name).collect(),
            irq_names: HashMap::new(),
            processes: Processes::new(reader),
            prios: HashMap::new(),
            cpus: BTreeMap::new(),
            complete: preamble.scope == "all",
            switches: Vec::new(),
            classes: Classes::new(preamble.events.len()),
        }
    }

    fn push(&mut self, event: &EventRef, streams: &mut Streams) -> io::Result<()> {
        self.processes.apply(event);
        let role = self.roles[event.index];
        let at = At { origin: event.origin, time_ns: event.time_ns, serial: event.serial };
        if let Origin::Cpu(number) = event.origin {
            return self.of_cpu(event, role, number, at, streams);
        }
        if let Role::Exists = role {
            self.exists(event, at, streams)?;
        }
        self.as_logged(event, streams)
    }

    fn of_cpu(
        &mut self,
        event: &EventRef,
        role: Role,
        number: u16,
        at: At,
        streams: &mut Streams,
    ) -> io::Result<()> {
        let complete = self.complete;
        let cpu = self.cpus.entry(number).or_insert_with(|| Cpu::new(number, complete));
        if let Some(since_ns) = cpu.missing(event, role) {
            cpu.lost(since_ns, &mut self.switches);
        }
        let told = cpu.see(event, role, &mut self.switches);
        self.write_switches(at, streams)?;
        if told { Ok(()) } else { self.single(event, role, at, streams) }
    }

    /// An event that is not part of a switch.
    fn single(
        &mut self,
        event: &EventRef,
        role: Role,
        at: At,
        streams: &mut Streams,
    ) -> io::Result<()> {
        match role {
            Role::Waking { pid, prio, cpu, .. } => {
                self.wake("sched_waking", event, [Some(pid), prio, cpu], at, streams)
            }
            Role::Wakeup { pid, prio, cpu, new } => {
                let is_new = int(event, new).is_some_and(|n| n != 0);
                let name = if is_new { "sched_wakeup_new" } else { "sched_wakeup" };
                self.wake(name, event, [Some(pid), prio, cpu], at, streams)
            }
            Role::Fork => self.fork(event, at, streams),
            Role::Exec => {
                let file = event.get("filename").and_then(Value::text).unwrap_or_default();
                let [tid, old_tid] =
                    ["pid", "old_pid"].map(|field| Arg::Int(int_of(event, field).unwrap_or(-1)));
                let fields = [("filename", Arg::Text(file)), ("tid", tid), ("old_tid", old_tid)];
                self.write("sched_process_exec", &fields, at, streams)
            }
            Role::Exit => {
                let tid = int_of(event, "pid").unwrap_or(-1);
                let (comm, prio) = (self.comm(tid), self.prio(tid) - RT);
                let fields =
                    [("comm", Arg::Text(&comm)), ("tid", Arg::Int(tid)), ("prio", Arg::Int(prio))];
                self.write("sched_process_exit", &fields, at, streams)
            }
            _ => self.interrupt(event, at, streams),
        }
    }

    fn wake(
        &mut self,
        name: &str,
        event: &EventRef,
        places: [Place; 3],
        at: At,
        streams: &mut Streams,
    ) -> io::Result<()> {
        let [tid, prio, cpu] = places.map(|place| int(event, place));
        let tid = tid.unwrap_or(-1);
        let prio = self.prio_now(tid, prio);
        let comm = self.comm(tid);
        let fields = [
            ("comm", Arg::Text(&comm)),
            ("tid", Arg::Int(tid)),
            ("prio", Arg::Int(prio)),
            ("success", Arg::Int(1)),
            ("target_cpu", Arg::Int(cpu.unwrap_or_default())),
        ];
        self.write(name, &fields, at, streams)
    }

    fn fork(&mut self, event: &EventRef, at: At, streams: &mut Streams) -> io::Result<()> {
        let [parent, child, pid] =
            ["parent", "pid", "tgid"].map(|field| int_of(event, field).unwrap_or(-1));
        let parent_pid = self
            .processes
            .row(parent)
            .map(|row| row.tgid)
            .filter(|tgid| *tgid > 0)
            .unwrap_or(parent);
        let (parent_comm, child_comm) = (self.comm(parent), self.comm(child));
        let fields = [
            ("parent_comm", Arg::Text(&parent_comm)),
            ("parent_tid", Arg::Int(parent)),
            ("parent_pid", Arg::Int(parent_pid)),
            ("child_comm", Arg::Text(&child_comm)),
            ("child_tid", Arg::Int(child)),
            ("child_pid", Arg::Int(pid)),
        ];
        self.write("sched_process_fork", &fields, at, streams)
    }

    /// Values of a thread that are not in the log are 0, "unknown".
    fn exists(&mut self, event: &EventRef, at: At, streams: &mut Streams) -> io::Result<()> {
        let [tid, pid, ppid] =
            ["pid", "tgid", "ppid"].map(|field| int_of(event, field).unwrap_or(-1));
        let comm = event.get("comm").and_then(Value::text).unwrap_or_default();
        let kernel = tid == KTHREADD || ppid == KTHREADD;
        let fields = [
            ("tid", Arg::Int(tid)),
            ("pid", Arg::Int(pid)),
            ("ppid", Arg::Int(ppid)),
            ("name", Arg::Text(comm)),
            ("type", Arg::Int(kernel.into())),
            ("mode", Arg::Int(0)),
            ("submode", Arg::Int(0)),
            ("status", Arg::Int(0)),
        ];
        self.write("lttng_statedump_process_state", &fields, at, streams)
    }

    fn interrupt(&mut self, event: &EventRef, at: At, streams: &mut Streams) -> io::Result<()> {
        if let Some(irq) = self.named[event.index].and_then(|place| int(event, Some(place))) {
            let name = event.get("name").and_then(Value::text).unwrap_or_default();
            self.irq_names.insert(irq, name.to_vec());
        }
        let Some(part) = self.parts[event.index] else { return self.as_logged(event, streams) };
        let number = |place| Arg::Int(int(event, Some(place)).unwrap_or_default());
        match part {
            Part::IrqEntry { irq } => {
                let name = int(event, Some(irq))
                    .and_then(|irq| self.irq_names.get(&irq))
                    .cloned()
                    .unwrap_or_default();
                self.write(
                    "irq_handler_entry",
                    &[("irq", number(irq)), ("name", Arg::Text(&name))],
                    at,
                    streams,
                )
            }
            Part::IrqExit { irq, handled } => {
                let ret = Arg::Int(int(event, handled).unwrap_or(1));
                self.write("irq_handler_exit", &[("irq", number(irq)), ("ret", ret)], at, streams)
            }
            Part::SoftirqEntry { vec } => {
                self.write("softirq_entry", &[("vec", number(vec))], at, streams)
            }
            Part::SoftirqExit { vec } => {
                self.write("softirq_exit", &[("vec", number(vec))], at, streams)
            }
            Part::CallEntry { id } => match self.call(event, id) {
                Some(name) => self.write(&format!("syscall_entry_{name}"), &[], at, streams),
                None => self.as_logged(event, streams),
            },
            Part::CallExit { id, ret } => match self.call(event, id) {
                Some(name) => {
                    let ret = Arg::Long(int(event, Some(ret)).unwrap_or_default());
                    self.write(&format!("syscall_exit_{name}"), &[("ret", ret)], at, streams)
                }
                None => self.as_logged(event, streams),
            },
        }
    }

    fn call(&self, event: &EventRef, id: usize) -> Option<&'static str> {
        call_name(&self.machine, int(event, Some(id))?)
    }

    fn write_switches(&mut self, at: At, streams: &mut Streams) -> io::Result<()> {
        let switches = std::mem::take(&mut self.switches);
        for switch in &switches {
            let [prev_prio, next_prio] =
                [(switch.prev, switch.prev_prio), (switch.next, switch.next_prio)]
                    .map(|(tid, prio)| self.prio_now(tid, prio) - RT);
            let (prev, next) = (self.comm(switch.prev), self.comm(switch.next));
            let fields = [
                ("prev_comm", Arg::Text(&prev)),
                ("prev_tid", Arg::Int(switch.prev)),
                ("prev_prio", Arg::Int(prev_prio)),
                (
                    "prev_state",
                    Arg::Long(switch.prev_state.map_or(0, |state| self.states.shown(state))),
                ),
                ("next_comm", Arg::Text(&next)),
                ("next_tid", Arg::Int(switch.next)),
                ("next_prio", Arg::Int(next_prio)),
            ];
            self.write("sched_switch", &fields, At { time_ns: switch.time_ns, ..at }, streams)?;
        }
        self.switches = switches;
        self.switches.clear();
        Ok(())
    }

    /// Writes switches whose second half is missing.
    fn finish(&mut self, streams: &mut Streams) -> io::Result<()> {
        for number in self.cpus.keys().copied().collect::<Vec<_>>() {
            if let Some(cpu) = self.cpus.get_mut(&number) {
                cpu.settle(&mut self.switches);
                let at = At { origin: Origin::Cpu(number), time_ns: 0, serial: cpu.next_serial() };
                self.write_switches(at, streams)?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        name: &str,
        fields: &[Field],
        at: At,
        streams: &mut Streams,
    ) -> io::Result<()> {
        let id = self.classes.theirs(name, fields)?;
        streams.of(at.origin).record(id, at.time_ns, at.serial, |out| push_fields(fields, out))
    }

    fn as_logged(&mut self, event: &EventRef, streams: &mut Streams) -> io::Result<()> {
        let id = self.classes.logged(event.index, event.layout)?;
        streams.push(event, id)
    }

    fn comm(&self, tid: i64) -> Vec<u8> {
        match tid {
            0 => b"swapper".to_vec(),
            _ if is_recorded(tid) => self.processes.name(tid).unwrap_or_default().to_vec(),
            _ => b"not recorded".to_vec(),
        }
    }

    fn prio(&self, tid: i64) -> i64 {
        self.prios.get(&tid).copied().unwrap_or(PRIO)
    }

    /// The priority in the event, or else the last known one.
    fn prio_now(&mut self, tid: i64, said: Option<i64>) -> i64 {
        if let Some(prio) = said {
            self.prios.insert(tid, prio);
        }
        self.prio(tid)
    }
}

/// For an event that has only an interrupt's name: the index of the number.
fn irq_of_name(event: &EventLayout) -> Option<usize> {
    let is = |name: &str| event.fields.iter().position(|f| f.name == name);
    is("irq").filter(|_| is("name").is_some() && event.fields.len() == 2)
}
