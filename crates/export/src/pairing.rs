// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which event ends what another one has begun, as declared with `slice NAME from EVENT to EVENT`
//! in a schema.

use klogger_log::event::EventRef;
use klogger_log::origin::Origin;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Place, Slice};
use std::collections::HashMap;
use std::rc::Rc;

/// A slice that an event begins or ends.
#[derive(Clone)]
pub struct Part {
    /// The same for both events.
    pub slice: usize,
    pub name: String,
    pub on: Place,
    /// The fields that must be equal.
    by: Vec<usize>,
    /// The field whose decoded text is part of the name.
    pub label: Option<usize>,
}

pub type Parts = Rc<[Part]>;

/// Where a slice is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    Cpu(u16),
    /// A thread in events of the kernel.
    Thread(i64),
    /// A thread of a program that logs itself: its stream.
    User(u32),
    Any,
}

#[derive(PartialEq, Eq, Hash)]
pub struct Key {
    slice: usize,
    pub whose: Whose,
    values: Vec<u64>,
}

impl Key {
    #[cfg(test)]
    pub fn of_test(whose: Whose, value: u64) -> Key {
        Key { slice: 0, whose, values: vec![value] }
    }

    /// That of a thread between the roles `switch_out` and `switch_in`, by the field of its id.
    pub fn of_switch(event: &EventRef, pid: usize) -> Option<Key> {
        let tid = event.value(&event.layout.fields[pid]).int()?;
        Some(Key { slice: usize::MAX, whose: Whose::Thread(tid), values: Vec::new() })
    }
}

/// By event: the slices that it begins, and those that it ends.
pub fn parts(events: &[EventLayout]) -> Vec<(Parts, Parts)> {
    let mut numbers: HashMap<(&str, &str), usize> = HashMap::new();
    let mut all = Vec::new();
    for event in events {
        let mut of = |slice| part(event, slice, &mut numbers);
        all.push((
            event.begins.iter().map(&mut of).collect(),
            event.ends.iter().map(&mut of).collect(),
        ));
    }
    all
}

/// `thread`: the one that an event of the kernel belongs to, if it says.
pub fn whose(event: &EventRef, on: Place, thread: Option<i64>) -> Whose {
    match (on, event.origin, thread) {
        (Place::Any, ..) | (_, Origin::Recorder, _) => Whose::Any,
        (_, Origin::Thread { stream, .. }, _) => Whose::User(stream),
        (Place::Thread, Origin::Cpu(_), Some(tid)) => Whose::Thread(tid),
        (Place::Thread | Place::Cpu, Origin::Cpu(cpu), _) => Whose::Cpu(cpu),
    }
}

impl Part {
    /// What an end and its beginning have in common.
    pub fn key(&self, event: &EventRef, whose: Whose) -> Key {
        let value = |i: &usize| {
            event.layout.fields.get(*i).and_then(|f| event.value(f).bits()).unwrap_or_default()
        };
        Key { slice: self.slice, whose, values: self.by.iter().map(value).collect() }
    }
}

fn part<'e>(
    event: &'e EventLayout,
    slice: &'e Slice,
    numbers: &mut HashMap<(&'e str, &'e str), usize>,
) -> Part {
    let next = numbers.len();
    let number = *numbers.entry((&event.schema, &slice.name)).or_insert(next);
    let place = |name: &String| event.fields.iter().position(|f| f.name == *name);
    let by: Vec<usize> = slice.by.iter().filter_map(place).collect();
    let label = by.iter().copied().find(|i| matches!(event.fields[*i].decode, Decode::Table(_)));
    Part { slice: number, name: slice.name.clone(), on: slice.on, by, label }
}
