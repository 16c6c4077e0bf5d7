// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which events have a type of their own in Perfetto: decided by name, if the event has the fields that are needed.

use klogger_log::event::{EventRef, Value};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Context, Shape};

/// A field by its place in the event; `None` if the event does not have it.
type Place = Option<usize>;

/// What an event becomes.
#[derive(Clone, Copy)]
pub enum Role {
    /// An instant.
    Other,
    /// `SCHEDOUT`: the first half of a switch.
    Out {
        pid: usize,
        prio: Place,
        state: Place,
        next: Place,
    },
    /// `SCHEDIN`: the second half.
    In {
        pid: usize,
        prio: Place,
    },
    /// `REMOVE_FROM_RUNQ`: in most cases a `SCHEDOUT` says it already.
    Left {
        pid: usize,
        state: Place,
    },
    /// `TRY_TO_WAKEUP`
    Waking {
        pid: usize,
        prio: Place,
        cpu: Place,
        waker: Place,
    },
    /// `ADD_TO_RUNQ`
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

/// Makes a role of the place of the thread's id and those of other fields.
type Make = fn(usize, &dyn Fn(&str) -> Place) -> Role;

impl Role {
    pub fn of(layout: &EventLayout) -> Role {
        let at = |name: &str| number(layout, name);
        let thread = |make: Make| at("pid").map_or(Role::Other, |pid| make(pid, &at));
        match layout.name.as_str() {
            "SCHEDOUT" => thread(|pid, at| Role::Out { pid, prio: at("prio"), state: at("state"), next: at("next") }),
            "SCHEDIN" => thread(|pid, at| Role::In { pid, prio: at("prio") }),
            "REMOVE_FROM_RUNQ" => thread(|pid, at| Role::Left { pid, state: at("state") }),
            "TRY_TO_WAKEUP" => {
                thread(|pid, at| Role::Waking { pid, prio: at("prio"), cpu: at("target_cpu"), waker: at("waker") })
            }
            "ADD_TO_RUNQ" => {
                thread(|pid, at| Role::Wakeup { pid, prio: at("prio"), cpu: at("runq"), new: at("is_new") })
            }
            "PROCESS_EXISTS" => Role::Exists,
            "PROCESS_FORK" => Role::Fork,
            "PROCESS_EXEC" => Role::Exec,
            "PROCESS_RENAME" => Role::Rename,
            "PROCESS_EXIT" => Role::Exit,
            "LOST" => Role::Lost,
            "MARK" => Role::Mark,
            _ => Role::Other,
        }
    }
}

/// A number of 32 bits at most: Perfetto's fields hold no more.
fn number(layout: &EventLayout, name: &str) -> Place {
    layout.fields.iter().position(|f| f.name == name && f.shape == Shape::One && f.scalar.size() <= 4)
}

/// The field that says whose event it is: the thread that ran, or else the one that the event is about.
pub fn owner(layout: &EventLayout) -> Place {
    let running = layout.fields.iter().position(|f| f.context == Some(Context::Tid));
    running.or_else(|| layout.about.first().and_then(|name| number(layout, name)))
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
