// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--where`: conditions of events, which are compiled into the programs of their schema.

use crate::failure::Failure;
use crate::schemata::compiled;
use klogger_engines::bpf;
use klogger_engines::choice::Choice;
use klogger_programs::Programs;
use klogger_recorder::Condition;
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::condition::{self, LATER};

/// `EVENT: EXPRESSION`; of a trace event also `GROUP:NAME: EXPRESSION`, which has no group here.
pub fn condition(text: &str) -> Result<Condition, String> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let cut = |text| str::split_once(text, ':').map(|(event, rest)| (event.trim(), rest.trim()));
    let grouped = cut(text).and_then(|(_, rest)| cut(rest));
    let grouped = grouped.filter(|(event, _)| !event.is_empty() && is_name(event));
    let parts = grouped.or_else(|| cut(text));
    match parts {
        Some((event, expression)) if !event.is_empty() && is_name(event) => {
            Ok(Condition { event: event.into(), expression: expression.into() })
        }
        Some(_) | None => {
            Err("write the event before the expression: 'SCHEDOUT: prio < 120'".into())
        }
    }
}

/// Compiles schemata again whose events have conditions. Returns these, with the names of events as
/// their schemata write them.
pub fn compile(
    units: &mut [CompiledSchema],
    conditions: &[Condition],
    choice: &Choice,
    programs: &Programs,
) -> Result<Vec<Condition>, Failure> {
    if conditions.is_empty() {
        return Ok(Vec::new());
    }
    if !choice.includes(&bpf::INFO) {
        let name = choice.name;
        return Err(
            Failure::new(format!("--where: the {name} engine cannot leave out events")).help(LATER)
        );
    }
    let mut changed = vec![false; units.len()];
    let mut named = Vec::new();
    for condition in conditions {
        let find = |unit| event_of(unit, &condition.event);
        let found = units.iter().enumerate().find_map(|(at, unit)| Some((at, find(unit)?)));
        let (at, event) = found.ok_or_else(|| unknown(units, &condition.event))?;
        named.push(set(&mut units[at], event, &condition.expression)?);
        changed[at] = true;
    }
    for (unit, _) in units.iter_mut().zip(changed).filter(|(_, changed)| *changed) {
        *unit = compiled(unit.schema.clone(), programs)?;
    }
    Ok(named)
}

/// The index of the event with this name, in upper or lower case.
fn event_of(unit: &CompiledSchema, name: &str) -> Option<usize> {
    unit.schema.events.iter().position(|e| e.name.eq_ignore_ascii_case(name))
}

/// Adds a condition to the event with this index.
fn set(unit: &mut CompiledSchema, index: usize, expression: &str) -> Result<Condition, Failure> {
    let fail =
        |message: String, help: &str| Err(Failure::new(format!("--where: {message}")).help(help));
    let event = &unit.schema.events[index];
    let name = event.name.clone();
    if event.condition.is_some() {
        return fail(format!("{name} has two conditions"), "join them with && or ||");
    }
    if event.poll.is_some() {
        return fail(format!("{name} is read from a file, and logged whole"), LATER);
    }
    if !unit.schema.probes.iter().flat_map(|p| &p.calls).any(|call| call.event == name) {
        return fail(format!("{name} is logged by programs, which do not leave out events"), LATER);
    }
    let c = condition::compile(&unit.schema, event, expression).map_err(|e| {
        Failure::new(format!("--where '{name}: {expression}': {}", e.message)).help(e.help)
    })?;
    unit.schema.events[index].condition = Some(c);
    Ok(Condition { event: name, expression: expression.into() })
}

/// No schema of the recording has this event.
fn unknown(units: &[CompiledSchema], name: &str) -> Failure {
    let is_own = |own: CompiledSchema| event_of(&own, name).is_some();
    if bundled::builtin().is_ok_and(is_own) {
        return Failure::new(format!(
            "--where: {name} is one of klogger's own events, which are \
                                     always logged"
        ))
        .help(LATER);
    }
    let names = units.iter().flat_map(|u| &u.schema.events).map(|e| e.name.as_str());
    Failure::new(format!("--where: no schema of this recording has an event '{name}'")).help(
        did_you_mean(name, names)
            .unwrap_or_else(|| "see 'klogger show SCHEMA' for its events".into()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_comes_first() {
        let found = condition(" SCHEDOUT : comm == 'a:b' ").unwrap();
        assert_eq!(
            (found.event.as_str(), found.expression.as_str()),
            ("SCHEDOUT", "comm == 'a:b'")
        );
        let grouped = condition("sched:sched_switch: prev_comm == 'a:b'").unwrap();
        assert_eq!(
            (grouped.event.as_str(), grouped.expression.as_str()),
            ("sched_switch", "prev_comm == 'a:b'")
        );
        for bad in ["", "prio < 120", ": prio < 120", "comm == 'a:b'"] {
            assert!(condition(bad).unwrap_err().contains("'SCHEDOUT: "), "{bad}");
        }
    }
}
