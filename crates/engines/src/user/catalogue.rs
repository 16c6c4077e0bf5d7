// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The events of a recording that come from programs: which schemata of a program are recorded,
//! whether they agree with those already known, and the ids of their events in the log.

use crate::request::schema_text;
use klogger_log::preamble::Addition;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decoding, Schema};
use klogger_schema::{Options, parse};
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::collections::{HashMap, HashSet};

/// Events of one recording at most, all programs together. Programs are untrusted, and must not
/// fill the log with descriptions.
const IDS_MAX: usize = 16 << 10;
/// Bytes of all schema texts of programs.
const TEXTS_MAX: usize = 8 << 20;
/// Number of these texts.
const TEXT_COUNT_MAX: usize = 4 << 10;
/// Bytes of all additions to the log's layouts, which may have 16 MiB.
const ADDITIONS_MAX: usize = 12 << 20;

pub struct Catalogue {
    /// All events that the log can hold, in the order of their ids.
    events: Vec<EventLayout>,
    schemata: HashMap<String, Known>,
    /// Every schema of a program is recorded, not only those named on the command line.
    all: bool,
    /// Names of events that are off.
    off: HashSet<String>,
    /// The result for each (name, text) that a program brought.
    texts: HashMap<(String, String), Result<Admitted, Refusal>>,
    /// What the programs of each user have brought.
    brought: HashMap<u32, Brought>,
    /// The user whose programs may use all the room; `None`: those of every user may. The programs
    /// of another user get a quarter, as in [`super::shares`].
    own: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct Brought {
    texts: usize,
    text_bytes: usize,
    events: usize,
    addition_bytes: usize,
}

/// The limits for all users together.
const ROOM: Brought = Brought {
    texts: TEXT_COUNT_MAX,
    text_bytes: TEXTS_MAX,
    events: IDS_MAX,
    addition_bytes: ADDITIONS_MAX,
};

impl Brought {
    fn and(self, other: Brought) -> Brought {
        Brought {
            texts: self.texts + other.texts,
            text_bytes: self.text_bytes + other.text_bytes,
            events: self.events + other.events,
            addition_bytes: self.addition_bytes.saturating_add(other.addition_bytes),
        }
    }

    /// Whether it is at most one `parts`th of all the room.
    fn fits(self, parts: usize) -> bool {
        self.texts <= ROOM.texts / parts
            && self.text_bytes <= ROOM.text_bytes / parts
            && self.events <= ROOM.events / parts
            && self.addition_bytes <= ROOM.addition_bytes / parts
    }
}

struct Known {
    /// Id of its first event.
    base: u16,
    layouts: Vec<EventLayout>,
    decodings: Vec<Decoding>,
    /// Programs may log its events.
    user: bool,
    /// Where it comes from, for messages.
    file: String,
}

/// A program's schema as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Id in the log of its first event.
    pub base: u16,
    /// In the order of the schema, with the ids of the log.
    pub layouts: Vec<EventLayout>,
}

/// Why the events of a schema are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: String,
    /// The layouts of its events, if they are known. Such records may be in the rings already.
    pub layouts: Option<Vec<EventLayout>>,
}

impl Refusal {
    fn new(why: String) -> Refusal {
        Refusal { why, layouts: None }
    }
}

impl Catalogue {
    /// `units`: the schemata with which the recording begins, the built-in one first. `user`:
    /// whether programs may log events of each.
    pub fn new<'a>(
        units: impl IntoIterator<Item = (&'a CompiledSchema, bool)>,
        all: bool,
        off: &[String],
    ) -> Catalogue {
        let mut catalogue = Catalogue {
            events: Vec::new(),
            schemata: HashMap::new(),
            all,
            off: off.iter().cloned().collect(),
            texts: HashMap::new(),
            brought: HashMap::new(),
            own: None,
        };
        for (unit, user) in units {
            catalogue.add(&unit.schema, user);
        }
        catalogue
    }

    /// Programs of users other than `own` may use only a part of the room.
    pub fn restrict_others_than(&mut self, own: Option<u32>) {
        self.own = own;
    }

    /// Whether programs of a user may bring more.
    fn has_room(&self, uid: u32, more: Brought) -> bool {
        let is_stranger = |uid: u32| self.own.is_some_and(|own| own != uid);
        let sum = |whose: &dyn Fn(u32) -> bool| {
            self.brought
                .iter()
                .filter(|(uid, _)| whose(**uid))
                .fold(more, |sum, (_, b)| sum.and(*b))
        };
        let alone = is_stranger(uid);
        sum(&|_| true).fits(1)
            && (!alone || sum(&is_stranger).fits(2) && sum(&|other| other == uid).fits(4))
    }

    fn add(&mut self, schema: &Schema, user: bool) -> Admitted {
        let base = self.next_id();
        let layouts = layouts(schema, base);
        self.events.extend(layouts.iter().cloned());
        let (file, decodings) = (schema.file.clone(), schema.decodings.clone());
        let known = Known { base, layouts: layouts.clone(), decodings, user, file };
        self.schemata.insert(schema.name.clone(), known);
        Admitted { base, layouts }
    }

    fn next_id(&self) -> u16 {
        self.events.last().map_or(1, |e| e.id + 1)
    }

    pub fn events(&self) -> &[EventLayout] {
        &self.events
    }

    pub fn wants(&self, schema: &str) -> bool {
        self.all || self.schemata.contains_key(schema)
    }

    pub fn is_on(&self, event: &str) -> bool {
        !self.off.contains(event)
    }

    /// Switches an event on or off; `None` if there is none of this name.
    pub fn switch(&mut self, event: &str, on: bool) -> Option<EventLayout> {
        let layout = self.events.iter().find(|e| e.name == event)?.clone();
        match on {
            true => self.off.remove(event),
            false => self.off.insert(event.into()),
        };
        Some(layout)
    }

    /// Adds a schema of a program of user `uid`. If it is new, the second value is the addition to
    /// the log. The error has the reason why its events cannot be recorded.
    pub fn admit(
        &mut self,
        uid: u32,
        name: &str,
        text: &str,
    ) -> Result<(Admitted, Option<Addition>), Refusal> {
        let key = (name.to_string(), text.to_string());
        if let Some(before) = self.texts.get(&key) {
            return before.clone().map(|admitted| (admitted, None));
        }
        let more = Brought { texts: 1, text_bytes: text.len(), ..Brought::default() };
        if !self.has_room(uid, more) {
            return Err(Refusal::new(no_room(uid)));
        }
        self.bring(uid, more);
        let result = self.judge(uid, name, text);
        self.texts.insert(key, result.clone().map(|(admitted, _)| admitted));
        result
    }

    fn bring(&mut self, uid: u32, more: Brought) {
        let brought = self.brought.entry(uid).or_default();
        *brought = brought.and(more);
    }

    fn judge(
        &mut self,
        uid: u32,
        name: &str,
        text: &str,
    ) -> Result<(Admitted, Option<Addition>), Refusal> {
        let options = Options { default_name: Some(name.into()), ..Options::default() };
        let parsed = parse(&format!("{name}.klogger"), text, &options);
        let schema = match parsed {
            Ok(parsed) if parsed.schema.name == name => parsed.schema,
            Ok(parsed) => {
                return Err(Refusal::new(format!(
                    "schema '{name}' has the name '{}' in its text",
                    parsed.schema.name
                )));
            }
            Err(e) => {
                return Err(Refusal::new(format!("schema '{name}' does not parse: {}", first(&e))));
            }
        };
        let judged = match self.schemata.get(name) {
            Some(known) => agree(known, &schema).map(|admitted| (admitted, None)),
            None => {
                self.admit_new(uid, &schema).map(|(admitted, addition)| (admitted, Some(addition)))
            }
        };
        judged.map_err(|why| Refusal { why, layouts: Some(layouts(&schema, 1)) })
    }

    fn admit_new(&mut self, uid: u32, schema: &Schema) -> Result<(Admitted, Addition), String> {
        if self.events.len() + schema.events.len() > IDS_MAX {
            return Err(format!("all schemata together have more than {IDS_MAX} events"));
        }
        if !self.has_room(uid, Brought { events: schema.events.len(), ..Brought::default() }) {
            return Err(no_room(uid));
        }
        for new in &schema.events {
            if let Some(old) = self.events.iter().find(|e| e.name.eq_ignore_ascii_case(&new.name)) {
                return Err(format!(
                    "two schemata have an event '{}': {} and {}",
                    new.name, old.schema, schema.name
                ));
            }
        }
        let clash =
            |(name, known): (&String, &Known)| schema.decoding_clash(name, &known.decodings);
        // The same one of several each time.
        if let Some(why) = self.schemata.iter().filter_map(clash).min() {
            return Err(why);
        }
        let addition = Addition {
            schemas: vec![schema_text(schema, true)],
            events: layouts(schema, self.next_id()),
            decodings: schema.decodings.clone(),
        };
        let bytes = serde_json::to_vec(&addition).map_or(usize::MAX, |json| json.len());
        let more =
            Brought { events: schema.events.len(), addition_bytes: bytes, ..Brought::default() };
        if !self.has_room(uid, more) {
            return Err(no_room(uid));
        }
        self.bring(uid, more);
        Ok((self.add(schema, true), addition))
    }
}

fn no_room(uid: u32) -> String {
    format!("programs of user {uid} already use all the room for their schemata")
}

fn layouts(schema: &Schema, base: u16) -> Vec<EventLayout> {
    schema.events.iter().zip(base..).map(|(e, id)| EventLayout::new(&schema.name, e, id)).collect()
}

fn first(errors: &[klogger_schema::Diagnostic]) -> &str {
    errors.first().map_or("", |e| e.message.as_str())
}

/// Checks that records of both schemata have the same fields at the same offsets.
fn agree(known: &Known, schema: &Schema) -> Result<Admitted, String> {
    if !known.user {
        let name = &schema.name;
        return Err(format!(
            "schema '{name}' is recorded from the kernel; record programs with --engine user"
        ));
    }
    let shape = |e: &EventLayout| {
        let fields: Vec<_> =
            e.fields.iter().map(|f| (f.name.clone(), f.scalar, f.shape, f.offset)).collect();
        (e.name.clone(), e.fixed, fields)
    };
    match layouts(schema, known.base).iter().map(shape).eq(known.layouts.iter().map(shape)) {
        true => Ok(Admitted { base: known.base, layouts: known.layouts.clone() }),
        false => {
            let (name, file) = (&schema.name, &known.file);
            Err(format!("schema '{name}' is another version than {file}; rebuild the program"))
        }
    }
}

#[cfg(test)]
mod tests;
