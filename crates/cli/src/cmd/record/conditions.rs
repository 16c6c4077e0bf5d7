// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--where`: conditions of events, which are compiled into the programs of their schema.

use crate::failure::Failure;
use crate::schemata::compiled;
use klogger_engines::bpf;
use klogger_engines::choice::Choice;
use klogger_programs::Programs;
use klogger_recorder::Condition;
use klogger_schema::model::Event;
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::condition::{self, LATER};
use std::collections::BTreeSet;

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

/// What is compiled into the events of schemata.
#[derive(Default)]
pub struct Changes {
    /// Indices of schemata.
    units: BTreeSet<usize>,
    /// With the names of events as their schemata write them.
    conditions: Vec<Condition>,
}

impl Changes {
    /// Adds a condition to those that an event of a schema has: `c`, or as a filter of the log.
    pub fn join(&mut self, unit: usize, event: &mut Event, c: String, filter: String) {
        self.units.insert(unit);
        event.condition = Some(match event.condition.take() {
            None => c,
            Some(before) => format!("({before}) && ({c})"),
        });
        match self.conditions.iter_mut().find(|known| known.event == event.name) {
            Some(known) => known.expression = format!("({}) && ({filter})", known.expression),
            None => {
                self.conditions.push(Condition { event: event.name.clone(), expression: filter });
            }
        }
    }

    /// The schema with this index has changed.
    pub fn compile_again(&mut self, unit: usize) {
        self.units.insert(unit);
    }

    /// Compiles those schemata again. Returns the conditions.
    pub fn compile(
        self,
        units: &mut [CompiledSchema],
        programs: &Programs,
    ) -> Result<Vec<Condition>, Failure> {
        for unit in self.units {
            units[unit] = compiled(units[unit].schema.clone(), programs)?;
        }
        Ok(self.conditions)
    }
}

/// Checks that the engine can leave out events. `option`: which asks for that.
pub fn check_engine(option: &str, choice: &Choice) -> Result<(), Failure> {
    match choice.includes(&bpf::INFO) {
        true => Ok(()),
        false => {
            let name = choice.name;
            Err(Failure::new(format!("{option}: the {name} engine cannot leave out events"))
                .help(LATER))
        }
    }
}

/// Adds the conditions of `--where`.
pub fn set(
    units: &mut [CompiledSchema],
    conditions: &[Condition],
    choice: &Choice,
    changes: &mut Changes,
) -> Result<(), Failure> {
    if !conditions.is_empty() {
        check_engine("--where", choice)?;
    }
    for condition in conditions {
        let find = |unit| event_of(unit, &condition.event);
        let found = units.iter().enumerate().find_map(|(at, unit)| Some((at, find(unit)?)));
        let (at, event) = found.ok_or_else(|| unknown(units, &condition.event))?;
        let c = condition_of(&units[at], event, &condition.expression)?;
        let event = &mut units[at].schema.events[event];
        changes.join(at, event, c, condition.expression.clone());
    }
    Ok(())
}

/// The index of the event with this name, in upper or lower case.
pub fn event_of(unit: &CompiledSchema, name: &str) -> Option<usize> {
    unit.schema.events.iter().position(|e| e.name.eq_ignore_ascii_case(name))
}

/// The condition of the event with this index in C.
fn condition_of(unit: &CompiledSchema, index: usize, expression: &str) -> Result<String, Failure> {
    let fail =
        |message: String, help: &str| Err(Failure::new(format!("--where: {message}")).help(help));
    let event = &unit.schema.events[index];
    let name = &event.name;
    if event.condition.is_some() {
        return fail(format!("{name} has two conditions"), "join them with && or ||");
    }
    if event.poll.is_some() {
        return fail(format!("{name} is read from a file, and logged whole"), LATER);
    }
    if !unit.schema.probes.iter().flat_map(|p| &p.calls).any(|call| call.event == *name) {
        return fail(format!("{name} is logged by programs, which do not leave out events"), LATER);
    }
    condition::compile(&unit.schema, event, expression).map_err(|e| {
        Failure::new(format!("--where '{name}: {expression}': {}", e.message)).help(e.help)
    })
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
