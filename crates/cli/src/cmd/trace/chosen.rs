// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is printed: which events, and of which system calls.
//!
//! `-e` names trace events of the kernel, as for `klogger record`. A word that is an event of the
//! schemata, or a system call of their probes, selects what is printed instead: `-e openat`, or
//! `-e trace=openat,read` as strace has it.

use super::SCHEMA;
use super::joined::Joined;
use crate::cmd::record::what::{PROGRAMS, What};
use crate::cmd::record::words::schema_names;
use crate::failure::Failure;
use crate::schemata;
use klogger_log::builtin::Builtin;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::process::Processes;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, ProbeKind, Schema};
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
        for word in words {
            let word = word.strip_prefix("trace=").unwrap_or(&word).to_string();
            // READ is an event, read a system call.
            if all.iter().any(|schema| schema.event(&word).is_some()) {
                chosen.events.push(word);
            } else if all.iter().any(|schema| has_call(schema, &word)) {
                chosen.calls.push(word);
            } else if all.iter().any(|schema| schema.event(&word.to_uppercase()).is_some()) {
                chosen.events.push(word.to_uppercase());
            } else {
                what.events.push(word);
            }
        }
        let none = what.schemas.is_empty() && what.engine.is_none();
        if none && (what.events.is_empty() || !chosen.is_everything()) {
            what.schemas.push(SCHEMA.into());
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
                if plain && joined.is_kept(at) { Shown::Never } else { Shown::Always }
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

fn has_call(schema: &Schema, word: &str) -> bool {
    let targets = schema.probes.iter().flat_map(|probe| &probe.targets);
    let mut calls = targets
        .filter(|target| matches!(target.kind, ProbeKind::Syscall | ProbeKind::ReturnSyscall));
    calls.any(|target| target.patterns().any(|name| name == word))
}
