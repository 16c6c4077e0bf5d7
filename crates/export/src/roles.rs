// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds events that have a type of their own in Perfetto and LTTng: those with a role in their
//! schema, and klogger's own.

use crate::scheduler;
use klogger_log::builtin::Builtin;
use klogger_log::event::{EventRef, Value};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{self, Context, Decode, Shape};

/// Index of a field in the event; `None` if the event does not have it.
pub type Place = Option<usize>;

/// The meaning of an event.
#[derive(Clone, Copy)]
pub enum Role {
    /// An instant, or one end of a slice.
    Other,
    /// `switch_out`: the first half of a switch.
    Out {
        pid: usize,
        prio: Place,
        state: Place,
        next: Place,
    },
    /// `switch_in`: the second half.
    In {
        pid: usize,
        prio: Place,
    },
    /// `dequeue`: mostly redundant after a `switch_out`.
    Left {
        pid: usize,
        state: Place,
    },
    /// `waking`
    Waking {
        pid: usize,
        prio: Place,
        cpu: Place,
        waker: Place,
    },
    /// `wakeup`
    Wakeup {
        pid: usize,
        prio: Place,
        cpu: Place,
        new: Place,
    },
    Exists,
    Fork,
    Exec,
    Rename,
    Exit,
    Lost,
    Mark,
}

impl Role {
    /// By event.
    pub fn all(events: &[EventLayout]) -> Vec<Role> {
        std::iter::zip(events, of_schemata(events))
            .map(|(e, role)| {
                role.and_then(|role| Role::declared(e, role)).unwrap_or_else(|| Role::builtin(e))
            })
            .collect()
    }

    /// The fields are those that docs/language/roles.md names.
    fn declared(layout: &EventLayout, role: model::Role) -> Option<Role> {
        let at = |name: &str| number(layout, name);
        let pid = at("pid")?;
        Some(match role {
            model::Role::SwitchOut => {
                Role::Out { pid, prio: at("prio"), state: at("state"), next: at("next") }
            }
            model::Role::SwitchIn => Role::In { pid, prio: at("prio") },
            model::Role::Dequeue => Role::Left { pid, state: at("state") },
            model::Role::Waking => {
                Role::Waking { pid, prio: at("prio"), cpu: at("target_cpu"), waker: at("waker") }
            }
            model::Role::Wakeup => {
                Role::Wakeup { pid, prio: at("prio"), cpu: at("runq"), new: at("is_new") }
            }
        })
    }

    fn builtin(layout: &EventLayout) -> Role {
        match Builtin::of(layout) {
            Some(Builtin::Exists) => Role::Exists,
            Some(Builtin::Fork) => Role::Fork,
            Some(Builtin::Exec) => Role::Exec,
            Some(Builtin::Rename) => Role::Rename,
            Some(Builtin::Exit) => Role::Exit,
            Some(Builtin::Lost) => Role::Lost,
            Some(Builtin::Mark) => Role::Mark,
            Some(Builtin::Seen) | None => Role::Other,
        }
    }
}

/// The role of each event according to its schema. For a log from before there were roles: that in
/// the bundled scheduler schema.
pub fn of_schemata(events: &[EventLayout]) -> Vec<Option<model::Role>> {
    let declared = events.iter().any(|e| e.role.is_some());
    events.iter().map(|e| if declared { e.role } else { scheduler::role_of(&e.name) }).collect()
}

/// A field of at most 32 bits, which is what the other formats can hold.
pub fn number(layout: &EventLayout, name: &str) -> Place {
    layout
        .fields
        .iter()
        .position(|f| f.name == name && f.shape == Shape::One && f.scalar.size() <= 4)
}

/// The field with the thread that an event belongs to: the thread that ran, or else the one in its
/// scope, or the only thread that it names.
pub fn owner(layout: &EventLayout) -> Place {
    let running = layout.fields.iter().position(|f| f.context == Some(Context::Tid));
    let about = || layout.about.first().and_then(|name| number(layout, name));
    let mut threads = layout.fields.iter().filter(|f| f.decode == Decode::Thread);
    let only = || {
        threads.next().filter(|_| threads.next().is_none()).and_then(|f| number(layout, &f.name))
    };
    running.or_else(about).or_else(only)
}

pub fn int(event: &EventRef, place: Place) -> Option<i64> {
    event.value(&event.layout.fields[place?]).int()
}

pub fn int_of(event: &EventRef, field: &str) -> Option<i64> {
    event.get(field).and_then(Value::int)
}

/// A text as Perfetto's strings must be: UTF-8.
pub fn text_of(event: &EventRef, field: &str) -> Option<String> {
    event.get(field).and_then(Value::text).map(|t| String::from_utf8_lossy(t).into_owned())
}
