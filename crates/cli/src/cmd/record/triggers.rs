// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--trigger`: what has to happen in a recording, and what is done then. An event with a condition
//! is compiled into the programs of its schema.

use super::conditions::{Changes, event_of};
use crate::failure::Failure;
use klogger_engines::bpf;
use klogger_engines::choice::Choice;
use klogger_log::trigger::{self, Action, Pattern, Step, Trigger};
use klogger_os::users;
use klogger_recorder::TRIGGERS_MAX;
use klogger_schema::model;
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::condition;

/// The text of an option.
pub fn trigger(text: &str) -> Result<Trigger, String> {
    trigger::parse(text).map_err(|e| format!("{e}; {}", e.help))
}

/// Checks the triggers, and adds them to the events that fire them. `overwrite`: a flight recorder.
pub fn set(
    units: &mut [CompiledSchema],
    triggers: &[Trigger],
    choice: &Choice,
    changes: &mut Changes,
) -> Result<(), Failure> {
    if triggers.is_empty() {
        return Ok(());
    }
    if triggers.len() > TRIGGERS_MAX {
        let message =
            format!("--trigger: {} are given; {TRIGGERS_MAX} are possible", triggers.len());
        return Err(Failure::new(message).help("join conditions of an event with ||"));
    }
    if !choice.includes(&bpf::INFO) {
        let message = format!("--trigger: the {} engine has no triggers", choice.name);
        return Err(Failure::new(message).help("record with --engine bpf"));
    }
    for (number, trigger) in (1..).zip(triggers) {
        for action in &trigger.actions {
            check_action(units, action)?;
        }
        match &trigger.pattern {
            Pattern::Event(step) => compile(units, number, step, changes)?,
            Pattern::Sequence { .. } | Pattern::Silence { .. } | Pattern::Unanswered { .. } => {
                let message = "--trigger: sequences and silences cannot be recorded yet";
                return Err(Failure::new(message).help("use a trigger of one event"));
            }
        }
    }
    Ok(())
}

/// For the bpf engine: into the code of the event.
fn compile(
    units: &mut [CompiledSchema],
    number: u16,
    step: &Step,
    changes: &mut Changes,
) -> Result<(), Failure> {
    let (at, index) = find(units, &step.event)?;
    let unit = &mut units[at];
    let event = &unit.schema.events[index];
    let name = event.name.clone();
    let fail =
        |message: String, help: &str| Err(Failure::new(format!("--trigger: {message}")).help(help));
    if event.poll.is_some() {
        return fail(
            format!("{name} is read from a file, and fires no trigger"),
            "use an event of a probe",
        );
    }
    if !unit.schema.probes.iter().flat_map(|p| &p.calls).any(|call| call.event == name) {
        return fail(
            format!("{name} is logged by programs, whose events fire no triggers"),
            "use an event of a probe: klogger list",
        );
    }
    let condition = match &step.condition {
        None => "1".to_string(),
        Some(text) => condition::compile(&unit.schema, event, text).map_err(|e| {
            let help = e.help.replace(condition::LATER, "use another condition");
            Failure::new(format!("--trigger '{name} where {text}': {}", e.message)).help(help)
        })?,
    };
    unit.schema.events[index].triggers.push(model::Trigger { number, condition });
    changes.compile_again(at);
    Ok(())
}

/// The indices of a schema and of its event.
fn find(units: &[CompiledSchema], name: &str) -> Result<(usize, usize), Failure> {
    let found = units.iter().enumerate().find_map(|(at, unit)| Some((at, event_of(unit, name)?)));
    found.ok_or_else(|| {
        if bundled::builtin().is_ok_and(|own| event_of(&own, name).is_some()) {
            let message =
                format!("--trigger: {name} is one of klogger's own events, which fire no triggers");
            return Failure::new(message).help("use an event of a schema");
        }
        unknown(units, name)
    })
}

fn unknown(units: &[CompiledSchema], name: &str) -> Failure {
    let message = format!("--trigger: no schema of this recording has an event '{name}'");
    let names = units.iter().flat_map(|u| &u.schema.events).map(|e| e.name.as_str());
    Failure::new(message).help(
        did_you_mean(name, names)
            .unwrap_or_else(|| "see 'klogger show SCHEMA' for its events".into()),
    )
}

fn check_action(units: &[CompiledSchema], action: &Action) -> Result<(), Failure> {
    match action {
        Action::Enable(events) | Action::Disable(events) => {
            // As in the control socket, their names are written as the schema writes them.
            let is_event = |name: &String| {
                units.iter().flat_map(|u| &u.schema.events).any(|e| e.name == *name)
            };
            match events.iter().find(|name| !is_event(name)) {
                Some(name) => Err(unknown(units, name)),
                None => Ok(()),
            }
        }
        Action::Run(_) if users::has_raised_rights() => {
            let message = "--trigger: 'run' is not possible in a klogger with the rights of \
                           another user";
            Err(Failure::new(message).help("run klogger as that user, with sudo for example"))
        }
        Action::Run(_) | Action::Snapshot | Action::Mark(_) | Action::Stop => Ok(()),
    }
}
