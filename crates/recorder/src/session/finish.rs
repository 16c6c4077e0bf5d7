// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The end of a recording: waiting for it, detaching, stopping the pipeline, and completing the
//! log.

use super::control::dump;
use super::{Session, Workload};
use crate::destination::is_stdout;
use crate::drain::Finished;
use crate::followed::Ends;
use crate::pipeline::{Ended, Pipeline};
use crate::scope::wait_for_last_events;
use crate::snapshots::{RawStacks, Snapshots};
use crate::workload::Running;
use crate::writer::Names;
use crate::{Message, Outcome, hung, ledger, snapshots};
use klogger_engines::engine::Moment;
use klogger_engines::stacks::StackTable;
use klogger_log::ledger::{Entry, Key, Ledger, TriggerCount};
use klogger_log::seen::Seen;
use klogger_log::writer::Summary;
use klogger_os as os;
use klogger_os::{Error, Signal};
use klogger_ring::block::Builtin;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// What is left when the pipeline has ended.
struct Rest {
    writer: Ended,
    ends: Vec<Finished>,
    /// How often no buffer was free for rings of programs.
    late: u64,
    snapshots: snapshots::Ended,
}

/// What a log ends with.
struct Ending {
    names: Names,
    /// Of the whole recording, which the user is told.
    ledger: Ledger,
    /// Of the log, or its last segment.
    last: Ledger,
}

impl Session {
    /// Waits for the end and completes the recording, step by step. `attach`: how long preparation
    /// took.
    pub(super) fn record(
        mut self,
        mut pipeline: Pipeline,
        mut workload: Workload,
        tell: &mut dyn FnMut(&Message),
        attach: Duration,
    ) -> Result<Outcome, Error> {
        let piped = is_stdout(&self.options.output);
        let _hung = hung::Watch::start(hung::Writes::Recording, self.options.tell_hung);
        // If the reader of the pipe does not read, all threads may wait for it.
        let _second = piped.then(os::SecondEnds::begin);
        let events = pipeline.builtin().clone();

        let (interrupted, status) = self.end_of_workload(&mut pipeline, &mut workload, tell);
        let span = (workload.start_ns, self.end_of_events(&pipeline));
        let polls = self.end_of_sources(&pipeline, span);
        let mut rest = self.end_of_pipeline(pipeline, &events);
        let ending = self.account(&mut rest, polls, span);
        let (summary, write_error) = finish(rest.writer, &ending, span.1);

        self.tell_if_none_came(&summary, &events);
        Ok(Outcome {
            summary,
            ledger: ending.ledger,
            elapsed: Duration::from_nanos(span.1.saturating_sub(span.0)),
            attach,
            status,
            interrupted: interrupted.map(|s| s.number),
            stopped: self.stopped.take(),
            write_error,
            notes: self.notes,
        })
    }

    /// Waits for the end of what is recorded. Returns the signal that came before it, if one did,
    /// and the command's status, if there is a command.
    fn end_of_workload(
        &mut self,
        pipeline: &mut Pipeline,
        workload: &mut Workload,
        tell: &mut dyn FnMut(&Message),
    ) -> (Option<Signal>, Option<ExitStatus>) {
        let interrupted = self.wait_for_end(pipeline, workload, tell);
        if is_stdout(&self.options.output) {
            os::end_by_signals();
        }
        if let Some(trigger) = &*self.stopped.borrow() {
            self.notes.push(format!("a trigger has ended the recording: {trigger}"));
        }
        let status = self.end_workload(workload.running.as_mut(), interrupted);
        if let Some(scope) = self.scope() {
            wait_for_last_events(scope, workload.running.as_ref(), &self.followed);
        }
        (interrupted, status)
    }

    /// Logs what exists now, and switches all events off. Returns when the recording ended: what
    /// follows takes time and is no part of it.
    fn end_of_events(&mut self, pipeline: &Pipeline) -> u64 {
        if !pipeline.status().has_failed() {
            self.list(pipeline, Moment::End);
            self.poller.read_all();
        }
        self.engines.iter().for_each(|engine| engine.disable());
        os::monotonic_ns()
    }

    /// Has all that was logged handed over, and what follows from it: names of threads, while the
    /// probes are still there, and the last actions. Returns what the ledger says of polled files.
    fn end_of_sources(&mut self, pipeline: &Pipeline, span: (u64, u64)) -> Vec<Entry> {
        if self.options.request.target.is_scoped() && !pipeline.status().has_failed() {
            pipeline.name_threads();
        }
        self.detach();
        for engine in &mut self.engines {
            self.notes.extend(engine.stop(&self.options.request));
        }
        self.last_actions(pipeline, span.1);
        self.poller.stop(span)
    }

    /// Ends the threads between the rings and the log, then those that make snapshots and complete
    /// segments.
    fn end_of_pipeline(&mut self, pipeline: Pipeline, events: &Builtin) -> Rest {
        let late = pipeline.status().late.load(Ordering::Relaxed);
        // They would hold on to the rings.
        self.snapshots.iter().for_each(Snapshots::release);
        let (ends, mut writer) = pipeline.stop();
        self.notes.append(&mut writer.notes);
        let snapshots = self.snapshots.take().map(|s| s.end(|| self.raw_stacks()));
        self.end_segments(events);
        Rest { writer, ends, late, snapshots: snapshots.unwrap_or_default() }
    }

    /// Works out what is lost, and the names of addresses.
    fn account(&mut self, rest: &mut Rest, polls: Vec<Entry>, span: (u64, u64)) -> Ending {
        let Rest { writer, ends, late, snapshots } = rest;
        let mut ledger = self.ledger(ends, writer, *late, span);
        ledger.snapshots = std::mem::take(&mut snapshots.taken);
        ledger.entries.append(&mut snapshots.entries);
        ledger.entries.extend(polls);
        let names = self.names(&writer.data(), &mut ledger);
        ledger.entries.extend(ledger::missed());
        let last = Ledger { entries: writer.untold(ledger.entries.clone()), ..ledger.clone() };
        ledger.entries.extend(writer.removed());
        Ending { names, ledger, last }
    }

    /// Waits until the workload is over or a signal ends the recording; the signal is returned.
    fn wait_for_end(
        &mut self,
        pipeline: &mut Pipeline,
        workload: &mut Workload,
        tell: &mut dyn FnMut(&Message),
    ) -> Option<Signal> {
        let (running, listener) = (&workload.running, workload.listener.take());
        let started = Instant::now();
        tell(&Message::Started { command: running.as_ref().map(Running::pid) });
        if self.asked {
            dump(pipeline, tell);
        }
        let command = running.as_ref().map(|r| &r.ended);
        let ends = match command {
            Some(ended) => Ends::of_command(ended.as_fd()),
            None => self.followed.ends(),
        };
        let interrupted = self.wait(pipeline, ends, listener.as_ref(), started, tell, true);
        if !pipeline.status().has_failed() {
            return interrupted;
        }
        // The log cannot be written any more. The user's command runs on.
        self.detach();
        if running.is_some() {
            self.gave_up_ns = Some(os::monotonic_ns());
            self.notes.push("recording ended early; the command ran on to its end".into());
        }
        let ends = command.map(|ended| Ends::of_command(ended.as_fd())).unwrap_or_default();
        self.wait(pipeline, ends, None, started, tell, false)
    }

    fn detach(&mut self) {
        self.engines.iter_mut().for_each(|engine| engine.detach());
    }

    /// The command's status. If it still runs, it gets a signal to end.
    fn end_workload(
        &self,
        running: Option<&mut Running>,
        interrupted: Option<Signal>,
    ) -> Option<ExitStatus> {
        let running = running?;
        let mut status = running.status();
        if status.is_none() {
            // Ctrl-C on a terminal reached the command as well, and a second one often makes a
            // program abort without cleaning up.
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

    /// Threads were chosen, and none of them has logged: the words may be wrong.
    fn tell_if_none_came(&mut self, summary: &Summary, own: &Builtin) {
        let is_own = |id: u16| own.0.iter().any(|e| e.id == id && e.schema == "klogger");
        if summary.counts.iter().any(|(id, records)| *records > 0 && !is_own(*id)) {
            return;
        }
        let threads = self.recorder().threads;
        if !threads.are_all() {
            self.notes.push(format!(
                "no thread {} has logged an event: none ran, or none did what is recorded",
                threads.words()
            ));
        }
    }

    /// Everything that the recording has lost.
    fn ledger(
        &mut self,
        ends: &[Finished],
        writer: &mut Ended,
        late: u64,
        span: (u64, u64),
    ) -> Ledger {
        let entries = ledger::of_engines(&self.engines, &self.layouts, ends, span);
        let mut ledger = Ledger { entries, ..Ledger::default() };
        ledger::place_ringless(&mut ledger.entries, &writer.came);
        ledger.entries.extend(writer.seen.iter().cloned());
        ledger.entries.extend(ledger::excluded(&self.recorder(), span));
        self.engines.iter_mut().for_each(|engine| engine.account(&mut ledger));
        ledger.triggers = self.trigger_counts();
        ledger.entries.extend(self.actions.iter().flat_map(|a| a.forgotten(span)));
        ledger.entries.extend(ledger::late(&ledger.entries, late, span));
        if self.options.request.overwrite {
            let summary = writer.summary();
            let logged = |id: u16| summary.counts.iter().find(|c| c.0 == id).map_or(0, |c| c.1);
            ledger.entries.extend(ledger::overwritten(&self.layouts, ends, &logged, span));
        }
        ledger.entries.extend(writer.of_taps(span));
        if let Some(why) = &writer.listener_error {
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

    /// The hits of triggers so far.
    pub(super) fn trigger_counts(&self) -> Vec<TriggerCount> {
        let fired = |trigger| self.engines.iter().find_map(|engine| engine.fired(trigger));
        self.actions.iter().flat_map(|a| a.counts(&fired)).collect()
    }

    /// The stacks of the recording so far.
    pub(super) fn raw_stacks(&self) -> RawStacks {
        let probes = self.engines.iter().find(|e| e.info().probes);
        RawStacks {
            kernel: probes.and_then(|e| e.stacks()).map(StackTable::read),
            user: probes.and_then(|e| e.user_code()),
        }
    }

    /// Names for the addresses in events of probes. `data`: those of data.
    fn names(&self, data: &Seen, ledger: &mut Ledger) -> Names {
        let probes = self.engines.iter().find(|e| e.info().probes);
        let names =
            probes.map(|e| Names::of(&self.layouts, e.stacks().map(StackTable::read), ledger));
        let names = names.unwrap_or_default();
        let names = match probes.and_then(|engine| engine.user_code()) {
            Some(found) => names.with_code(found, data, ledger, Some(self.options.tell_fetching)),
            None => names,
        };
        names.with_kernel_data(data, ledger)
    }
}

/// Completes the log. Returns what it has, and why it is not complete.
fn finish(writer: Ended, ending: &Ending, end_ns: u64) -> (Summary, Option<io::Error>) {
    let (summary, failure) = (writer.summary(), writer.failure());
    match writer.finish(&ending.names, &ending.last, end_ns) {
        Ok(finished) => (finished, failure),
        Err(e) => (summary, failure.or(Some(e))),
    }
}
