// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The running recording: waits for its end, and answers requests.

use super::Session;
use crate::Message;
use crate::followed::Ends;
use crate::pipeline::Pipeline;
use crate::snapshots::{Made, SnapshotRequest};
use crate::socket::{Answer, Frame, Listener, Reply, Request};
use crate::writer::Names;
use klogger_log::ledger::Ledger;
use klogger_log::seen::Seen;
use klogger_log::stacks::Stacks;
use klogger_os as os;
use klogger_os::Signal;
use klogger_schema::layout::EventLayout;
use klogger_schema::nearest::did_you_mean;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Dumps the rings on request; if that fails, the user is warned.
pub(super) fn dump(pipeline: &mut Pipeline, tell: &mut dyn FnMut(&Message)) {
    if let Err(e) = pipeline.dump(false) {
        tell(&Message::Note(e.message));
    }
}

impl Session {
    /// Waits until all of `ends` have ended, the time is over, a signal comes (which is
    /// returned) or, while `recording`, the disk is full.
    pub(super) fn wait(
        &self,
        pipeline: &mut Pipeline,
        mut ends: Ends,
        listener: Option<&Listener>,
        started: Instant,
        tell: &mut dyn FnMut(&Message),
        recording: bool,
    ) -> Option<Signal> {
        let endless = ends.is_empty();
        loop {
            let left = self.options.duration.map(|d| d.saturating_sub(started.elapsed()));
            let broken = pipeline.status().has_failed() && (recording || endless);
            if left.is_some_and(|l| l.is_zero()) || broken {
                return None;
            }
            let mut fds = vec![self.signals.as_fd()];
            fds.extend(listener.map(AsFd::as_fd));
            fds.extend(self.snapshots.iter().map(AsFd::as_fd));
            let first_end = fds.len();
            fds.extend(ends.handles());
            let last_end = fds.len();
            if recording {
                fds.extend(self.actions.iter().map(AsFd::as_fd));
            }
            let ready = os::poll_readable(&fds, left.unwrap_or(PROGRESS_EVERY).min(PROGRESS_EVERY))
                .unwrap_or_default();
            while let Some(signal) = self.signals.next() {
                if signal.number != libc::SIGUSR1 {
                    return Some(signal);
                }
                dump(pipeline, tell);
            }
            ends.retain(ready.get(first_end..last_end).unwrap_or_default());
            if ends.is_empty() && !endless {
                return None;
            }
            if let (Some(listener), Some(true)) = (listener, ready.get(1)) {
                listener.serve(|request| self.handle(pipeline, started, request));
            }
            self.snapshots.iter().for_each(|s| s.answer(|| self.raw_stacks()));
            if recording && self.act(pipeline, tell) {
                return None;
            }
            pipeline.look();
            for note in self.close_segments(pipeline.builtin()) {
                tell(&Message::Note(note));
            }
            if recording {
                self.engines.iter().for_each(|engine| engine.look());
            }
            self.look_for_followers(pipeline);
            let progress = pipeline.progress(started.elapsed());
            self.rate.borrow_mut().see(&progress);
            tell(&Message::Progress(progress));
        }
    }

    /// Executes a request that came over the control socket.
    fn handle(&self, pipeline: &Pipeline, started: Instant, request: Request) -> Reply {
        Reply::Now(match request {
            Request::Mark { number, text } => {
                self.mark(pipeline, number, &text, os::monotonic_ns());
                Answer::default()
            }
            Request::Enable { event, on } => self.switch(pipeline, &event, on),
            Request::Follow => self.be_followed(pipeline),
            Request::Status => self.status(pipeline, started.elapsed()),
            Request::Stack { number } => match self.stack(number) {
                Some(frames) => Answer { frames, ..Answer::default() },
                None => Answer::refuse(format!("this recording has no user stack {number}"), None),
            },
            Request::Snapshot { text, last_ns, file } => {
                return self.grant(text, last_ns.map(Duration::from_nanos), file);
            }
        })
    }

    /// Has a snapshot made; the peer is answered when it is complete.
    fn grant(&self, why: String, last: Option<Duration>, file: Option<PathBuf>) -> Reply {
        let Some(snapshots) = &self.snapshots else {
            let help = "start the recording with --snapshots".into();
            let no = "this recording keeps no history that a snapshot could be made of";
            return Reply::Now(Answer::refuse(no, Some(help)));
        };
        let requests = snapshots.requests.clone();
        Reply::Later(Box::new(move |peer| {
            let tell = Box::new(|made: Result<Made, String>| match made {
                Ok(made) => peer.tell(&Answer { snapshot: Some(made), ..Answer::default() }),
                Err(why) => peer.tell(&Answer::refuse(why, None)),
            });
            if let Err(request) = requests.snapshot(SnapshotRequest { why, last, file, tell }) {
                (request.tell)(Err("too many snapshots wait to be made".into()));
            }
        }))
    }

    /// Logs a mark. Without a number, it is one more than that of the mark before.
    pub(super) fn mark(&self, pipeline: &Pipeline, number: Option<i64>, text: &str, time_ns: u64) {
        let number = number.unwrap_or_else(|| self.last_mark.get().wrapping_add(1));
        self.last_mark.set(number);
        let mark = pipeline.builtin().event("MARK");
        pipeline.own(mark.int("number", number).text("text", text.as_bytes()), time_ns);
    }

    /// A user stack with the names of its functions, as they are at the end of a log.
    fn stack(&self, number: u64) -> Option<Vec<Frame>> {
        let mut found = self.engines.iter().find_map(|engine| engine.user_code())?;
        found.code.stacks.retain(|stack| stack.number == number);
        let (data, mut ledger) = (Seen::data(), Ledger::default());
        let code = Names::default().with_code(found, &data, &mut ledger, None).code?;
        let stacks = Stacks::default().with(&code);
        let frames = &stacks.find(number)?.frames;
        Some(frames.iter().map(Frame::of).collect())
    }

    /// Switches an event on or off, in whichever engine has it.
    pub(super) fn switch(&self, pipeline: &Pipeline, event: &str, on: bool) -> Answer {
        let mut events: Vec<EventLayout> = self.engines.iter().flat_map(|e| e.events()).collect();
        if events.is_empty() {
            events.clone_from(&self.layouts);
        }
        let Some(layout) = events.iter().find(|e| e.name == event) else {
            let help = did_you_mean(event, events.iter().map(|e| e.name.as_str()));
            return Answer::refuse(format!("this recording has no event '{event}'"), help);
        };
        self.engines.iter().for_each(|engine| engine.set_enabled(layout, on));
        self.poller.set_enabled(layout, on);
        pipeline.event_state(layout, on, os::monotonic_ns());
        Answer::default()
    }
}
