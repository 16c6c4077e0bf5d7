// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The steps of a recording, in order.

use super::dump::FlightRecorder;
use super::{BUFFER_MAX, BUFFER_MIN, Options, Outcome, Progress, Target, ledger};
use crate::bpf::{BpfEngine, Calls, Config};
use crate::bundled;
use crate::control::{Answer, Listener, Request};
use crate::drain::{Drain, Finished, Shared};
use crate::error::Error;
use crate::ring::{EVENTS_MAX, RecordKinds, Rings};
use crate::sys::{self, Signal, Signals};
use crate::unit::{Plan, Unit, faults, plan};
use crate::workload::{Held, Running, SIGNALS};
use crate::writer::{Builtin, LogWriter, Pool, Status, ToWriter};
use crate::{host, kernel, processes};
use klogger_log::ledger::{Entry, Key};
use klogger_log::preamble::{Preamble, Recorder, SchemaText};
use klogger_log::record::SizeTable;
use klogger_log::writer::Writer;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use klogger_schema::nearest::did_you_mean;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The id of the first built-in event; `klogger.klogger` fixes those that follow.
const FIRST_ID: u16 = 1;
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How long an ended thread may take until the kernel frees it, after its last event.
const LAST_EVENTS: Duration = Duration::from_millis(300);
/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Everything loaded and checked, nothing attached yet.
pub struct Session {
    options: Options,
    builtin_unit: Unit,
    plans: Vec<Vec<Plan>>,
    /// Of all events, built-in ones first.
    layouts: Vec<EventLayout>,
    engine: BpfEngine,
    signals: Signals,
    began: Instant,
    notes: Vec<String>,
}

impl Session {
    pub fn prepare(options: Options) -> Result<Session, Error> {
        let began = Instant::now();
        let signals = Signals::new(&SIGNALS);
        let signals = signals.map_err(|e| Error::new(format!("cannot wait for signals: {e}")))?;
        kernel::check_privilege()?;
        if !matches!(options.target, Target::All) {
            kernel::check_pid_namespace()?;
        }
        let cpus = host::online_cpus()?;
        let rings = cpus.iter().max().map_or(1, |c| *c as usize + 1);
        check_buffers(&options, rings)?;
        let types = kernel::types()?;
        let builtin_unit = bundled::builtin()?;
        let mut plans = vec![plan(&builtin_unit.schema, &types)?];
        for unit in &options.units {
            let plan = plan(&unit.schema, &types)?;
            check_plan(unit, &plan)?;
            plans.push(plan);
        }
        let layouts = layouts(&builtin_unit, &options.units)?;
        check_events(&options.disabled, &layouts)?;
        let config = Config {
            rings,
            ring_size: options.buffer_size as usize,
            scoped: !matches!(options.target, Target::All),
            overwrite: options.overwrite,
            lowwater: options.lowwater,
        };
        let engine = BpfEngine::load(&units(&builtin_unit, &options.units, &plans), &config)?;
        Ok(Session { options, builtin_unit, plans, layouts, engine, signals, began, notes: Vec::new() })
    }

    /// Attaches, records, detaches, and closes the log.
    pub fn run(mut self, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, Error> {
        let held = match &self.options.target {
            Target::Command(words) => Some(Held::new(words)?),
            Target::All | Target::Processes(_) => None,
        };
        for id in self.disabled_ids() {
            self.engine.set_enabled(id, false);
        }
        let mut flow = Flow::start(&self)?;
        self.notes.append(&mut flow.notes);
        self.engine.attach(&units(&self.builtin_unit, &self.options.units, &self.plans))?;
        let attach = self.began.elapsed();
        let clock = host::clock();
        let followed = self.followed()?;
        let scope = self.put_in_scope(held.as_ref());
        let preamble = self.preamble(clock)?;
        let (file, kept_old) = open_log(&self.options.output)?;
        let start_ns = preamble.clock.start_ns;
        let started = Writer::new(file, &preamble, self.options.compression).map_err(|e| {
            discard_log(&self.options.output, kept_old);
            cannot_write(&self.options.output, e)
        });
        flow.write(started?, start_ns);
        self.first_events(&flow, &preamble, &scope);
        let running = match held.map(|held| self.start_command(held)).transpose() {
            Ok(running) => running,
            Err(e) => {
                drop(flow.stop());
                discard_log(&self.options.output, kept_old);
                return Err(e);
            }
        };
        self.watch(flow, running, followed, progress, attach, start_ns)
    }

    /// The processes of `-p`, to see when the last of them has ended.
    fn followed(&self) -> Result<Vec<OwnedFd>, Error> {
        let Target::Processes(pids) = &self.options.target else { return Ok(Vec::new()) };
        let open = |pid: &u32| {
            sys::pidfd_open(*pid).map_err(|e| match e.raw_os_error() {
                Some(libc::ESRCH) => {
                    Error::new(format!("there is no process {pid}")).help("see 'ps -e' for those there are")
                }
                Some(libc::EINVAL | libc::ENOENT) => {
                    Error::new(format!("{pid} is not a process, but one of a process's threads"))
                        .help("give the process: 'ps -eL' shows both ids")
                }
                _ => Error::new(format!("cannot watch process {pid}: {e}")),
            })
        };
        pids.iter().map(open).collect()
    }

    /// Not if a signal has come while everything was made ready: nobody waits for the command any more.
    fn start_command(&self, held: Held) -> Result<Running, Error> {
        while let Some(signal) = self.signals.next() {
            if signal.number != libc::SIGUSR1 {
                return Err(Error::new("a signal ended the recording before the command was started")
                    .help("start it again; nothing has been run"));
            }
        }
        held.start()
    }

    fn disabled_ids(&self) -> Vec<u16> {
        let names = &self.options.disabled;
        self.layouts.iter().filter(|e| names.contains(&e.name)).map(|e| e.id).collect()
    }

    /// Sets the scope bits. Returns (process, thread) of all that exist now.
    fn put_in_scope(&self, held: Option<&Held>) -> Vec<(u32, u32)> {
        let threads = |pid: u32| processes::threads_of(pid).into_iter().map(move |tid| (pid, tid));
        match (&self.options.target, held) {
            (Target::All, _) => processes::all_processes().into_iter().flat_map(threads).collect(),
            (Target::Command(_), held) => {
                let pid = held.map(Held::pid).unwrap_or_default();
                self.engine.scope_add(pid);
                vec![(pid, pid)]
            }
            (Target::Processes(pids), _) => {
                let mut found = Vec::new();
                for &pid in pids {
                    self.add_threads(pid, &mut found);
                }
                found
            }
        }
    }

    /// The probes are attached already: a thread made by one in scope is in scope. So once no new ones show up that
    /// are not, all are.
    fn add_threads(&self, pid: u32, found: &mut Vec<(u32, u32)>) {
        loop {
            let new: Vec<u32> = processes::threads_of(pid).into_iter().filter(|t| !self.engine.in_scope(*t)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.engine.scope_add(tid);
            }
        }
        found.extend(processes::threads_of(pid).into_iter().map(|tid| (pid, tid)));
    }

    fn preamble(&self, clock: klogger_log::preamble::Clock) -> Result<Preamble, Error> {
        let all = std::iter::once(&self.builtin_unit).chain(&self.options.units);
        let schemas = all.clone().map(|u| SchemaText {
            name: u.schema.name.clone(),
            doc: u.schema.doc.clone().unwrap_or_default(),
            file: u.schema.file.clone(),
            text: u.schema.text.clone(),
        });
        let pid = std::process::id();
        Ok(Preamble {
            klogger: env!("CARGO_PKG_VERSION").into(),
            engine: "bpf".into(),
            host: host::host()?,
            clock,
            command_line: self.options.command_line.clone(),
            workload: match &self.options.target {
                Target::Command(words) => words.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
                Target::All | Target::Processes(_) => Vec::new(),
            },
            scope: if matches!(self.options.target, Target::All) { "all" } else { "processes" }.into(),
            recorder: Recorder {
                pid,
                tids: processes::threads_of(pid),
                buffer_size: self.options.buffer_size,
                lowwater: self.options.lowwater,
                overwrite: self.options.overwrite,
            },
            schemas: schemas.collect(),
            events: self.layouts.clone(),
            decodings: all.flat_map(|u| u.schema.decodings.iter().cloned()).collect(),
            probes: self.engine.probes.clone(),
        })
    }

    /// KLOGGER_START, the state of every event, and who is there.
    fn first_events(&self, flow: &Flow, preamble: &Preamble, scope: &[(u32, u32)]) {
        let now = preamble.clock.start_ns;
        let start = flow.builtin.event("KLOGGER_START");
        flow.own(
            start.int("buffer_size", self.options.buffer_size as i64).text("kernel", preamble.host.kernel.as_bytes()),
            now,
        );
        let disabled = self.disabled_ids();
        for e in &self.layouts {
            flow.event_state(e, !disabled.contains(&e.id), now);
        }
        for t in scope.iter().filter_map(|(pid, tid)| processes::thread(*pid, *tid)) {
            let exists = flow.builtin.event("PROCESS_EXISTS");
            let exists = exists.int("pid", t.tid.into()).int("tgid", t.tgid.into()).int("ppid", t.ppid.into());
            let exists = exists.int("prio", t.prio.into()).int("policy", t.policy.into());
            flow.own(exists.text("comm", &t.comm).text("command", &t.command), now);
        }
    }

    /// Waits for the end, and brings it about.
    fn watch(
        mut self,
        mut flow: Flow,
        mut running: Option<Running>,
        followed: Vec<OwnedFd>,
        progress: &mut dyn FnMut(&Progress),
        attach: Duration,
        start_ns: u64,
    ) -> Result<Outcome, Error> {
        let listener = Listener::new();
        if let Err(e) = &listener {
            self.notes.push(format!("mark, enable and disable will not reach this recording: {e}"));
        }
        let started = Instant::now();
        let ends = followed.iter().chain(running.as_ref().map(|r| &r.ended)).map(AsFd::as_fd).collect();
        let mut interrupted = self.wait(&mut flow, ends, listener.as_ref().ok(), started, progress, true);
        if flow.status.has_failed() {
            // No more can be written. That is no reason to end the user's work.
            self.engine.detach();
            if running.is_some() {
                self.notes.push("recording ended early; the command ran on to its end".into());
            }
            let ends = running.iter().map(|r| r.ended.as_fd()).collect();
            interrupted = self.wait(&mut flow, ends, None, started, progress, false);
        }
        let status = self.end_workload(running.as_mut(), interrupted);
        self.wait_for_last_events(running.as_ref(), &followed);
        let elapsed = started.elapsed();
        self.engine.detach();
        sys::wait_for_running_programs();
        let late = flow.status.late.load(Ordering::Relaxed);
        let (ends, writer) = flow.stop();
        let span = (start_ns, sys::monotonic_ns());
        let mut ledger = ledger::ledger(&self.engine, &self.layouts, &ends, span, late);
        let summary = writer.summary();
        if self.options.overwrite {
            let logged = |id: u16| summary.counts.iter().find(|c| c.0 == id).map_or(0, |c| c.1);
            ledger.entries.extend(ledger::overwritten(&self.layouts, &ends, &logged, span));
        }
        let failure = writer.failure();
        if let Some(e) = &failure {
            let entry = Entry::new(Key::DiskFull).count(writer.discarded()).between(span.0, span.1);
            ledger.entries.push(entry.detail(&e.to_string()));
        }
        let (summary, write_error) = match writer.finish(self.symbols(), &ledger) {
            Ok(finished) => (finished, failure),
            Err(e) => (summary, failure.or(Some(e))),
        };
        let notes = self.notes;
        Ok(Outcome {
            summary,
            ledger,
            elapsed,
            attach,
            status,
            interrupted: interrupted.map(|s| s.number),
            write_error,
            notes,
        })
    }

    /// Until all processes of `ends` have ended, the time is over, a signal comes (which is returned), or, while
    /// `recording`, the disk is full.
    fn wait(
        &self,
        flow: &mut Flow,
        mut ends: Vec<BorrowedFd>,
        listener: Option<&Listener>,
        started: Instant,
        progress: &mut dyn FnMut(&Progress),
        recording: bool,
    ) -> Option<Signal> {
        let endless = ends.is_empty();
        loop {
            let left = self.options.duration.map(|d| d.saturating_sub(started.elapsed()));
            let broken = flow.status.has_failed() && (recording || endless);
            if left.is_some_and(|l| l.is_zero()) || broken {
                return None;
            }
            let mut fds = vec![self.signals.as_fd()];
            fds.extend(listener.map(AsFd::as_fd));
            let first_end = fds.len();
            fds.extend(&ends);
            let ready =
                sys::poll_readable(&fds, left.unwrap_or(PROGRESS_EVERY).min(PROGRESS_EVERY)).unwrap_or_default();
            while let Some(signal) = self.signals.next() {
                if signal.number != libc::SIGUSR1 {
                    return Some(signal);
                }
                flow.dump(true);
            }
            let mut ended = ready.iter().skip(first_end);
            ends.retain(|_| ended.next() != Some(&true));
            if ends.is_empty() && !endless {
                return None;
            }
            if let (Some(listener), Some(true)) = (listener, ready.get(1)) {
                listener.serve(|request| self.obey(flow, request));
            }
            progress(&flow.progress(started.elapsed()));
        }
    }

    fn obey(&self, flow: &Flow, request: Request) -> Answer {
        match request {
            Request::Mark { number, text } => {
                let mark = flow.builtin.event("MARK");
                flow.own(mark.int("number", number).text("text", text.as_bytes()), sys::monotonic_ns());
                Answer::default()
            }
            Request::Enable { event, on } => {
                let Some(layout) = self.layouts.iter().find(|e| e.name == event) else {
                    let help = did_you_mean(&event, self.layouts.iter().map(|e| e.name.as_str()));
                    return Answer::refuse(format!("this recording has no event '{event}'"), help);
                };
                self.engine.set_enabled(layout.id, on);
                flow.event_state(layout, on, sys::monotonic_ns());
                Answer::default()
            }
        }
    }

    /// The command's status. One that still runs is asked to end.
    fn end_workload(
        &self,
        running: Option<&mut Running>,
        interrupted: Option<Signal>,
    ) -> Option<std::process::ExitStatus> {
        let running = running?;
        let mut status = running.status();
        if status.is_none() {
            // Ctrl-C on a terminal reached the command as well, and to many a second one means to drop everything.
            if !interrupted.is_some_and(|s| s.from_terminal && sys::in_our_group(running.pid())) {
                running.signal(interrupted.map_or(libc::SIGTERM, |s| s.number));
            }
            let deadline = Instant::now() + GRACE;
            while status.is_none() && Instant::now() < deadline {
                let _ = sys::poll_readable(&[running.ended.as_fd()], Duration::from_millis(100));
                status = running.status();
            }
            if status.is_none() {
                running.signal(libc::SIGKILL);
                let _ = sys::poll_readable(&[running.ended.as_fd()], GRACE);
                status = running.status();
            }
        }
        status
    }

    /// A thread's last event comes after its process is seen to have ended. None is waited for that still runs.
    fn wait_for_last_events(&self, running: Option<&Running>, followed: &[OwnedFd]) {
        let followed: Vec<_> = followed.iter().map(AsFd::as_fd).collect();
        let ended = sys::poll_readable(&followed, Duration::ZERO).is_ok_and(|r| r.iter().all(|ended| *ended));
        let pids: Vec<u32> = match (&self.options.target, running) {
            (Target::Processes(pids), _) if ended => pids.clone(),
            (Target::All | Target::Processes(_) | Target::Command(_), running) => {
                running.map(Running::pid).into_iter().collect()
            }
        };
        let deadline = Instant::now() + LAST_EVENTS;
        while pids.iter().any(|pid| self.engine.in_scope(*pid)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The kernel's symbols, if an event has a code address.
    fn symbols(&self) -> Option<String> {
        let needed = self.layouts.iter().flat_map(|e| &e.fields).any(|f| f.decode == Decode::Code);
        needed.then(host::symbols)
    }
}

/// From the rings to the file: drain threads, or the flight recorder, and the writer.
struct Flow {
    builtin: Builtin,
    status: Arc<Status>,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    messages: Option<std::sync::mpsc::Receiver<ToWriter>>,
    drains: Vec<Drain>,
    flight: Option<FlightRecorder>,
    stop: Arc<AtomicBool>,
    /// Passes the calls of full rings on to drain threads.
    caller: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<LogWriter>>,
    notes: Vec<String>,
}

/// The thread that wakes drain threads when their rings fill up. It has their priority, or a busy system would hold up
/// the call.
fn pass_on_calls(calls: Calls, drains: &[Drain], stop: Arc<AtomicBool>) -> Option<JoinHandle<()>> {
    let wakers: HashMap<u32, Thread> = drains.iter().map(|d| (u32::from(d.cpu), d.waker())).collect();
    let listen = move || {
        // Not to be had is not fatal: the drain threads said so already for themselves.
        let _ = sys::become_fifo();
        let go_on = || !stop.load(Ordering::Acquire);
        let call = |cpu: u32| wakers.get(&cpu).into_iter().for_each(Thread::unpark);
        // Without calls rings are still emptied each second, and losses are counted.
        let _ = calls.listen(&go_on, &call);
    };
    let builder = thread::Builder::new().name("klogger/calls".into());
    if drains.is_empty() { None } else { builder.spawn(listen).ok() }
}

/// A writer whose input has ended.
struct Ended {
    writer: Option<LogWriter>,
    status: Arc<Status>,
}

impl Flow {
    /// Opens the rings and starts the drain threads. What they find waits until there is a file.
    fn start(session: &Session) -> Result<Flow, Error> {
        let builtin = Builtin(Arc::new(session.layouts.clone()));
        let (to_writer, messages) = sync_channel(128);
        let (status, pool, stop) = (Arc::<Status>::default(), Arc::<Pool>::default(), Arc::<AtomicBool>::default());
        let kinds = Arc::new(record_kinds(&session.layouts));
        let cpus = host::online_cpus().unwrap_or_default();
        let readers: Vec<_> = cpus.iter().map(|c| (*c as u16, session.engine.rings.reader(*c as usize))).collect();
        for (_, reader) in &readers {
            reader.open(session.options.overwrite);
        }
        let (mut drains, mut flight) = (Vec::new(), None);
        if session.options.overwrite {
            flight = Some(FlightRecorder::new(readers, kinds, &session.layouts, builtin.clone()));
        } else {
            let shared = Shared {
                kinds,
                to_writer: to_writer.clone(),
                pool: pool.clone(),
                status: status.clone(),
                builtin: builtin.clone(),
                stop: stop.clone(),
            };
            drains = readers.into_iter().map(|(cpu, reader)| Drain::start(cpu, reader, shared.clone())).collect();
        }
        let notes = drains.iter_mut().flat_map(|d| std::mem::take(&mut d.notes)).collect();
        let caller = pass_on_calls(session.engine.calls()?, &drains, stop.clone());
        Ok(Flow {
            builtin,
            status,
            pool,
            to_writer,
            messages: Some(messages),
            drains,
            flight,
            stop,
            caller,
            writer: None,
            notes,
        })
    }

    fn write(&mut self, writer: Writer<File>, start_ns: u64) {
        let Some(messages) = self.messages.take() else { return };
        let log = LogWriter::new(writer, self.builtin.clone(), self.status.clone(), self.pool.clone(), start_ns);
        self.writer = Some(thread::spawn(move || log.run(messages)));
    }

    /// Logs an event of the recorder's own.
    fn own(&self, event: klogger_log::builder::RecordBuilder, time_ns: u64) {
        let mut bytes = Vec::new();
        event.finish(time_ns, &mut bytes);
        // Fails only if the writer has given up, which it has reported itself.
        let _ = self.to_writer.send(ToWriter::Own(bytes));
    }

    fn event_state(&self, layout: &EventLayout, on: bool, time_ns: u64) {
        let state = self.builtin.event("LOGGING_EVENT").int("id", layout.id.into()).int("state", on.into());
        self.own(state.text("name", layout.name.as_bytes()), time_ns);
    }

    fn dump(&mut self, resume: bool) {
        if let Some(flight) = &mut self.flight {
            flight.dump(resume, &self.status, &self.to_writer);
        }
    }

    fn progress(&self, elapsed: Duration) -> Progress {
        let s = &self.status;
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        Progress { elapsed, events: get(&s.events), lost: get(&s.lost), bytes: get(&s.bytes) }
    }

    /// After the programs are detached: the rest of the rings, and then the writer's end.
    fn stop(mut self) -> (Vec<Finished>, Ended) {
        self.dump(false);
        self.stop.store(true, Ordering::Release);
        self.drains.iter().for_each(|d| d.waker().unpark());
        if let Some(caller) = self.caller.take() {
            let _ = caller.join();
        }
        let mut ends: Vec<Finished> = self.drains.into_iter().filter_map(Drain::join).collect();
        ends.extend(self.flight.into_iter().flat_map(FlightRecorder::finish));
        drop(self.to_writer);
        let writer = self.writer.and_then(|w| w.join().ok());
        (ends, Ended { writer, status: self.status })
    }
}

impl Ended {
    fn summary(&self) -> klogger_log::writer::Summary {
        self.writer.as_ref().map(LogWriter::summary).unwrap_or_default()
    }

    fn discarded(&self) -> u64 {
        self.writer.as_ref().map_or(0, LogWriter::discarded)
    }

    fn failure(&self) -> Option<std::io::Error> {
        self.status.failure.lock().ok().and_then(|mut f| f.take())
    }

    fn finish(
        self,
        symbols: Option<String>,
        ledger: &klogger_log::ledger::Ledger,
    ) -> std::io::Result<klogger_log::writer::Summary> {
        match self.writer {
            Some(writer) => writer.finish(symbols, ledger),
            None => Err(std::io::Error::other("the writer's thread has died")),
        }
    }
}

fn units<'a>(builtin: &'a Unit, units: &'a [Unit], plans: &'a [Vec<Plan>]) -> Vec<(&'a Unit, &'a [Plan], u16)> {
    let mut base = FIRST_ID;
    let all = std::iter::once(builtin).chain(units).zip(plans);
    all.map(|(unit, plan)| {
        let first = base;
        base += unit.schema.events.len() as u16;
        (unit, plan.as_slice(), first)
    })
    .collect()
}

fn layouts(builtin: &Unit, units: &[Unit]) -> Result<Vec<EventLayout>, Error> {
    let mut list: Vec<EventLayout> = Vec::new();
    for unit in std::iter::once(builtin).chain(units) {
        let base = FIRST_ID as usize + list.len();
        if base + unit.schema.events.len() > EVENTS_MAX {
            return Err(Error::new(format!("more than {} events in one recording", EVENTS_MAX - 1))
                .help("record with fewer schemata at a time"));
        }
        let new = unit.layouts(base as u16);
        if let Some(twice) = new.iter().find(|n| list.iter().any(|e| e.name.eq_ignore_ascii_case(&n.name))) {
            let other =
                list.iter().find(|e| e.name.eq_ignore_ascii_case(&twice.name)).map_or("", |e| e.schema.as_str());
            return Err(Error::new(format!(
                "two schemata have an event '{}': {other} and {}",
                twice.name, twice.schema
            ))
            .help("record with one of them at a time, or rename the event"));
        }
        list.extend(new);
    }
    Ok(list)
}

fn record_kinds(layouts: &[EventLayout]) -> RecordKinds {
    let lost = layouts.iter().find(|e| e.name == "LOST");
    let offset = |name: &str| {
        let field = lost.and_then(|l| l.fields.iter().find(|f| f.name == name));
        field.map_or(0, |f| f.offset as usize)
    };
    RecordKinds {
        sizes: SizeTable::new(layouts),
        lost_id: lost.map_or(0, |l| l.id),
        lost_count_offset: offset("count"),
        lost_since_offset: offset("since"),
    }
}

fn check_buffers(options: &Options, rings: usize) -> Result<(), Error> {
    let size = options.buffer_size;
    if !size.is_power_of_two() || !(BUFFER_MIN..=BUFFER_MAX).contains(&size) {
        return Err(Error::new(format!("a ring of {size} bytes is not possible"))
            .help("choose a --buffer-size from 16K to 256M; it is rounded up to a power of two"));
    }
    let needed = (rings * Rings::stride(size as usize)) as u64;
    match host::memory_available() {
        Some(available) if needed > available => Err(Error::new(format!(
            "rings of {} MiB for each of {rings} CPUs need {} MiB of memory, and {} MiB are free",
            size >> 20,
            needed >> 20,
            available >> 20
        ))
        .help("choose a smaller --buffer-size")),
        _ => Ok(()),
    }
}

fn check_events(names: &[String], layouts: &[EventLayout]) -> Result<(), Error> {
    for name in names {
        if !layouts.iter().any(|e| e.name == *name) {
            let error = Error::new(format!("no schema of this recording has an event '{name}'"));
            return Err(match did_you_mean(name, layouts.iter().map(|e| e.name.as_str())) {
                Some(help) => error.help(help),
                None => error.help("see 'klogger show SCHEMA' for its events"),
            });
        }
    }
    Ok(())
}

/// A schema that is wrong about this kernel is refused; one that foresees that a place may be missing is not.
fn check_plan(unit: &Unit, plans: &[Plan]) -> Result<(), Error> {
    let schema = &unit.schema;
    if let Some(fault) = faults(schema, plans).into_iter().next() {
        let line = schema.text.get(..fault.span.start).map_or(1, |t| t.matches('\n').count() + 1);
        let error = Error::new(format!("{}:{line}: {}", schema.file, fault.message));
        return Err(Error { help: fault.help, ..error });
    }
    if !schema.probes.is_empty() && plans.iter().all(|p| p.target.is_none()) {
        return Err(Error::new(format!(
            "none of the probes of schema '{}' can be attached to this kernel",
            schema.name
        ))
        .help(format!("'klogger show {}' says why", schema.name)));
    }
    Ok(())
}

/// Makes the log file; true if one that existed is kept as NAME.old.
fn open_log(path: &Path) -> Result<(File, bool), Error> {
    let before = path.metadata();
    // Opening a pipe would wait for a reader, and a log that cannot be cut could not survive a full disk.
    if before.as_ref().is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_socket()) {
        return Err(cannot_write(path, io::Error::other("it is a pipe or a socket, and a log must be a file")));
    }
    let keep_old = before.is_ok_and(|m| m.is_file() && m.len() > 0);
    if keep_old {
        std::fs::rename(path, old_name(path)).map_err(|e| cannot_write(path, e))?;
    }
    Ok((File::create(path).map_err(|e| cannot_write(path, e))?, keep_old))
}

/// After a recording that did not come about: as if open_log() had never been called. A device stays, of course.
fn discard_log(path: &Path, kept_old: bool) {
    if path.metadata().is_ok_and(|m| m.is_file()) {
        let _ = match kept_old {
            true => std::fs::rename(old_name(path), path),
            false => std::fs::remove_file(path),
        };
    }
}

fn old_name(path: &Path) -> OsString {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(format!("cannot write {}: {error}", path.display())).help("choose another file with -o FILE")
}
