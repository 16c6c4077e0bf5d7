// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The layout of an event: the offsets of its fields in a record. Only this file computes offsets:
//! the C that writes a record asserts them, and the reader of a log uses those that are in the log.
//!
//! A record is a header word of 8 bytes (48-bit time, 16-bit event id), then the fields in the
//! order of their declaration, each aligned to its own size as a C compiler would, padded at the
//! end to a multiple of 8 bytes. A `string` field is a u16 length at its offset; its bytes (no NUL)
//! follow the last fixed field, and those of the `string` before it; then comes the padding.

use crate::model::{Context, Decode, Event, Line, Role, Scalar, Scope, Shape, Slice};
use serde::{Deserialize, Serialize};

/// Bytes of the header word.
pub const HEADER_SIZE: u32 = 8;
/// Largest record in bytes, so that what extends past the end of a ring stays within one page.
pub const RECORD_MAX: u32 = 4096;
/// Bytes of a `string` without a length at most. The BPF stack (512 bytes) must hold one.
pub const STRING_MAX: u32 = 255;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLayout {
    /// 1..=65535, unique in one log.
    pub id: u16,
    pub schema: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    /// Bytes up to the end of the last fixed field, header included; not padded.
    pub fixed: u32,
    pub fields: Vec<FieldLayout>,
    /// Thread-id fields that decide whether the event is in scope; empty: the running thread
    /// decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The slices that begin with it, and those that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begins: Vec<Slice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<Slice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldLayout {
    pub name: String,
    /// The type as it was written in the schema.
    #[serde(rename = "type")]
    pub type_name: String,
    pub scalar: Scalar,
    pub shape: Shape,
    /// Offset from the start of the record, header included.
    pub offset: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(default, skip_serializing_if = "is_plain")]
    pub decode: Decode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

fn is_plain(decode: &Decode) -> bool {
    *decode == Decode::Plain
}

/// Rounds up to a multiple of 8, the alignment of every record.
pub const fn pad8(bytes: u32) -> u32 {
    (bytes + 7) & !7
}

impl EventLayout {
    /// `line EVENT ""`: it is there for analyses, and says nothing to people.
    pub fn has_empty_line(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.text.is_empty())
    }

    pub fn new(schema: &str, event: &Event, id: u16) -> EventLayout {
        let mut end = HEADER_SIZE;
        let fields = event
            .fields
            .iter()
            .map(|f| {
                let (align, size) = f.shape.align_and_size(f.scalar);
                let offset = end.next_multiple_of(align);
                end = offset + size;
                FieldLayout {
                    name: f.name.clone(),
                    type_name: f.type_name.clone(),
                    scalar: f.scalar,
                    shape: f.shape,
                    offset,
                    unit: f.unit.clone(),
                    decode: f.decode.clone(),
                    doc: f.doc.clone(),
                    context: f.context,
                }
            })
            .collect();
        let about = match &event.scope {
            Scope::Fields(names) => names.clone(),
            Scope::Current | Scope::All => Vec::new(),
        };
        EventLayout {
            id,
            schema: schema.into(),
            name: event.name.clone(),
            doc: event.doc.clone(),
            fixed: end,
            fields,
            about,
            role: event.role,
            begins: event.begins.clone(),
            ends: event.ends.clone(),
            line: event.line.clone(),
        }
    }

    /// The `string` fields, each with its bytes at most.
    pub fn tails(&self) -> impl Iterator<Item = (&FieldLayout, u32)> {
        self.fields.iter().filter_map(|f| Some((f, f.shape.tail_max()?)))
    }

    /// Bytes of a record whose texts of `string` fields have `tails` bytes together.
    pub fn record_size(&self, tails: u32) -> u32 {
        pad8(self.fixed.saturating_add(tails))
    }

    /// Bytes of the longest record.
    pub fn max_size(&self) -> u32 {
        self.record_size(self.tails().fold(0, |sum, (_, most)| sum.saturating_add(most)))
    }
}

impl Shape {
    /// (alignment, bytes in the fixed part)
    pub fn align_and_size(self, scalar: Scalar) -> (u32, u32) {
        match self {
            Shape::One => (scalar.size(), scalar.size()),
            Shape::Array(n) => (scalar.size(), scalar.size().saturating_mul(n)),
            Shape::Text(n) => (1, n),
            Shape::Tail(_) => (2, 2),
        }
    }

    /// Bytes at most in the variable part, of a `string`.
    pub fn tail_max(self) -> Option<u32> {
        match self {
            Shape::Tail(most) => Some(most),
            Shape::One | Shape::Array(_) | Shape::Text(_) => None,
        }
    }
}
