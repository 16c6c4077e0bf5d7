// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The events whose fields lines of other events name (`line EVENT "..." with EVENT by FIELD`), by
//! the values of their fields.

use klogger_log::event::EventRef;
use klogger_schema::layout::EventLayout;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of records at most. Further ones are left out.
const BYTES_MAX: usize = 256 << 20;

/// A record that is kept, and what it is of.
#[derive(Clone)]
pub struct Kept {
    /// Which of the preamble's events.
    pub index: usize,
    time_ns: u64,
    bytes: Arc<[u8]>,
    /// One of its texts is not empty. It is not replaced by one without texts.
    named: bool,
}

impl Kept {
    /// As an event of the same recording as `event`.
    pub fn event<'a>(&'a self, layout: &'a EventLayout, event: &EventRef) -> EventRef<'a> {
        EventRef {
            layout,
            index: self.index,
            time_ns: self.time_ns,
            origin: event.origin,
            serial: 0,
            bytes: &self.bytes,
        }
    }
}

/// One line's declaration.
#[derive(PartialEq, Eq)]
struct Declared {
    schema: String,
    with: Vec<String>,
    by: Vec<String>,
}

/// The latest event of each key.
struct Table {
    declared: Declared,
    rows: HashMap<Vec<u64>, Kept>,
}

/// By event: the number of a table, and the fields that are its key.
type Uses = Vec<Vec<(usize, Vec<usize>)>>;

/// All of them.
#[derive(Default)]
pub struct Joined {
    tables: Vec<Table>,
    /// The tables that an event is kept in.
    enters: Uses,
    /// The table that an event's line looks in, if any.
    looks: Uses,
    bytes: usize,
}

impl Joined {
    /// Learns the events of a preamble; called again when it has become longer.
    pub fn learn(&mut self, events: &[EventLayout]) {
        for event in &events[self.enters.len()..] {
            let mut looks = Vec::new();
            if let Some(line) = event.line.as_ref().filter(|line| !line.with.is_empty()) {
                let (with, by) = (line.with.clone(), line.by.clone());
                let declared = Declared { schema: event.schema.clone(), with, by };
                let fields = fields(event, &line.by);
                looks.extend(fields.map(|fields| (self.table(declared), fields)));
            }
            self.looks.push(looks);
            self.enters.push(Vec::new());
        }
        // A schema's events come together, but a line may be declared before what it is joined
        // with.
        for (event, enters) in events.iter().zip(&mut self.enters) {
            let is_of = |t: &Table| {
                t.declared.schema == event.schema && t.declared.with.contains(&event.name)
            };
            let tables = self.tables.iter().enumerate().filter(|(_, t)| is_of(t));
            let key = |(at, t): (usize, &Table)| Some((at, fields(event, &t.declared.by)?));
            *enters = tables.filter_map(key).collect();
        }
    }

    fn table(&mut self, declared: Declared) -> usize {
        let known = self.tables.iter().position(|table| table.declared == declared);
        known.unwrap_or_else(|| {
            self.tables.push(Table { declared, rows: HashMap::new() });
            self.tables.len() - 1
        })
    }

    /// Whether other events' lines name fields of this one, so that it needs no line of its own.
    pub fn is_kept(&self, event: usize) -> bool {
        !self.enters[event].is_empty()
    }

    /// An event has come from its ring. It is known from now on if none of its key is: an event of
    /// another CPU, which names it, may be a little earlier.
    pub fn arrives(&mut self, event: &EventRef) {
        self.keep(event, false);
    }

    /// It is the event's turn: it replaces what is known.
    pub fn see(&mut self, event: &EventRef) {
        self.keep(event, true);
    }

    fn keep(&mut self, event: &EventRef, replace: bool) {
        let enters = &self.enters[event.index];
        if enters.is_empty() || self.bytes > BYTES_MAX {
            return;
        }
        let bytes: Arc<[u8]> = event.bytes.into();
        let mut texts = event.layout.fields.iter().filter_map(|f| event.value(f).text());
        let named = texts.any(|text| !text.is_empty());
        for (table, fields) in enters {
            let rows = &mut self.tables[*table].rows;
            let key = key(event, fields);
            let kept =
                Kept { index: event.index, time_ns: event.time_ns, bytes: bytes.clone(), named };
            // Zeros are no key: an event without a file has inode 0.
            if key.iter().all(|value| *value == 0) {
                continue;
            }
            match rows.get_mut(&key) {
                Some(known) if replace && (named || !known.named) => *known = kept,
                Some(_) => {}
                None => {
                    self.bytes += bytes.len();
                    rows.insert(key, kept);
                }
            }
        }
    }

    /// The event that an event's line names fields of.
    pub fn find(&self, event: &EventRef) -> Option<&Kept> {
        let (table, fields) = self.looks[event.index].first()?;
        self.tables[*table].rows.get(&key(event, fields))
    }
}

fn fields(event: &EventLayout, names: &[String]) -> Option<Vec<usize>> {
    names.iter().map(|name| event.fields.iter().position(|f| f.name == *name)).collect()
}

fn key(event: &EventRef, fields: &[usize]) -> Vec<u64> {
    let bits = |at: &usize| event.value(&event.layout.fields[*at]).bits().unwrap_or_default();
    fields.iter().map(bits).collect()
}
