// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Fields of events as arguments of instants and slices, with interned names.

use super::proto::{Annotated, DebugAnnotation, Interned};
use klogger_log::event::Value;
use klogger_log::preamble::Preamble;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Shape};
use std::collections::HashMap;

/// How one field is written.
pub struct Argument {
    pub name: u64,
    pub hex: bool,
    /// The name of the argument with its decoded text, if it has one.
    pub text: Option<u64>,
    /// The text replaces the value.
    pub whole: bool,
}

/// Numbers of interned names, from 1.
#[derive(Default)]
pub struct Names {
    numbers: HashMap<String, u64>,
    pub interned: Vec<Interned>,
}

impl Names {
    pub fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.interned.len() as u64 + 1;
        self.numbers.insert(name.into(), number);
        self.interned.push(Interned { iid: Some(number), name: Some(name.into()) });
        number
    }
}

/// Other names for the arguments of an event that ends a slice: `end_NAME`.
pub fn names_at_end(
    preamble: &Preamble,
    arguments: &[Vec<Argument>],
    names: &mut Names,
) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for (event, arguments) in
        preamble.events.iter().zip(arguments).filter(|(e, _)| !e.ends.is_empty())
    {
        for (field, argument) in event.fields.iter().zip(arguments) {
            let name = format!("end_{}", field.name);
            found.insert(argument.name, names.number(&name));
            if let Some(text) = argument.text {
                found.insert(text, names.number(&format!("{name}_text")));
            }
        }
    }
    found
}

/// A decoded text is added as `NAME_text`, with another underscore if the event has such a field.
pub fn arguments(event: &EventLayout, names: &mut Names) -> Vec<Argument> {
    let is_field = |name: &str| event.fields.iter().any(|f| f.name == name);
    let mut argument = |field: &FieldLayout| {
        let whole =
            matches!(field.decode, Decode::Octal | Decode::Device | Decode::Ip | Decode::Endpoint);
        let one = field.shape == Shape::One;
        let decoded = whole || one && !matches!(field.decode, Decode::Plain | Decode::Hex);
        let mut label = format!("{}_text", field.name);
        while is_field(&label) {
            label.push('_');
        }
        Argument {
            name: names.number(&field.name),
            hex: matches!(field.decode, Decode::Hex | Decode::Code | Decode::Data),
            text: decoded.then(|| names.number(&label)),
            whole,
        }
    };
    event.fields.iter().map(&mut argument).collect()
}

pub fn labelled(name: u64, value: Annotated) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name), value: Some(value), array_values: Vec::new() }
}

pub fn text(bytes: &[u8]) -> Annotated {
    Annotated::Text(String::from_utf8_lossy(bytes).into_owned())
}

pub fn annotation(argument: &Argument, value: Value) -> DebugAnnotation {
    let Value::Array(elements) = value else {
        return labelled(argument.name, annotated(value, argument.hex));
    };
    let element = |v| DebugAnnotation {
        name_iid: None,
        array_values: Vec::new(),
        value: Some(annotated(v, argument.hex)),
    };
    DebugAnnotation {
        name_iid: Some(argument.name),
        value: None,
        array_values: elements.iter().map(element).collect(),
    }
}

/// A pointer is shown as a hexadecimal number.
pub fn annotated(value: Value, hex: bool) -> Annotated {
    match value {
        Value::Uint(n) if hex => Annotated::Pointer(n),
        Value::Uint(n) => Annotated::Uint(n),
        Value::Int(n) => Annotated::Int(n),
        Value::Bool(b) => Annotated::Bool(b),
        Value::Text(bytes) => text(bytes),
        Value::Array(_) => Annotated::Text(String::new()),
    }
}
