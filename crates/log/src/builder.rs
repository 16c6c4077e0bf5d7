// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Builds records in user space: those of the recorder itself, and those of tests.

use crate::record::Header;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::Shape;

/// Fills one record field by field. Fields that are not set are 0 or empty.
///
/// A field name that the event does not have is a bug in the program: debug builds panic, others
/// ignore it.
pub struct RecordBuilder<'a> {
    layout: &'a EventLayout,
    bytes: Vec<u8>,
    /// The texts of variable length, with the offsets of their fields.
    tails: Vec<(u32, Vec<u8>)>,
}

impl<'a> RecordBuilder<'a> {
    pub fn new(layout: &'a EventLayout) -> RecordBuilder<'a> {
        RecordBuilder { layout, bytes: vec![0; layout.fixed as usize], tails: Vec::new() }
    }

    /// Sets a number; its low bytes are kept if the field is narrower.
    pub fn int(self, field: &str, value: i64) -> RecordBuilder<'a> {
        self.element(field, 0, value)
    }

    /// Sets one element of an array.
    pub fn element(mut self, field: &str, index: u32, value: i64) -> RecordBuilder<'a> {
        let Some(f) = self.field(field) else { return self };
        let elements = match f.shape {
            Shape::One => 1,
            Shape::Array(n) => n,
            Shape::Text(_) | Shape::Tail(_) => 0,
        };
        if index < elements {
            let size = f.scalar.size();
            self.put(f.offset + index * size, &value.to_le_bytes()[..size as usize]);
        }
        self
    }

    /// Sets a string; what is too long for the field is cut off.
    pub fn text(mut self, field: &str, value: &[u8]) -> RecordBuilder<'a> {
        let Some(f) = self.field(field) else { return self };
        match f.shape {
            Shape::Text(n) => self.put(f.offset, &value[..value.len().min(n as usize)]),
            Shape::Tail(most) => {
                let value = &value[..value.len().min(most as usize)];
                self.tails.retain(|(offset, _)| *offset != f.offset);
                self.tails.push((f.offset, value.to_vec()));
                self.put(f.offset, &(value.len() as u16).to_le_bytes());
            }
            Shape::One | Shape::Array(_) => {}
        }
        self
    }

    /// Appends the record to `out`. `time` is a full time; its low 48 bits are stored.
    pub fn finish(mut self, time: u64, out: &mut Vec<u8>) {
        self.bytes[..8].copy_from_slice(&Header::new(time, self.layout.id).0.to_le_bytes());
        self.tails.sort_unstable_by_key(|(offset, _)| *offset);
        let tails: usize = self.tails.iter().map(|(_, text)| text.len()).sum();
        let end = out.len() + self.layout.record_size(tails as u32) as usize;
        out.extend_from_slice(&self.bytes);
        self.tails.iter().for_each(|(_, text)| out.extend_from_slice(text));
        out.resize(end, 0);
    }

    fn field(&self, name: &str) -> Option<&'a FieldLayout> {
        let field = self.layout.fields.iter().find(|f| f.name == name);
        debug_assert!(field.is_some(), "event {} has no field {name}", self.layout.name);
        field
    }

    fn put(&mut self, offset: u32, value: &[u8]) {
        let at = offset as usize;
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
}
