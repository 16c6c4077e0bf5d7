// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The event types of an LTTng trace: each is declared when its first event comes.

use super::super::stream::push_text;
use klogger_schema::layout::{EventLayout, FieldLayout, STRING_MAX};
use klogger_schema::model::{Decode, Scalar, Shape};
use std::collections::HashMap;
use std::io;

/// The value of a field.
pub enum Arg<'a> {
    /// Of 32 bits.
    Int(i64),
    /// Of 64 bits.
    Long(i64),
    Text(&'a [u8]),
}

/// A field, and its value.
pub type Field<'a> = (&'static str, Arg<'a>);

pub struct Classes {
    layouts: Vec<EventLayout>,
    /// LTTng's types, by name.
    theirs: HashMap<String, u16>,
    /// Types of events of the log, by index.
    logged: Vec<Option<u16>>,
}

impl Classes {
    pub fn new(events: usize) -> Classes {
        Classes { layouts: Vec::new(), theirs: HashMap::new(), logged: vec![None; events] }
    }

    /// The number of one of LTTng's types. All events of one name have the same fields.
    pub fn theirs(&mut self, name: &str, fields: &[Field]) -> io::Result<u16> {
        if let Some(id) = self.theirs.get(name) {
            return Ok(*id);
        }
        let fields = fields.iter().map(|(name, arg)| layout_of(name, arg)).collect();
        let id = self.declare(EventLayout {
            id: 0,
            schema: String::new(),
            name: name.into(),
            doc: None,
            fixed: 0,
            fields,
            about: Vec::new(),
            role: None,
            begins: Vec::new(),
            ends: Vec::new(),
            line: None,
        })?;
        self.theirs.insert(name.into(), id);
        Ok(id)
    }

    /// The number of a type that LTTng does not have. The schema's name is part of its name,
    /// because LTTng may have an event of the same name.
    pub fn logged(&mut self, index: usize, layout: &EventLayout) -> io::Result<u16> {
        if let Some(id) = self.logged[index] {
            return Ok(id);
        }
        let mut layout =
            EventLayout { name: format!("{}:{}", layout.schema, layout.name), ..layout.clone() };
        // Without enumerations: babeltrace 1.5 warns of each value without a name, and of each
        // combination of flags.
        for field in layout.fields.iter_mut().filter(|f| matches!(f.decode, Decode::Table(_))) {
            field.decode = Decode::Plain;
        }
        let id = self.declare(layout)?;
        self.logged[index] = Some(id);
        Ok(id)
    }

    pub fn into_layouts(self) -> Vec<EventLayout> {
        self.layouts
    }

    fn declare(&mut self, layout: EventLayout) -> io::Result<u16> {
        let id = u16::try_from(self.layouts.len())
            .map_err(|_| io::Error::other("too many kinds of events"))?;
        self.layouts.push(EventLayout { id, ..layout });
        Ok(id)
    }
}

/// The bytes of the fields.
pub fn push_fields(fields: &[Field], out: &mut Vec<u8>) {
    for (_, arg) in fields {
        match arg {
            Arg::Int(n) => out.extend_from_slice(&(*n as i32).to_le_bytes()),
            Arg::Long(n) => out.extend_from_slice(&n.to_le_bytes()),
            Arg::Text(text) => push_text(text, out),
        }
    }
}

fn layout_of(name: &str, arg: &Arg) -> FieldLayout {
    let (scalar, shape) = match arg {
        Arg::Int(_) => (Scalar::I32, Shape::One),
        Arg::Long(_) => (Scalar::I64, Shape::One),
        Arg::Text(_) => (Scalar::U8, Shape::Tail(STRING_MAX)),
    };
    FieldLayout {
        name: name.into(),
        type_name: String::new(),
        scalar,
        shape,
        offset: 0,
        unit: None,
        decode: Decode::Plain,
        doc: None,
        context: None,
    }
}
