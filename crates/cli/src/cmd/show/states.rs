// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the probes of a schema remember: its states, with their sizes.

use klogger_codegen::states::{entries, size};
use klogger_schema::model::{Entries, Field, Key, Schema, Shape, State};
use klogger_schema::vocabulary::TYPES;
use serde_json::{Value, json};

/// Prints them as they are declared.
pub fn print(schema: &Schema) {
    for state in &schema.states {
        let number = match &state.entries {
            Entries::Number(n) => format!("[{n}]"),
            Entries::Parameter(name) => format!("[{name}]"),
            Entries::Each => String::new(),
        };
        say!("\nstate {}{number} by {}", state.name, key(state));
        state.doc.iter().for_each(|doc| say!("    {doc}"));
        let fields: Vec<String> = state
            .fields
            .iter()
            .map(|f| {
                let length = match f.shape {
                    Shape::Array(n) => format!("[{n}]"),
                    Shape::One | Shape::Text(_) | Shape::Tail(_) => String::new(),
                };
                format!("{} {}{length}", f.type_name, f.name)
            })
            .collect();
        say!("    {}", fields.join(", "));
        match size(schema, state) {
            Some(size) => say!(
                "    {} entries, {} KiB during a recording",
                entries(schema, state),
                size.bytes.div_ceil(1024)
            ),
            None => say!("    one for each {}", key(state)),
        }
    }
}

/// `entries` and `bytes` are null if there is one for each thread or CPU.
pub fn json(schema: &Schema, state: &State) -> Value {
    let size = size(schema, state);
    let field = |f: &Field| json!({ "name": f.name, "type": f.type_name });
    let fields: Vec<Value> = state.fields.iter().map(field).collect();
    json!({
        "name": state.name,
        "doc": state.doc,
        "key": key(state),
        "entries": size.map(|_| entries(schema, state)),
        "bytes": size.map(|size| size.bytes),
        "fields": fields,
    })
}

/// The word after `by`, or one that means the same.
fn key(state: &State) -> &'static str {
    match state.key {
        Key::Thread => "thread",
        Key::Cpu => "cpu",
        Key::Value(scalar) => {
            TYPES.iter().find(|(_, known)| *known == scalar).map_or("", |(word, _)| word)
        }
    }
}
