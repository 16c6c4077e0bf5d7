// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is printed: which events, and of which system calls.
//!
//! `-e` names trace events of the kernel, as for `klogger record`. A word that is an event of the
//! schemata, or a system call of their probes, selects what is printed instead: `-e openat`, or
//! `-e trace=openat,read` as strace has it. Other system calls, and classes of them, are recorded
//! with the schema of all calls, and nothing of the others.

use super::SCHEMA;
use super::joined::Joined;
use crate::cmd::record::calls::{self, has_call};
use crate::cmd::record::what::{PROGRAMS, What};
use crate::cmd::record::words::schema_names;
use crate::failure::Failure;
use crate::schemata;
use klogger_log::builtin::Builtin;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::names::Processes;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Schema};
use klogger_schema::vocabulary::PLACE;

/// The schema of the events that every log has.
const BUILTIN: &str = "klogger";

/// What `-e` selects; everything if nothing.
#[derive(Default)]
pub struct Chosen {
    /// The schemata that it selects from.
    schemas: Vec<String>,
    events: Vec<String>,
    calls: Vec<String>,
}

/// Whether an event is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Never,
    Always,
    /// If it is of one of the system calls; the field that has them.
    OfCall(usize),
}

impl Chosen {
    /// Takes words of `-e` that select out of the options, and adds the schema that is meant if
    /// none is named.
    pub fn take(what: &mut What) -> Result<Chosen, Failure> {
        let mut chosen = Chosen::default();
        let words = std::mem::take(&mut what.events);
        let named = match what.schemas.is_empty() {
            true => vec![SCHEMA.into()],
            false => schema_names(&what.schemas)?,
        };
        let named = named.iter().filter(|name| !words.is_empty() && *name != PROGRAMS);
        let all: Vec<Schema> =
            named.map(|name| schemata::schema(name)).collect::<Result<_, _>>()?;
        // READ is an event, read a system call.
        let is_event = |name: &str| all.iter().any(|schema| schema.event(name).is_some());
        let (events, words): (Vec<String>, Vec<String>) =
            words.into_iter().partition(|word| is_event(word));
        chosen.events = events;
        let found = calls::named(&words)?;
        // The schemata that are recorded say more of their own calls.
        let is_known = |call: &String| all.iter().any(|schema| has_call(schema, call));
        let own = !found.by_class
            && found.calls.iter().all(is_known)
            && all.iter().all(|schema| schema.name != calls::SCHEMA);
        for word in found.others {
            match is_event(&word.to_uppercase()) {
                true => chosen.events.push(word.to_uppercase()),
                false => what.events.push(word),
            }
        }
        let is_all = found.all;
        let none = what.schemas.is_empty() && what.engine.is_none();
        match own {
            true => chosen.calls.extend(found.calls),
            false => calls::record(what, found.calls),
        }
        let selects = !chosen.is_everything();
        if none && (selects || (what.events.is_empty() && what.calls.is_empty() && !is_all)) {
            what.schemas.push(SCHEMA.into());
        }
        if !what.calls.is_empty() {
            calls::check_others(&what.events)?;
        }
        chosen.schemas = all.into_iter().map(|schema| schema.name).collect();
        Ok(chosen)
    }

    fn is_everything(&self) -> bool {
        self.events.is_empty() && self.calls.is_empty()
    }

    /// Whether events of this layout are printed. `plain`: those that only help others have no
    /// lines of their own.
    pub fn shown(&self, at: usize, event: &EventLayout, joined: &Joined, plain: bool) -> Shown {
        if event.schema == BUILTIN {
            let is_shown = match plain {
                true => matches!(Builtin::of(event), Some(Builtin::Lost | Builtin::Mark)),
                // The rings are drained all the time here.
                false => !event.name.starts_with("DUMP_"),
            };
            return if is_shown { Shown::Always } else { Shown::Never };
        }
        let is_place = Decode::Table(PLACE.into());
        let place = event.fields.iter().position(|f| f.decode == is_place);
        let is_named = || self.events.contains(&event.name);
        match place {
            _ if self.is_everything() || !self.schemas.contains(&event.schema) => {
                let helps = joined.is_kept(at) || event.has_empty_line();
                if plain && helps { Shown::Never } else { Shown::Always }
            }
            _ if is_named() => Shown::Always,
            Some(field) if !self.calls.is_empty() => Shown::OfCall(field),
            _ => Shown::Never,
        }
    }

    /// Whether the event is of one of the system calls.
    pub fn has_call(
        &self,
        event: &EventRef,
        field: usize,
        decoder: &Decoder,
        processes: &Processes,
    ) -> bool {
        let mut place = Vec::new();
        decoder.name(event, field, processes, &mut place);
        self.calls.iter().any(|call| short_place(&place) == call.as_bytes())
    }
}

/// A place without its kind: of `return syscall openat` only `openat`.
pub fn short_place(place: &[u8]) -> &[u8] {
    place.rsplit(|b| *b == b' ').next().unwrap_or(place)
}
