// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Keyed state of a schema in C, for the bpf engine: a structure for an entry, a table, and the
//! functions behind `klogger_put()`, `klogger_get()` and `klogger_take()`.

use crate::events::{c_type, declared};
use crate::parameters::{SECTION, SLOT};
use crate::text::Text;
use klogger_schema::model::{Entries, Key, Scalar, Schema, State};

/// The variables that the recorder shares: a u64 that is 1 while a recording runs, then for each
/// state a u64 with how many entries found no room.
pub const KEPT: &str = ".bss.klogger_q";

/// Entries of a bucket, as in `runtime/bpf/state.h`.
const BUCKET: u64 = 7;
/// So that keys find different buckets.
const BUCKETS_MIN: u64 = 16;

/// How large the table of a state by value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub buckets: u32,
    pub bytes: u64,
}

/// The map of a state, by its number in the schema.
pub fn map_of(number: usize) -> String {
    format!("klogger_state_{number}")
}

/// The number of entries that a state by value has room for.
pub fn entries(schema: &Schema, state: &State) -> u64 {
    match &state.entries {
        Entries::Number(n) => *n,
        Entries::Parameter(name) => {
            let found = schema.parameters.iter().find(|p| p.name == *name);
            found.and_then(|p| u64::try_from(p.value).ok()).unwrap_or(1)
        }
        Entries::Each => 0,
    }
}

/// The size of the table of a state by value; `None` of others. Of the entries of buckets, half are
/// used. So one in twenty buckets is full, and all eight of a key are with a chance of 1 in 10^10.
pub fn size(schema: &Schema, state: &State) -> Option<Size> {
    let Key::Value(_) = state.key else { return None };
    let buckets = (entries(schema, state) * 2).div_ceil(BUCKET).max(BUCKETS_MIN);
    let bucket = 8 * (BUCKET + 1) + BUCKET * entry_size(state);
    Some(Size { buckets: buckets as u32, bytes: buckets * bucket })
}

fn entry_size(state: &State) -> u64 {
    let mut end = 0u64;
    for f in &state.fields {
        let (align, size) = f.shape.align_and_size(f.scalar);
        end = end.next_multiple_of(u64::from(align)) + u64::from(size);
    }
    end.next_multiple_of(8)
}

/// The numbers of buckets of all states, as constants that follow the parameters. `sized`: for a
/// recording; otherwise all tables are as small as can be.
pub(crate) fn constants(schema: &Schema, sized: bool) -> impl Iterator<Item = u64> {
    let buckets = move |state| Some(u64::from(size(schema, state)?.buckets));
    schema.states.iter().filter_map(buckets).map(move |n| if sized { n } else { 1 })
}

pub(crate) fn tables(out: &mut Text, schema: &Schema) {
    if schema.states.is_empty() {
        return;
    }
    let all = schema.states.len();
    out.push(format_args!("#define KLOGGER_STATES {all}\n#include \"state.h\"\n"));
    for (number, state) in schema.states.iter().enumerate() {
        out.push_at(schema, state.span, &structure(state));
        let name = &state.name;
        match state.key {
            Key::Value(scalar) => {
                let (buckets, key) = (format!("klogger_buckets_{name}"), c_type(unsigned(scalar)));
                out.push(format_args!(
                    "const volatile __u32 {buckets} SEC(\"{SECTION}\") \
                     __attribute__((aligned({SLOT}))) = 1;\n\
                     KLOGGER_TABLE({name}, {number}, {buckets})\n\
                     KLOGGER_TABLE_CALLS({name}, {number}, {key})\n"
                ));
            }
            Key::Thread => out.push(format_args!("KLOGGER_THREAD_TABLE({name}, {number})\n")),
            Key::Cpu => out.push(format_args!("KLOGGER_CPU_TABLE({name}, {number})\n")),
        }
    }
}

/// On one line, which is that of the schema.
fn structure(state: &State) -> String {
    let fields: Vec<String> =
        state.fields.iter().map(|f| declared(f.shape, f.scalar, &f.name) + "; ").collect();
    format!("struct {} {{ {}}} __attribute__((aligned(8)));", state.name, fields.concat())
}

/// A key of 32 bits is stored as a number of 32 bits, whatever its sign.
fn unsigned(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => Scalar::U8,
        Scalar::I16 | Scalar::U16 => Scalar::U16,
        Scalar::I32 | Scalar::U32 => Scalar::U32,
        Scalar::I64 | Scalar::U64 => Scalar::U64,
    }
}
