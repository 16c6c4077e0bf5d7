// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Keyed state of schemata: the size of its tables, and entries that found no room.

use super::load::{map_fd, map_memory, set_constants};
use klogger_codegen::parameters;
use klogger_codegen::states::{self, KEPT, entries, map_of};
use klogger_log::ledger::{Entry, Key as Cause};
use klogger_os::machine;
use klogger_os::{Error, Mapping};
use klogger_schema::model::{Entries, Key, Schema, State};
use klogger_toolchain::compiled_schema::CompiledSchema;
use libbpf_rs::{Object, OpenObject};
use std::sync::atomic::Ordering;

/// Most bytes of one table, which the kernel can make.
const BYTES_MAX: u64 = 3 << 30;

/// Checks that there is memory for the tables of all schemata, before any is made.
pub fn check(units: &[(&CompiledSchema, u16)]) -> Result<(), Error> {
    let available = machine::memory_available().unwrap_or(u64::MAX);
    let mut all = 0;
    for (unit, _) in units {
        for state in &unit.schema.states {
            all += fits(&unit.schema, state, available.saturating_sub(all))?;
        }
    }
    Ok(())
}

/// The bytes of a table, for which so many are free.
fn fits(schema: &Schema, state: &State, available: u64) -> Result<u64, Error> {
    let bytes = states::size(schema, state).map_or(0, |size| size.bytes);
    if bytes <= BYTES_MAX.min(available) {
        return Ok(bytes);
    }
    let limit = match available < BYTES_MAX {
        true => format!("{} MiB are free", available >> 20),
        false => format!("a state has at most {} MiB", BYTES_MAX >> 20),
    };
    let help = match &state.entries {
        Entries::Parameter(name) => format!("choose fewer: --set {}.{name}=N", schema.name),
        Entries::Number(_) | Entries::Each => {
            format!("choose fewer entries in {}: state {}[N]", schema.file, state.name)
        }
    };
    let (name, n, needed) = (&state.name, entries(schema, state), bytes.div_ceil(1 << 20));
    Err(Error::new(format!("state {name} of {n} entries needs {needed} MiB, and {limit}"))
        .help(help))
}

/// Gives the tables of an object their full size, which only a recording needs.
pub fn set_sizes(open: &mut OpenObject, schema: &Schema) -> Result<(), Error> {
    for (number, state) in schema.states.iter().enumerate() {
        let Some(size) = states::size(schema, state) else { continue };
        let name = map_of(number);
        for mut map in open.maps_mut().filter(|m| m.name() == name.as_str()) {
            let cannot =
                |e| Error::new(format!("cannot make state {}.{}: {e}", schema.name, state.name));
            map.set_max_entries(size.buckets).map_err(cannot)?;
        }
    }
    let bytes = parameters::bytes(schema, true);
    let constants = open.maps_mut().filter(|m| m.name() == parameters::SECTION);
    constants.into_iter().for_each(|mut map| set_constants(&mut map, &bytes));
    Ok(())
}

/// What the programs of one object share with the recorder about its states.
pub struct Tables {
    /// For each state: what the ledger says of it.
    states: Vec<String>,
    memory: Mapping,
}

impl Tables {
    /// `None` if the schema has no states.
    pub fn of(object: &Object, schema: &Schema) -> Result<Option<Tables>, Error> {
        if schema.states.is_empty() {
            return Ok(None);
        }
        let said = |s: &State| {
            let name = format!("state {}.{}", schema.name, s.name);
            match s.key {
                Key::Value(_) => format!("{name} has room for {} entries", entries(schema, s)),
                Key::Thread | Key::Cpu => format!("{name}: no memory for the entry of a thread"),
            }
        };
        let memory = map_memory(&map_fd(object, KEPT)?, 8 * (1 + schema.states.len()))?;
        Ok(Some(Tables { states: schema.states.iter().map(said).collect(), memory }))
    }

    /// Probes remember from now on; what they hit before the recording began is not in the tables.
    pub fn begin(&self) {
        self.memory.word(0).store(1, Ordering::Relaxed);
    }

    /// The entries of the ledger.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.states.iter().enumerate().filter_map(|(number, said)| {
            let count = self.memory.word(8 * (1 + number)).load(Ordering::Relaxed);
            (count > 0).then(|| Entry::new(Cause::StateFull).count(count).detail(said))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let text = "schema s\nparameter uint many = 9 from 1 to 16777216\n\
                    state seen[many] by ulong { ulong since }\nstate each by cpu { ulong n }\n\
                    event E { int a }\n";
        let mut schema =
            klogger_schema::parse("s.klogger", text, &Default::default()).unwrap().schema;
        let seen = schema.states[0].clone();
        // 16 buckets of 7 keys and entries of 8 bytes.
        assert_eq!(fits(&schema, &seen, u64::MAX).unwrap(), 16 * (64 + 7 * 8));
        assert_eq!(fits(&schema, &schema.states[1], 0).unwrap(), 0);
        schema.parameters[0].value = 1 << 24;
        let error = fits(&schema, &seen, 100 << 20).unwrap_err();
        assert_eq!(
            error.message,
            "state seen of 16777216 entries needs 549 MiB, and 100 MiB are free"
        );
        assert_eq!(error.help.as_deref(), Some("choose fewer: --set s.many=N"));
    }
}
