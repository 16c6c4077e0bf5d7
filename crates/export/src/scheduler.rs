// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The bundled scheduler schema, for logs without roles of events or without names for the bits of
//! a thread's state: those from before schemata had roles, and those of a schema whose state has no
//! decoding.

use klogger_schema::model::{Decode, Decoding, Role, Schema};
use klogger_schema::{Options, parse};
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../../schemata/scheduler/scheduler.klogger");

/// `None` if it is not valid, which the tests of the schemata would find.
static SCHEMA: LazyLock<Option<Schema>> =
    LazyLock::new(|| Some(parse("scheduler.klogger", TEXT, &Options::default()).ok()?.schema));

/// The role of the event with this name in the schema.
pub fn role_of(event: &str) -> Option<Role> {
    SCHEMA.as_ref()?.events.iter().find(|e| e.name == event)?.role
}

/// The decoding of the state in which a thread left its CPU.
pub fn states() -> Option<&'static Decoding> {
    let schema = SCHEMA.as_ref()?;
    let out = schema.events.iter().find(|e| e.role == Some(Role::SwitchOut))?;
    let field = out.fields.iter().find(|f| f.name == "state")?;
    decoding(&field.decode, &schema.decodings)
}

/// The table with which a field is shown, if it is one of bits.
pub fn decoding<'d>(decode: &Decode, all: &'d [Decoding]) -> Option<&'d Decoding> {
    let Decode::Table(name) = decode else { return None };
    all.iter().find(|d| d.flags && d.name == *name)
}
