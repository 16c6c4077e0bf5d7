// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The steps of a recording, in order.

use super::checks::{check_buffers, check_events, check_plan, layouts};
use super::flow::Flow;
use super::{FIRST_ID, Options, Outcome, Progress, Target, file, ledger};
use crate::bpf::{BpfEngine, Config};
use crate::bundled;
use crate::control::{Answer, Listener, Request};
use crate::error::Error;
use crate::sys::{self, Signal, Signals};
use crate::unit::{Plan, Unit, plan};
use crate::workload::{Held, Running, SIGNALS};
use crate::{host, kernel, processes};
use klogger_log::ledger::{Entry, Key};
use klogger_log::preamble::{Preamble, Recorder, SchemaText};
use klogger_log::writer::Writer;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use klogger_schema::nearest::did_you_mean;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

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
        let mut flow = Flow::start(&self.engine, &self.options, &self.layouts)?;
        self.notes.append(&mut flow.notes);
        self.engine.attach(&units(&self.builtin_unit, &self.options.units, &self.plans))?;
        let attach = self.began.elapsed();
        let clock = host::clock();
        let followed = self.followed()?;
        let scope = self.put_in_scope(held.as_ref());
        let preamble = self.preamble(clock)?;
        let (log, kept_old) = file::open(&self.options.output)?;
        let start_ns = preamble.clock.start_ns;
        let started = Writer::new(log, &preamble, self.options.compression).map_err(|e| {
            file::discard(&self.options.output, kept_old);
            file::cannot_write(&self.options.output, e)
        });
        flow.write(started?, start_ns);
        self.first_events(&flow, &preamble, &scope);
        let running = match held.map(|held| self.start_command(held)).transpose() {
            Ok(running) => running,
            Err(e) => {
                drop(flow.stop());
                file::discard(&self.options.output, kept_old);
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
            user: false,
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
