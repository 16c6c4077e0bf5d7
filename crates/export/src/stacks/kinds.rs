// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which events of a log have stacks, and what each stands for.

use crate::exporter::Refused;
use crate::roles::number;
use klogger_log::preamble::Preamble;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Place, Role, Shape};

/// An event with stacks.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Which of `preamble.events`.
    pub event: usize,
    pub name: String,
    /// Its fields `as stack`, at most two.
    pub stacks: Vec<usize>,
    pub weight: Weight,
}

/// How much an event counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weight {
    /// 1
    One,
    /// Its field `period in ns`: the time for which it stands.
    Period(usize),
    /// The duration of the slice of this name that it begins.
    Slice(String),
    /// The time from a `switch_out` to the `switch_in` of the same thread, which is this event, by
    /// the field `pid` of both.
    Switch { to: usize, pid: usize, to_pid: usize },
}

impl Weight {
    pub fn is_time(&self) -> bool {
        *self != Weight::One
    }

    /// Each sample has a beginning and an end.
    pub fn is_of_slices(&self) -> bool {
        matches!(self, Weight::Slice(_) | Weight::Switch { .. })
    }

    /// What is measured, in one word.
    pub fn word(&self) -> &str {
        match self {
            Weight::One => "samples",
            Weight::Period(_) => "cpu",
            Weight::Slice(name) => name,
            Weight::Switch { .. } => "off_cpu",
        }
    }

    /// What a weight is, for formats that do not say it.
    pub fn unit(&self) -> String {
        match self {
            Weight::One => "events".into(),
            Weight::Period(_) | Weight::Slice(_) | Weight::Switch { .. } => {
                format!("ns of {}", self.word())
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Weight::One => "events".into(),
            Weight::Period(_) => "time of samples".into(),
            Weight::Slice(name) => format!("time of '{name}'"),
            Weight::Switch { .. } => "time off the CPU".into(),
        }
    }
}

/// All kinds of stacks of a log.
pub fn all(preamble: &Preamble) -> Vec<Kind> {
    let events = &preamble.events;
    events.iter().enumerate().filter_map(|(index, event)| kind(index, event, events)).collect()
}

fn kind(index: usize, event: &EventLayout, events: &[EventLayout]) -> Option<Kind> {
    let is_stack = |i: &usize| {
        event.fields[*i].decode == Decode::Stack && event.fields[*i].shape == Shape::One
    };
    let stacks: Vec<usize> = (0..event.fields.len()).filter(is_stack).take(2).collect();
    if stacks.is_empty() {
        return None;
    }
    let period = || {
        event.fields.iter().position(|f| {
            f.name == "period" && f.unit.as_deref() == Some("ns") && f.shape == Shape::One
        })
    };
    let slice = || event.begins.iter().find(|s| s.on != Place::Any || !s.by.is_empty());
    let weight = switch(event, events)
        .or_else(|| slice().map(|slice| Weight::Slice(slice.name.clone())))
        .or_else(|| period().map(Weight::Period))
        .unwrap_or(Weight::One);
    let name = event.name.clone();
    Some(Kind { event: index, name, stacks, weight })
}

fn switch(event: &EventLayout, events: &[EventLayout]) -> Option<Weight> {
    if event.role != Some(Role::SwitchOut) {
        return None;
    }
    let is_end = |e: &&EventLayout| e.role == Some(Role::SwitchIn) && e.schema == event.schema;
    let to = events.iter().position(|e| is_end(&e))?;
    Some(Weight::Switch { to, pid: number(event, "pid")?, to_pid: number(&events[to], "pid")? })
}

/// The kind whose events are named so, or without a name the only one.
pub fn choose(preamble: &Preamble, name: Option<&str>) -> Result<Kind, Refused> {
    let kinds = all(preamble);
    let listed = || {
        let line = |k: &Kind| format!("{} ({})", k.name, k.weight.text());
        kinds.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    let found = match name {
        Some(name) => kinds.iter().find(|k| k.name.eq_ignore_ascii_case(name)),
        None if kinds.len() == 1 => kinds.first(),
        None => None,
    };
    if let Some(kind) = found {
        return Ok(kind.clone());
    }
    Err(match (kinds.is_empty(), name) {
        (true, _) => Refused {
            message: "no event of this log has a stack".into(),
            help: "record with '-s samples', or '-s waits --set callers=true'".into(),
        },
        (false, Some(name)) => Refused {
            message: format!("this log has no event '{name}' with stacks"),
            help: format!("those with stacks are {}", listed()),
        },
        (false, None) => Refused {
            message: "several events of this log have stacks".into(),
            help: format!("choose one with --event: {}", listed()),
        },
    })
}
