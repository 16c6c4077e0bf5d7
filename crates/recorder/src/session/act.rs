// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Takes the actions of triggers, by the thread of the recording.

use super::Session;
use crate::Message;
use crate::actions::run::{Ended, TIME, variables};
use crate::actions::{Actions, Hit};
use crate::pipeline::Pipeline;
use klogger_log::trigger::{Action, Trigger};
use klogger_os as os;
use std::thread;
use std::time::{Duration, Instant};

/// What commands are given beyond their time, to be killed.
const BEYOND: Duration = Duration::from_secs(1);
/// How often it is looked whether the last commands have ended.
const LOOK: Duration = Duration::from_millis(5);
/// Why an action was not taken.
const ENDED: &str = "not done: the recording had ended";

impl Session {
    /// Takes the actions that are due. Returns whether the recording ends.
    pub(super) fn act(&self, pipeline: &Pipeline, tell: &mut dyn FnMut(&Message)) -> bool {
        let Some(actions) = &self.actions else { return false };
        for hit in actions.take() {
            self.act_on(actions, pipeline, &hit, None);
        }
        self.commands_ended(actions, pipeline, None, &mut |note| tell(&Message::Note(note)));
        self.stopped.borrow().is_some()
    }

    /// Takes the last actions, after the last event, and waits for commands. What is logged has the
    /// time of the end.
    pub(super) fn last_actions(&mut self, pipeline: &Pipeline, end_ns: u64) {
        let Some(actions) = &self.actions else { return };
        if pipeline.status().has_failed() {
            return;
        }
        pipeline.settle(end_ns);
        let mut notes = Vec::new();
        for hit in actions.take() {
            self.act_on(actions, pipeline, &hit, Some(end_ns));
        }
        let until = Instant::now() + TIME;
        let running = || actions.commands.borrow().are_running();
        while running() && Instant::now() < until + BEYOND {
            self.commands_ended(actions, pipeline, Some(end_ns), &mut |note| notes.push(note));
            if self.signals.next().is_some() || Instant::now() >= until {
                actions.commands.borrow_mut().end();
            }
            thread::sleep(LOOK);
        }
        actions.commands.borrow_mut().end();
        self.notes.append(&mut notes);
    }

    /// `end_ns`: when the recording ended, if it has.
    fn act_on(&self, actions: &Actions, pipeline: &Pipeline, hit: &Hit, end_ns: Option<u64>) {
        let Some(trigger) = actions.triggers.get(usize::from(hit.trigger).wrapping_sub(1)) else {
            return;
        };
        for action in &trigger.actions {
            let taken = match (action, end_ns) {
                (Action::Enable(_) | Action::Disable(_) | Action::Stop, Some(_)) => {
                    Err(ENDED.into())
                }
                _ => self.take(actions, pipeline, hit, (trigger, action), end_ns),
            };
            let result = match taken {
                // Its result is logged when it has ended.
                Ok(()) if matches!(action, Action::Run(_)) => continue,
                Ok(()) => String::new(),
                Err(why) => why,
            };
            self.log_action(pipeline, hit, &action.to_string(), &result, end_ns);
        }
    }

    /// Takes an action. Returns why it could not be taken.
    fn take(
        &self,
        actions: &Actions,
        pipeline: &Pipeline,
        hit: &Hit,
        (trigger, action): (&Trigger, &Action),
        end_ns: Option<u64>,
    ) -> Result<(), String> {
        match action {
            Action::Snapshot => self.snapshot(&trigger.text, hit),
            Action::Mark(text) => {
                self.mark(pipeline, None, text, end_ns.unwrap_or_else(os::monotonic_ns));
                Ok(())
            }
            Action::Enable(events) => self.switch_all(pipeline, events, true),
            Action::Disable(events) => self.switch_all(pipeline, events, false),
            Action::Stop => {
                self.stopped.borrow_mut().get_or_insert_with(|| trigger.text.clone());
                Ok(())
            }
            Action::Run(command) => {
                let variables = variables(hit, self.start_ns.get());
                actions.commands.borrow_mut().start(hit.clone(), command, variables)
            }
        }
    }

    /// Asks for the time around the hit as a log of its own.
    fn snapshot(&self, why: &str, hit: &Hit) -> Result<(), String> {
        let snapshots = self.snapshots.as_ref();
        let snapshots = snapshots.ok_or("not done: no history is kept of this recording")?;
        snapshots.requests.hit(why, hit.time_ns, hit.trigger.into());
        Ok(())
    }

    fn switch_all(&self, pipeline: &Pipeline, events: &[String], on: bool) -> Result<(), String> {
        let wrong: Vec<String> =
            events.iter().filter_map(|e| self.switch(pipeline, e, on).error).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// Logs the results of commands, and passes on what they have printed.
    fn commands_ended(
        &self,
        actions: &Actions,
        pipeline: &Pipeline,
        end_ns: Option<u64>,
        note: &mut dyn FnMut(String),
    ) {
        let ended = actions.commands.borrow_mut().take();
        for Ended { hit, command, result, output } in ended {
            let action = Action::Run(command).to_string();
            self.log_action(pipeline, &hit, &action, &result, end_ns);
            let what = format!("trigger {}, hit {}: {action}", hit.trigger, hit.number);
            if !result.is_empty() {
                note(format!("{what}: {result}"));
            }
            if !output.is_empty() {
                note(format!("{what} printed: {output}"));
            }
        }
    }

    fn log_action(
        &self,
        pipeline: &Pipeline,
        hit: &Hit,
        action: &str,
        result: &str,
        end_ns: Option<u64>,
    ) {
        let event = pipeline.builtin().event("TRIGGER_ACTION");
        let event = event.int("trigger", hit.trigger.into()).int("hit", hit.number as i64);
        let event = event.int("of", hit.time_ns as i64).text("action", action.as_bytes());
        let time_ns = end_ns.unwrap_or_else(os::monotonic_ns);
        pipeline.own(event.text("result", result.as_bytes()), time_ns);
    }
}
