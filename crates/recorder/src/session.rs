// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The steps of a recording, in order.

use super::checks::{check_events, check_limits, layouts};
use super::probes::Probes;
use super::{Engine, Message, Options, Outcome, Target, file, ledger, programs};
use crate::drain::Finished;
use crate::host;
use crate::pipeline::{Ended, Flow};
use crate::rescue::rings;
use crate::socket::{Answer, Listener, Request};
use crate::workload::{Held, Running, SIGNALS};
use crate::writer::Names;
use klogger_engines::bpf::pins;
use klogger_engines::user::{Recorded, schema_text};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::preamble::{Preamble, RateLimit, Recorder};
use klogger_log::writer::Writer;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::processes;
use klogger_os::{Signal, Signals};
use klogger_schema::layout::EventLayout;
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Recorders that were killed, whose rings still take memory.
fn killed_recorders() -> Vec<String> {
    let killed: Vec<u32> = pins::left().into_iter().filter(|l| !l.alive).map(|l| l.pid).collect();
    match killed[..] {
        [] => Vec::new(),
        [pid] => vec![format!(
            "recorder {pid} was killed, and its rings are still in memory: klogger rescue {pid}"
        )],
        _ => {
            vec![format!(
                "{} recorders were killed, and their rings are still in memory: klogger rescue",
                killed.len()
            )]
        }
    }
}

/// Somebody has asked for it, and is told if it cannot be.
fn dump(flow: &mut Flow, tell: &mut dyn FnMut(&Message)) {
    if let Err(e) = flow.dump(false) {
        tell(&Message::Note(e.message));
    }
}

/// Everything loaded and checked, nothing attached yet. Either part may be missing, not both.
pub struct Session {
    options: Options,
    builtin_unit: CompiledSchema,
    /// Of all events, built-in ones first.
    layouts: Vec<EventLayout>,
    probes: Option<Probes>,
    programs: Option<programs::Part>,
    limits: Vec<RateLimit>,
    signals: Signals,
    began: Instant,
    /// A dump was asked for before there was anything to dump.
    asked: bool,
    /// When recording ended before the command did, because no more could be written.
    gave_up_ns: Option<u64>,
    notes: Vec<String>,
}

impl Session {
    pub fn prepare(options: Options) -> Result<Session, Error> {
        let began = Instant::now();
        let signals = Signals::new(&SIGNALS);
        let signals = signals.map_err(|e| Error::new(format!("cannot wait for signals: {e}")))?;
        let builtin_unit = bundled::builtin()?;
        let layouts = layouts(&builtin_unit, &options.units)?;
        if !options.programs {
            check_events(&options.disabled, &layouts)?;
        }
        let limits = check_limits(&options, &layouts)?;
        let wanted = matches!(options.engine, Engine::Bpf | Engine::Kernel)
            || options.units.iter().any(|u| options.is_probed(u));
        let mut probes = if wanted { Some(Probes::load(&options, &builtin_unit)?) } else { None };
        if let Some(probes) = &mut probes {
            probes.limit(&limits, &layouts)?;
        }
        let (programs, notes) = (None, killed_recorders());
        Ok(Session {
            options,
            builtin_unit,
            layouts,
            probes,
            programs,
            limits,
            signals,
            began,
            asked: false,
            gave_up_ns: None,
            notes,
        })
    }

    /// Attaches, records, detaches, and closes the log.
    pub fn run(mut self, tell: &mut dyn FnMut(&Message)) -> Result<Outcome, Error> {
        let plan = match programs::are_wanted(&self.options) {
            true => Some(programs::Plan::new(&self.options, self.probes.is_none())?),
            false => None,
        };
        let held = match &self.options.target {
            Target::Command(words) => {
                Some(Held::new(words, plan.as_ref().map(|p| p.wish(&self.options)))?)
            }
            Target::All | Target::Processes(_) => None,
        };
        let mut flow = self.attach()?;
        let attach = self.began.elapsed();
        match self.begin(&mut flow, plan, held) {
            Ok((running, followed, start_ns)) => {
                self.watch(flow, running, followed, tell, attach, start_ns)
            }
            Err(e) => {
                self.programs.take().map(|part| part.stop(&self.options));
                drop(flow.stop());
                Err(e)
            }
        }
    }

    /// Switches the events on, begins the log, and starts the command. Returns the command, the
    /// processes of `-p`, and when it was.
    fn begin(
        &mut self,
        flow: &mut Flow,
        plan: Option<programs::Plan>,
        held: Option<Held>,
    ) -> Result<(Option<Running>, Vec<OwnedFd>, u64), Error> {
        let clock = host::clock();
        self.enable()?;
        let followed = self.followed()?;
        let probes = self.probes.as_ref();
        let scope =
            probes.map(|p| p.put_in_scope(&self.options.target, held.as_ref())).unwrap_or_default();
        let preamble = self.preamble(clock, plan.is_some())?;
        let (log, kept_old) = file::open(&self.options.output, self.options.mode)?;
        let start_ns = preamble.clock.start_ns;
        let started = Writer::new(log, &preamble, self.options.compression).map_err(|e| {
            file::discard(&self.options.output, kept_old);
            file::cannot_write(&self.options.output, e)
        });
        flow.write(started?, start_ns);
        self.keep(&preamble);
        self.first_events(flow, &preamble, &scope);
        self.start_programs(plan, flow, held.as_ref());
        let running = held.map(|held| self.start_command(held)).transpose();
        let running = running.inspect_err(|_| file::discard(&self.options.output, kept_old))?;
        Ok((running, followed, start_ns))
    }

    /// Opens the rings of the kernel's probes, and attaches them. No event is on yet: to attach
    /// takes time and interrupts all CPUs, which is nothing that the workload did.
    fn attach(&mut self) -> Result<Flow, Error> {
        self.disable();
        let mut flow = Flow::new(&self.layouts);
        if let Some(probes) = &mut self.probes {
            flow.open_cpus(probes, self.options.overwrite, &self.layouts)?;
            self.notes.append(&mut flow.notes);
            if let Err(e) = probes.attach(&self.options, &self.builtin_unit) {
                drop(flow.stop());
                return Err(e);
            }
        }
        Ok(flow)
    }

    /// From here on the kernel's events are logged, but for those that the user does not want.
    fn enable(&self) -> Result<(), Error> {
        let Some(probes) = &self.probes else { return Ok(()) };
        probes.engine.forget()?;
        let disabled = self.disabled_ids();
        let ids = self.layouts.iter().map(|e| e.id).filter(|id| !disabled.contains(id));
        ids.for_each(|id| probes.engine.set_enabled(id, true));
        Ok(())
    }

    /// From here on the rings outlive this process, if they can.
    fn keep(&mut self, preamble: &Preamble) {
        let Some(probes) = &mut self.probes else { return };
        let log = std::path::absolute(&self.options.output)
            .unwrap_or_else(|_| self.options.output.clone());
        let about = rings::About { log, rings: probes.rings, preamble: preamble.clone() };
        let about = serde_json::to_vec(&about).map_err(|e| Error::new(e.to_string()));
        if let Err(e) = about.and_then(|about| probes.engine.keep(&about)) {
            self.notes.push(format!(
                "if this recorder is killed, what its rings hold is lost: {}",
                e.message
            ));
        }
    }

    fn disable(&self) {
        if let Some(probes) = &self.probes {
            self.layouts.iter().for_each(|e| probes.engine.set_enabled(e.id, false));
        }
    }

    fn detach(&mut self) {
        self.probes.iter_mut().for_each(|p| p.engine.detach());
    }

    fn start_programs(&mut self, plan: Option<programs::Plan>, flow: &Flow, held: Option<&Held>) {
        let Some(plan) = plan else { return };
        self.notes.extend(plan.no_folder.clone());
        if self.options.overwrite {
            self.notes.push(
                "--overwrite is for events of the kernel; those of programs are kept whole".into(),
            );
        }
        let scope = self.probes.as_ref().map(|p| p.engine.scope().clone());
        let (part, notes) =
            plan.start(&self.options, &self.builtin_unit, flow, held.map(Held::pid), scope);
        self.programs = Some(part);
        self.notes.extend(notes);
    }

    /// The processes of `-p`, to see when the last of them has ended.
    fn followed(&self) -> Result<Vec<OwnedFd>, Error> {
        let Target::Processes(pids) = &self.options.target else { return Ok(Vec::new()) };
        let open = |pid: &u32| {
            os::pidfd_open(*pid).map_err(|e| match e.raw_os_error() {
                Some(libc::ESRCH) => Error::new(format!("there is no process {pid}"))
                    .help("see 'ps -e' for those there are"),
                Some(libc::EINVAL | libc::ENOENT) => {
                    Error::new(format!("{pid} is not a process, but one of a process's threads"))
                        .help("give the process: 'ps -eL' shows both ids")
                }
                _ => Error::new(format!("cannot watch process {pid}: {e}")),
            })
        };
        pids.iter().map(open).collect()
    }

    /// Not if a signal has come while everything was made ready: nobody waits for the command any
    /// more.
    fn start_command(&mut self, held: Held) -> Result<Running, Error> {
        while let Some(signal) = self.signals.next() {
            self.asked |= signal.number == libc::SIGUSR1;
            if signal.number != libc::SIGUSR1 {
                return Err(Error::new(
                    "a signal ended the recording before the command was started",
                )
                .help("start it again; nothing has been run"));
            }
        }
        held.start()
    }

    fn disabled_ids(&self) -> Vec<u16> {
        let names = &self.options.disabled;
        self.layouts.iter().filter(|e| names.contains(&e.name)).map(|e| e.id).collect()
    }

    fn preamble(
        &self,
        clock: klogger_log::preamble::Clock,
        programs: bool,
    ) -> Result<Preamble, Error> {
        let units = self.options.units.iter().map(|u| (u, self.options.is_user(u)));
        let all: Vec<_> = std::iter::once((&self.builtin_unit, false)).chain(units).collect();
        let schemas = all.iter().map(|(unit, user)| schema_text(&unit.schema, *user));
        let pid = std::process::id();
        let tids = processes::threads_of(pid);
        Ok(Preamble {
            klogger: env!("CARGO_PKG_VERSION").into(),
            engine: match (&self.probes, programs) {
                (Some(probes), true) => format!("{}+user", probes.engine.name()),
                (Some(probes), false) => probes.engine.name().into(),
                (None, _) => "user".into(),
            },
            host: host::host()?,
            clock,
            command_line: self.options.command_line.clone(),
            workload: match &self.options.target {
                Target::Command(words) => {
                    words.iter().map(|w| w.to_string_lossy().into_owned()).collect()
                }
                Target::All | Target::Processes(_) => Vec::new(),
            },
            scope: if matches!(self.options.target, Target::All) { "all" } else { "processes" }
                .into(),
            recorder: Recorder {
                pid,
                names: tids.iter().map(|tid| processes::own_name(*tid)).collect(),
                tids,
                buffer_size: self.buffer_size(),
                lowwater: self.options.lowwater,
                overwrite: self.options.overwrite,
                limits: self.limits.clone(),
            },
            schemas: schemas.collect(),
            events: self.layouts.clone(),
            decodings: all
                .iter()
                .flat_map(|(unit, _)| unit.schema.decodings.iter().cloned())
                .collect(),
            probes: self.probes.as_ref().map(|p| p.engine.probes().to_vec()).unwrap_or_default(),
            costs: self.probes.as_ref().and_then(|p| p.costs.clone()),
        })
    }

    /// Of a CPU's ring, or of a thread's if there are no others.
    fn buffer_size(&self) -> u64 {
        if self.probes.is_some() { self.options.buffer_size } else { self.options.user_buffer }
    }

    /// KLOGGER_START, the state of every event, and who is there.
    fn first_events(&self, flow: &Flow, preamble: &Preamble, scope: &[(u32, u32)]) {
        let now = preamble.clock.start_ns;
        let start = flow.builtin.event("KLOGGER_START");
        flow.own(
            start
                .int("buffer_size", self.buffer_size() as i64)
                .text("kernel", preamble.host.kernel.as_bytes()),
            now,
        );
        let disabled = self.disabled_ids();
        for e in &self.layouts {
            flow.event_state(e, !disabled.contains(&e.id), now);
        }
        for t in scope.iter().filter_map(|(pid, tid)| processes::thread(*pid, *tid)) {
            flow.own(flow.builtin.exists(&t), now);
        }
    }

    /// Waits for the end, and brings it about.
    fn watch(
        mut self,
        mut flow: Flow,
        mut running: Option<Running>,
        followed: Vec<OwnedFd>,
        tell: &mut dyn FnMut(&Message),
        attach: Duration,
        start_ns: u64,
    ) -> Result<Outcome, Error> {
        let listener = Listener::new();
        if let Err(e) = &listener {
            self.notes.push(format!("mark, enable and disable will not reach this recording: {e}"));
        }
        let started = Instant::now();
        tell(&Message::Started { command: running.as_ref().map(Running::pid) });
        if self.asked {
            dump(&mut flow, tell);
        }
        let ends =
            followed.iter().chain(running.as_ref().map(|r| &r.ended)).map(AsFd::as_fd).collect();
        let mut interrupted =
            self.wait(&mut flow, ends, listener.as_ref().ok(), started, tell, true);
        if flow.status.has_failed() {
            // No more can be written. That is no reason to end the user's work.
            self.detach();
            if running.is_some() {
                self.gave_up_ns = Some(os::monotonic_ns());
                self.notes.push("recording ended early; the command ran on to its end".into());
            }
            let ends = running.iter().map(|r| r.ended.as_fd()).collect();
            interrupted = self.wait(&mut flow, ends, None, started, tell, false);
        }
        let status = self.end_workload(running.as_mut(), interrupted);
        if let Some(probes) = &self.probes {
            probes.wait_for_last_events(&self.options.target, running.as_ref(), &followed);
        }
        self.disable();
        // What follows takes its time, and is no part of the recording.
        let end_ns = os::monotonic_ns();
        let elapsed = Duration::from_nanos(end_ns.saturating_sub(start_ns));
        self.detach();
        let recorded =
            self.programs.take().map(|part| part.stop(&self.options)).map(|(recorded, notes)| {
                self.notes.extend(notes);
                recorded
            });
        let late = flow.status.late.load(Ordering::Relaxed);
        let (ends, mut writer) = flow.stop();
        self.notes.append(&mut writer.notes);
        self.notes.extend(ledger::grown(&ends));
        let mut ledger = self.ledger(&ends, &writer, recorded, late, (start_ns, end_ns));
        let names = self.names(&mut ledger);
        let (summary, failure) = (writer.summary(), writer.failure());
        let (summary, write_error) = match writer.finish(&names, &ledger, end_ns) {
            Ok(finished) => (finished, failure),
            Err(e) => (summary, failure.or(Some(e))),
        };
        let interrupted = interrupted.map(|s| s.number);
        Ok(Outcome {
            summary,
            ledger,
            elapsed,
            attach,
            status,
            interrupted,
            write_error,
            notes: self.notes,
        })
    }

    /// What a whole recording has lost, and how.
    fn ledger(
        &self,
        ends: &[Finished],
        writer: &Ended,
        recorded: Option<Recorded>,
        late: u64,
        span: (u64, u64),
    ) -> Ledger {
        let mut ledger = Ledger::default();
        if let Some(probes) = &self.probes {
            ledger.kernel_clock = probes.engine.times().about();
            ledger.entries = ledger::of_probes(&*probes.engine, &self.layouts, ends, span);
        }
        ledger::place_ringless(&mut ledger.entries, &writer.came);
        ledger.entries.extend(writer.seen.iter().cloned());
        if let Some(recorded) = recorded {
            ledger.entries.extend(recorded.entries);
            ledger.user_clock = Some(recorded.clock);
        }
        ledger.entries.extend(ledger::late(&ledger.entries, late, span));
        if self.options.overwrite {
            let summary = writer.summary();
            let logged = |id: u16| summary.counts.iter().find(|c| c.0 == id).map_or(0, |c| c.1);
            ledger.entries.extend(ledger::overwritten(&self.layouts, ends, &logged, span));
        }
        if let Some(why) = &writer.deaf {
            let entry = Entry::new(Key::DrainLate).between(span.0, span.1);
            ledger.entries.push(entry.detail(why));
        }
        if let Some(why) = writer.why_failed() {
            ledger.entries.extend(ledger::unwritten(
                writer.discarded(&why),
                &why,
                self.gave_up_ns,
                span,
            ));
        }
        ledger
    }

    /// Until all processes of `ends` have ended, the time is over, a signal comes (which is
    /// returned), or, while `recording`, the disk is full.
    fn wait(
        &self,
        flow: &mut Flow,
        mut ends: Vec<BorrowedFd>,
        listener: Option<&Listener>,
        started: Instant,
        tell: &mut dyn FnMut(&Message),
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
            let ready = os::poll_readable(&fds, left.unwrap_or(PROGRESS_EVERY).min(PROGRESS_EVERY))
                .unwrap_or_default();
            while let Some(signal) = self.signals.next() {
                if signal.number != libc::SIGUSR1 {
                    return Some(signal);
                }
                dump(flow, tell);
            }
            let mut ended = ready.iter().skip(first_end);
            ends.retain(|_| ended.next() != Some(&true));
            if ends.is_empty() && !endless {
                return None;
            }
            if let (Some(listener), Some(true)) = (listener, ready.get(1)) {
                listener.serve(|request| self.obey(flow, request));
            }
            flow.look();
            if let (Some(probes), true) = (&self.probes, recording) {
                probes.engine.look();
            }
            tell(&Message::Progress(flow.progress(started.elapsed())));
        }
    }

    fn obey(&self, flow: &Flow, request: Request) -> Answer {
        match request {
            Request::Mark { number, text } => {
                let mark = flow.builtin.event("MARK");
                flow.own(
                    mark.int("number", number).text("text", text.as_bytes()),
                    os::monotonic_ns(),
                );
                Answer::default()
            }
            Request::Enable { event, on } => self.switch(flow, &event, on),
        }
    }

    /// Switches an event on or off, wherever it comes from.
    fn switch(&self, flow: &Flow, event: &str, on: bool) -> Answer {
        let late = self.programs.as_ref().and_then(|part| part.switch(event, on));
        let Some(layout) = late.or_else(|| self.layouts.iter().find(|e| e.name == event).cloned())
        else {
            let events =
                self.programs.as_ref().map_or_else(|| self.layouts.clone(), programs::Part::events);
            let help = did_you_mean(event, events.iter().map(|e| e.name.as_str()));
            return Answer::refuse(format!("this recording has no event '{event}'"), help);
        };
        if let Some(probes) = &self.probes {
            probes.engine.set_enabled(layout.id, on);
        }
        flow.event_state(&layout, on, os::monotonic_ns());
        Answer::default()
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
            // Ctrl-C on a terminal reached the command as well, and to many a second one means to
            // drop everything.
            if !interrupted.is_some_and(|s| s.from_terminal && os::in_our_group(running.pid())) {
                running.signal(interrupted.map_or(libc::SIGTERM, |s| s.number));
            }
            let deadline = Instant::now() + GRACE;
            while status.is_none() && Instant::now() < deadline {
                let _ = os::poll_readable(&[running.ended.as_fd()], Duration::from_millis(100));
                status = running.status();
            }
            if status.is_none() {
                running.signal(libc::SIGKILL);
                let _ = os::poll_readable(&[running.ended.as_fd()], GRACE);
                status = running.status();
            }
        }
        status
    }

    fn names(&self, ledger: &mut Ledger) -> Names {
        let names = |probes: &Probes| Names::of(&self.layouts, probes.engine.stacks(), ledger);
        self.probes.as_ref().map(names).unwrap_or_default()
    }
}
