// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--trigger`: what has to happen in a recording, and what is done then. An event of a probe, with
//! its condition, is compiled into the code of its schema; the recorder finds the others.

use super::conditions::{Changes, event_of};
use crate::failure::Failure;
use klogger_engines::choice::Choice;
use klogger_engines::registry::choice;
use klogger_engines::{bpf, kernel};
use klogger_log::trigger::matcher::check_key;
use klogger_log::trigger::{self, Action, Key, Pattern, Step, Trigger};
use klogger_os::users;
use klogger_recorder::TRIGGERS_MAX;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{self, Schema};
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::condition;

/// The remedy for a field that an event in a log does not have.
const IN_LOG: &str = "'klogger info --fields FILE' lists the events and their fields";

/// The text of an option.
pub fn trigger(text: &str) -> Result<Trigger, String> {
    trigger::parse(text).map_err(|e| format!("{e}; {}", e.help))
}

/// Checks the triggers, and adds them to the events that fire them. `programs`: there may be events
/// of schemata that only programs know.
pub fn set(
    units: &mut [CompiledSchema],
    triggers: &[Trigger],
    (choice, programs): (&Choice, bool),
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
    for (number, trigger) in (1..).zip(triggers) {
        for action in &trigger.actions {
            check_action(units, action)?;
        }
        let events = find_all(units, trigger, programs)?;
        match (&trigger.pattern, events.first()) {
            (Pattern::Event(step), Some(Some(event)))
                if choice.has_probes() && is_probed(units, *event) =>
            {
                compile(units, number, *event, step, choice, changes)?;
            }
            _ => check(units, trigger, &events)?,
        }
    }
    Ok(())
}

/// For `klogger build`: adds the triggers to the events that fire them in a module. Those that the
/// recorder finds change nothing.
pub fn set_in_modules(units: &mut [CompiledSchema], triggers: &[Trigger]) -> Result<(), Failure> {
    match choice(kernel::INFO.name) {
        Some(choice) => set(units, triggers, (choice, true), &mut Changes::default()),
        None => Ok(()),
    }
}

/// The indices of a schema and of its event.
type At = (usize, usize);

/// The events of a trigger. Those of programs whose schemata are not known yet have none.
fn find_all(
    units: &[CompiledSchema],
    trigger: &Trigger,
    programs: bool,
) -> Result<Vec<Option<At>>, Failure> {
    let find = |step: &&Step| match find(units, &step.event) {
        Err(_) if programs && !is_own(&step.event) => Ok(None),
        found => found.map(Some),
    };
    trigger.pattern.steps().iter().map(find).collect()
}

/// Whether a probe logs the event.
fn is_probed(units: &[CompiledSchema], (unit, event): At) -> bool {
    let schema = &units[unit].schema;
    let name = &schema.events[event].name;
    schema.probes.iter().flat_map(|p| &p.calls).any(|call| call.event == *name)
}

/// Into the code of the event.
fn compile(
    units: &mut [CompiledSchema],
    number: u16,
    (at, index): At,
    step: &Step,
    choice: &Choice,
    changes: &mut Changes,
) -> Result<(), Failure> {
    let schema = &mut units[at].schema;
    let condition = match &step.condition {
        None => "1".to_string(),
        Some(text) => condition_of(schema, index, text)?,
    };
    schema.events[index].triggers.push(model::Trigger { number, condition });
    // Modules are built later.
    if choice.includes(&bpf::INFO) {
        changes.compile_again(at);
    }
    Ok(())
}

/// Checks a trigger that the recorder itself finds the hits of. Its conditions may be what can be
/// compiled, so that they mean the same.
fn check(
    units: &[CompiledSchema],
    trigger: &Trigger,
    events: &[Option<At>],
) -> Result<(), Failure> {
    let mut layouts = Vec::new();
    for (step, event) in trigger.pattern.steps().into_iter().zip(events) {
        let Some((at, index)) = *event else { continue };
        let schema = &units[at].schema;
        if let Some(text) = &step.condition {
            condition_of(schema, index, text)?;
        }
        layouts.push(EventLayout::new(&schema.name, &schema.events[index], 1));
    }
    let key = match &trigger.pattern {
        Pattern::Event(_) => None,
        Pattern::Sequence { by, .. } | Pattern::Unanswered { by, .. } => by.clone(),
        Pattern::Silence { by, .. } => {
            by.as_ref().map(|field| Key { first: field.clone(), then: field.clone() })
        }
    };
    let (Some(key), Some(first), true) = (key, layouts.first(), layouts.len() == events.len())
    else {
        return Ok(());
    };
    let then = layouts.last().unwrap_or(first);
    check_key(&key, first, then).map_err(|e| {
        let help = e.help.replace(IN_LOG, "'klogger show SCHEMA' lists the fields of its events");
        Failure::new(format!("--trigger: {}", e.message)).help(help)
    })
}

/// A condition in C.
fn condition_of(schema: &Schema, index: usize, text: &str) -> Result<String, Failure> {
    let event = &schema.events[index];
    condition::compile(schema, event, text).map_err(|e| {
        let help = e.help.replace(condition::LATER, "use another condition");
        Failure::new(format!("--trigger '{} where {text}': {}", event.name, e.message)).help(help)
    })
}

fn find(units: &[CompiledSchema], name: &str) -> Result<At, Failure> {
    let found = units.iter().enumerate().find_map(|(at, unit)| Some((at, event_of(unit, name)?)));
    found.ok_or_else(|| {
        if is_own(name) {
            let message =
                format!("--trigger: {name} is one of klogger's own events, which fire no triggers");
            return Failure::new(message).help("use an event of a schema");
        }
        unknown(units, name)
    })
}

/// Whether it is one of klogger's own events.
fn is_own(name: &str) -> bool {
    bundled::builtin().is_ok_and(|own| event_of(&own, name).is_some())
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
