// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The steps of a recording, in order.

mod act;
mod control;
mod finish;
mod preamble;
mod segments;
mod status;

use self::segments::Segments;
use self::status::Rate;
use super::checks::{check_clocks, check_decodings, check_events, check_limits, layouts};
use super::{Message, Options, Outcome, enums, file};
use crate::actions::Actions;
use crate::actions::watcher::Watcher;
use crate::destination::{Destination, is_stdout};
use crate::file::Place;
use crate::followed::Followed;
use crate::host;
use crate::hung::Watched;
use crate::names::ThreadNames;
use crate::pipeline::{Log, Pipeline};
use crate::poll::Poller;
use crate::rescue::rings;
use crate::scope::put_in_scope;
use crate::snapshots::history::History;
use crate::snapshots::{self, Snapshots};
use crate::socket::Listener;
use crate::taps::Consumers;
use crate::taps::triggers::Finder;
use crate::workload::{Held, Running, SIGNALS};
use klogger_engines::engine::{Engine, Moment, Start};
use klogger_engines::request::Request;
use klogger_engines::scope::Scope;
use klogger_log::preamble::{Preamble, RateLimit};
use klogger_log::segments as log_segments;
use klogger_log::writer::Writer;
use klogger_os::files::{cannot_write, discards};
use klogger_os::{Error, Signals};
use klogger_schema::layout::EventLayout;
use klogger_toolchain::host_kernel;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// A recording that is prepared: everything is loaded and checked, nothing is attached.
pub struct Session {
    options: Options,
    /// The layouts of all events, built-in ones first.
    layouts: Vec<EventLayout>,
    /// The engines; one with probes comes first.
    engines: Vec<Box<dyn Engine>>,
    poller: Poller,
    snapshots: Option<Snapshots>,
    /// If there are triggers.
    actions: Option<Actions>,
    /// Until the writer thread has it.
    finder: Option<Finder>,
    /// The trigger that has ended the recording.
    stopped: RefCell<Option<String>>,
    /// When the recording began.
    start_ns: Cell<u64>,
    limits: Vec<RateLimit>,
    signals: Signals,
    /// The processes and threads of `-p`.
    followed: Followed,
    began: Instant,
    /// A dump was requested before the recording had begun.
    asked: bool,
    /// When recording ended before the command did, because the log could not be written.
    gave_up_ns: Option<u64>,
    notes: Vec<String>,
    /// The number of the last mark.
    last_mark: Cell<i64>,
    /// Standard output, if the log goes there.
    stdout: Option<Destination>,
    /// Until when somebody follows the log, unless they say so again.
    followed_until: Cell<Option<Instant>>,
    rate: RefCell<Rate>,
    /// If the log consists of segments.
    segments: Option<Segments>,
}

/// What a running recording waits for.
struct Workload {
    /// The command, if there is one.
    running: Option<Running>,
    start_ns: u64,
    /// For `klogger mark` and the like, until the recording ends.
    listener: Option<Listener>,
}

impl Session {
    pub fn prepare(mut options: Options) -> Result<Session, Error> {
        let began = Instant::now();
        check_clocks()?;
        let signals = Signals::new(&SIGNALS);
        let signals = signals.map_err(|e| Error::new(format!("cannot wait for signals: {e}")))?;
        let enums = enums::fill(&mut options.request);
        let request = &options.request;
        let layouts = layouts(request)?;
        check_decodings(request)?;
        if !request.programs {
            check_events(&request.disabled, &layouts)?;
        }
        let limits = check_limits(&options, &layouts)?;
        match &options.segments {
            Some(_) => file::check_folder(&options.output)?,
            None => file::check(&options.output)?,
        }
        let stdout = is_stdout(&options.output).then(Destination::stdout).transpose()?;
        options.snapshots.iter().try_for_each(|s| file::check(&s.file(1)))?;
        let followed = Followed::of(request, options.choice.engines_for(request))?;
        let engines = options.choice.engines_for(request);
        let alone = engines.len() == 1;
        let (actions, finder) = actions(&options, &layouts)?;
        let prepared = engines.into_iter().map(|engine| (engine.prepare)(request, alone));
        let mut session = Session {
            poller: Poller::prepare(request)?,
            engines: prepared.collect::<Result<_, _>>()?,
            snapshots: None,
            actions,
            finder,
            stopped: RefCell::default(),
            start_ns: Cell::new(0),
            options,
            layouts,
            limits,
            signals,
            followed,
            began,
            asked: false,
            gave_up_ns: None,
            notes: enums,
            last_mark: Cell::new(0),
            stdout,
            followed_until: Cell::new(None),
            rate: RefCell::default(),
            segments: None,
        };
        session.choose()?;
        session.limit()?;
        Ok(session)
    }

    /// On which CPUs events are logged, and of which threads.
    fn choose(&mut self) -> Result<(), Error> {
        let Request { cpus, threads, .. } = &self.options.request;
        for engine in &mut self.engines {
            if !cpus.is_empty() {
                engine.choose_cpus(cpus)?;
            }
            if !threads.are_all() {
                engine.choose_threads(threads)?;
            }
        }
        Ok(())
    }

    /// Only events of probes have limits.
    fn limit(&mut self) -> Result<(), Error> {
        let Some(engine) = self.engines.iter_mut().find(|e| e.info().probes) else { return Ok(()) };
        for limit in &self.limits {
            for layout in self.layouts.iter().filter(|e| e.name == limit.event) {
                engine.limit(layout.id, limit.per_second)?;
            }
        }
        Ok(())
    }

    /// Attaches, records, detaches, and closes the log.
    pub fn run(mut self, tell: &mut dyn FnMut(&Message)) -> Result<Outcome, Error> {
        let words = &self.options.request.command;
        let launch = self.options.launch.clone();
        let held = (!words.is_empty()).then(|| Held::new(words, self.environment(), launch));
        let held = held.transpose()?;
        let mut pipeline = self.attach()?;
        let attach = self.began.elapsed();
        match self.begin(&mut pipeline, held) {
            Ok(workload) => self.record(pipeline, workload, tell, attach),
            Err(e) => {
                self.engines.iter_mut().for_each(|engine| {
                    engine.stop(&self.options.request);
                });
                self.poller.stop((0, 0));
                self.snapshots.iter().for_each(Snapshots::release);
                drop(pipeline.stop());
                self.abandon_segments();
                Err(e)
            }
        }
    }

    /// Variables for the environment of the command.
    fn environment(&self) -> Vec<(&'static str, String)> {
        self.engines.iter().filter_map(|e| e.environment(&self.options.request)).collect()
    }

    /// Opens the rings of CPUs, and attaches the probes. No event is on yet, because attaching
    /// takes time and interrupts all CPUs, which would show in the log.
    fn attach(&mut self) -> Result<Pipeline, Error> {
        host_kernel::forget_types();
        if self.options.snapshots.is_some() {
            let cannot = |e| Error::new(format!("cannot start the thread for snapshots: {e}"));
            self.snapshots = Some(Snapshots::start().map_err(cannot)?);
        }
        let mut pipeline = Pipeline::new(&self.layouts, self.options.request.buffer_size)?;
        if self.options.follower.is_some() || self.actions.is_some() {
            pipeline.followed().directly();
        } else if self.stdout.is_some() {
            // Whoever reads a stream cannot ask for this.
            pipeline.followed().in_log(true);
        }
        if self.snapshots.is_some() {
            pipeline.followed().keep();
        }
        let request = &self.options.request;
        for engine in &mut self.engines {
            engine.disable();
            if let Some(rings) = engine.cpu_rings()? {
                pipeline.open_cpus(rings, request.overwrite, &self.layouts)?;
            }
            self.notes.append(&mut pipeline.notes);
            if let Err(e) = engine.attach(request) {
                drop(pipeline.stop());
                return Err(e);
            }
        }
        Ok(pipeline)
    }

    /// Switches the events on, begins the log, and starts the command.
    fn begin(&mut self, pipeline: &mut Pipeline, held: Option<Held>) -> Result<Workload, Error> {
        let clock = host::clock();
        let disabled = self.disabled_ids();
        self.engines.iter().try_for_each(|engine| engine.enable(&disabled))?;
        let put = |scope| {
            put_in_scope(scope, &self.options.request.target, &self.followed, held.as_ref())
        };
        let there = self.scope().map(put).unwrap_or_default();
        self.divide(pipeline)?;
        let preamble = self.preamble(clock)?;
        let finder = self.finder(&preamble)?;
        let (log, place) = self.open()?;
        let start_ns = preamble.clock.start_ns;
        self.start_ns.set(start_ns);
        let started = Writer::new(log, &preamble, self.options.compression).map_err(|e| {
            discard(place.as_ref());
            cannot_write(&self.log(), e)
        });
        let (mut writer, threads) = (started?, self.thread_names(&preamble)?);
        let seams = self.seams(&preamble, &mut writer);
        let follower = self.options.follower.take();
        let history = self.start_snapshots(pipeline, &preamble);
        let to_stdout = is_stdout(&self.options.output);
        let output = self.options.output.metadata();
        let alone = !to_stdout && output.is_ok_and(|found| discards(&found));
        let feed = follower.map(|follower| pipeline.follow(follower, &preamble, alone));
        let feed = feed.transpose().inspect_err(|_| discard(place.as_ref()))?;
        // Without a file there is nothing that the contents of rings could be rescued for.
        if !to_stdout && (feed.is_none() || !alone) {
            self.keep(&preamble);
        }
        let programs = self.engines.iter().any(|engine| engine.info().finds_programs);
        let writer = writer.forgetting(alone);
        let consumers = Consumers { threads, finder, feed, history };
        pipeline.write(Log { writer, start_ns, seams, programs, consumers });
        self.first_events(pipeline, &preamble, &there);
        let started = self.start_engines(pipeline, held.as_ref());
        started.inspect_err(|_| discard(place.as_ref()))?;
        self.list(pipeline, Moment::Start);
        self.poller.start(pipeline.outlet());
        // Before the command runs, which may ask for something at once.
        let listener = self.listen();
        let running = held.map(|held| self.start_command(held)).transpose();
        let running = running.inspect_err(|_| discard(place.as_ref()))?;
        Ok(Workload { running, start_ns, listener })
    }

    fn listen(&mut self) -> Option<Listener> {
        let refused = |e| format!("mark, enable and disable do not work with this recording: {e}");
        Listener::new().map_err(|e| self.notes.push(refused(e))).ok()
    }

    /// What finds the hits of triggers.
    fn finder(&mut self, preamble: &Preamble) -> Result<Option<Finder>, Error> {
        let Some(finder) = self.finder.take() else { return Ok(None) };
        let events = self.options.request.units.iter().flat_map(|unit| &unit.schema.events);
        let compiled: BTreeSet<u16> =
            events.flat_map(|event| &event.triggers).map(|trigger| trigger.number).collect();
        let triggers = (1..).zip(&self.options.triggers);
        let others = triggers.filter(|(number, _)| !compiled.contains(number));
        let watcher = Watcher::new(others, preamble)
            .map_err(|e| Error::new(format!("--trigger: {}", e.message)).help(e.help))?;
        Ok(Some(finder.watching(watcher, !compiled.is_empty())))
    }

    /// What the log is written to, and where it is unless that is standard output.
    fn open(&mut self) -> Result<(Destination, Option<Place>), Error> {
        if let Some(stdout) = self.stdout.take() {
            return Ok((stdout, None));
        }
        let (file, place) = match self.folder() {
            Some(folder) => {
                let cannot = |e| cannot_write(&self.log(), e);
                let folder = folder.try_clone().map_err(cannot)?;
                let name = log_segments::file_name(1).into();
                file::open_in(folder, name, &self.log(), self.options.mode)?
            }
            None => file::open(&self.log(), self.options.mode)?,
        };
        Ok((Destination::File(Watched::new(self.log(), file)), Some(place)))
    }

    /// The threads that probes log, if the recording has a scope.
    fn scope(&self) -> Option<&Scope> {
        self.engines.iter().find_map(|e| e.scope())
    }

    /// Names of threads out of scope. Those of all threads are in events, if all are followed.
    fn thread_names(&self, preamble: &Preamble) -> Result<Option<ThreadNames>, Error> {
        let Some(engine) = self.engines.iter().find(|e| e.scope().is_some()) else {
            return Ok(None);
        };
        let scope = engine.scope().filter(|_| self.options.request.target.is_scoped());
        let names = |scope: &Scope| {
            let own = &preamble.recorder.tids;
            Ok(ThreadNames::new(&self.layouts, scope.clone(), engine.left_names()?, own))
        };
        scope.map(names).transpose()
    }

    /// Logs what exists now.
    fn list(&mut self, pipeline: &Pipeline, moment: Moment) {
        let mut make_room = || pipeline.empty_rings();
        for engine in &self.engines {
            let missing = engine.list(moment, &mut make_room);
            self.notes.extend(missing.into_iter().map(|e| e.message));
        }
    }

    /// From here on snapshots can be made.
    fn start_snapshots(
        &mut self,
        pipeline: &mut Pipeline,
        preamble: &Preamble,
    ) -> Option<Arc<History>> {
        let (snapshots, options) = (self.snapshots.as_mut()?, self.options.snapshots.clone()?);
        let history = Arc::new(snapshots.history(&options, preamble, pipeline.dump_bytes()));
        let begin = snapshots::Begin {
            options,
            preamble: preamble.clone(),
            builtin: pipeline.builtin().clone(),
            history: history.clone(),
            log: std::path::absolute(&self.options.output)
                .unwrap_or_else(|_| self.options.output.clone()),
            mode: self.options.mode,
            compression: self.options.compression,
        };
        snapshots.begin(begin, pipeline.sources());
        Some(history)
    }

    /// From here on the rings outlive this process, if the engine can do that.
    fn keep(&mut self, preamble: &Preamble) {
        let output = &self.log();
        let log = std::path::absolute(output).unwrap_or_else(|_| output.clone());
        for engine in self.engines.iter_mut().filter(|e| e.cpus() > 0) {
            let (log, rings, preamble) = (log.clone(), engine.cpus(), preamble.clone());
            let facts = serde_json::to_vec(&rings::Facts { log, rings, preamble });
            let facts = facts.map_err(|e| Error::new(e.to_string()));
            if let Err(e) = facts.and_then(|facts| engine.keep(&facts)) {
                let lost = "if this recorder is killed, the contents of its rings are lost";
                self.notes.push(format!("{lost}: {}", e.message));
            }
        }
    }

    fn start_engines(&mut self, pipeline: &Pipeline, held: Option<&Held>) -> Result<(), Error> {
        let scope = self.scope().cloned();
        for engine in &mut self.engines {
            let (outlet, command) = (pipeline.outlet(), held.map(Held::pid));
            let start = Start { outlet, command, scope: scope.as_ref() };
            self.notes.extend(engine.start(&self.options.request, start)?);
        }
        Ok(())
    }

    /// Not if a signal came during the preparation: it has ended the recording.
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
}

/// What triggers need, if there are some.
fn actions(
    options: &Options,
    layouts: &[EventLayout],
) -> Result<(Option<Actions>, Option<Finder>), Error> {
    if options.triggers.is_empty() {
        return Ok((None, None));
    }
    let made = Actions::new(&options.triggers, layouts);
    let (actions, finder) =
        made.map_err(|e| Error::new(format!("cannot prepare the triggers: {e}")))?;
    Ok((Some(actions), Some(finder)))
}

/// Removes the log: the recording did not start.
fn discard(place: Option<&Place>) {
    if let Some(place) = place {
        place.discard();
    }
}
