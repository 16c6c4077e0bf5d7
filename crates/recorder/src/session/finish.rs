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
use crate::socket::Listener;
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
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

impl Session {
    /// Waits for the end and completes the recording. `attach`: how long preparation took.
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
        let interrupted = self.wait_for_end(&mut pipeline, &workload, tell);
        if piped {
            os::end_by_signals();
        }
        if let Some(trigger) = &*self.stopped.borrow() {
            self.notes.push(format!("a trigger has ended the recording: {trigger}"));
        }
        let status = self.end_workload(workload.running.as_mut(), interrupted);
        if let Some(scope) = self.scope() {
            wait_for_last_events(scope, workload.running.as_ref(), &self.followed);
        }
        if !pipeline.status().has_failed() {
            self.list(&pipeline, Moment::End);
            self.poller.read_all();
        }
        self.engines.iter().for_each(|engine| engine.disable());
        // What follows takes time and is no part of the recording.
        let end_ns = os::monotonic_ns();
        let (start_ns, elapsed_ns) = (workload.start_ns, end_ns.saturating_sub(workload.start_ns));
        if self.options.request.target.is_scoped() && !pipeline.status().has_failed() {
            pipeline.name_threads();
        }
        self.detach();
        for engine in &mut self.engines {
            self.notes.extend(engine.stop(&self.options.request));
        }
        self.last_actions(&pipeline, end_ns);
        let polls = self.poller.stop((start_ns, end_ns));
        let late = pipeline.status().late.load(Ordering::Relaxed);
        self.snapshots.iter().for_each(Snapshots::release);
        let events = pipeline.builtin().clone();
        let (ends, mut writer) = pipeline.stop();
        self.notes.append(&mut writer.notes);
        let snapshots = self.snapshots.take().map(|s| s.end(|| self.raw_stacks()));
        self.end_segments(&events);
        let mut ledger = self.ledger(&ends, &writer, late, (start_ns, end_ns));
        let snapshots::Ended { taken, entries } = snapshots.unwrap_or_default();
        ledger.snapshots = taken;
        ledger.entries.extend(entries);
        ledger.entries.extend(polls);
        let names = self.names(&writer.data(), &mut ledger);
        ledger.entries.extend(ledger::missed());
        // What the user is told is of all segments.
        let last = Ledger { entries: writer.untold(ledger.entries.clone()), ..ledger.clone() };
        ledger.entries.extend(writer.removed());
        let (summary, failure) = (writer.summary(), writer.failure());
        let (summary, write_error) = match writer.finish(&names, &last, end_ns) {
            Ok(finished) => (finished, failure),
            Err(e) => (summary, failure.or(Some(e))),
        };
        self.tell_if_none_came(&summary, &events);
        Ok(Outcome {
            summary,
            ledger,
            elapsed: Duration::from_nanos(elapsed_ns),
            attach,
            status,
            interrupted: interrupted.map(|s| s.number),
            stopped: self.stopped.take(),
            write_error,
            notes: self.notes,
        })
    }

    /// Waits until the workload is over or a signal ends the recording; the signal is returned.
    fn wait_for_end(
        &mut self,
        pipeline: &mut Pipeline,
        workload: &Workload,
        tell: &mut dyn FnMut(&Message),
    ) -> Option<Signal> {
        let running = &workload.running;
        let listener = Listener::new();
        if let Err(e) = &listener {
            self.notes
                .push(format!("mark, enable and disable do not work with this recording: {e}"));
        }
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
        let interrupted = self.wait(pipeline, ends, listener.as_ref().ok(), started, tell, true);
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
    fn ledger(&mut self, ends: &[Finished], writer: &Ended, late: u64, span: (u64, u64)) -> Ledger {
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
        ledger.entries.extend(ledger::unnamed(writer.unnamed(), span));
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
