// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A view of one record, and of the values of its fields.

use crate::origin::Origin;
use crate::record::Record;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Scalar, Shape};

/// One event, a reference into its block.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    pub layout: &'a EventLayout,
    /// Which of `preamble.events` the layout is.
    pub index: usize,
    /// Full ns of the log clock.
    pub time_ns: u64,
    pub origin: Origin,
    pub serial: u64,
    /// The record: header, fields, padding.
    pub bytes: &'a [u8],
}

/// The events of a recording, by their ids.
#[derive(Clone, Debug, Default)]
pub struct Layouts {
    all: Vec<EventLayout>,
    /// By event id: which of `all`, if it is wanted.
    by_id: Vec<Option<usize>>,
}

impl Layouts {
    /// `is_wanted`: those that can be looked up.
    pub fn add(&mut self, events: &[EventLayout], is_wanted: impl Fn(&EventLayout) -> bool) {
        for layout in events {
            let id = usize::from(layout.id);
            self.by_id.resize(self.by_id.len().max(id + 1), None);
            self.by_id[id] = is_wanted(layout).then_some(self.all.len());
            self.all.push(layout.clone());
        }
    }

    /// All, in the order in which they were added.
    pub fn all(&self) -> &[EventLayout] {
        &self.all
    }

    /// Which of all an event is, and its layout.
    #[inline]
    pub fn get(&self, id: u16) -> Option<(usize, &EventLayout)> {
        let index = (*self.by_id.get(usize::from(id))?)?;
        Some((index, &self.all[index]))
    }

    /// The event of a record, without its serial number.
    #[inline]
    pub fn event<'a>(
        &'a self,
        record: &Record<'a>,
        origin: Origin,
        time_base: u64,
    ) -> Option<EventRef<'a>> {
        let (index, layout) = self.get(record.id())?;
        let (time_ns, bytes) = (record.time(time_base), record.bytes);
        Some(EventRef { layout, index, time_ns, origin, serial: 0, bytes })
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Int(i64),
    Uint(u64),
    Bool(bool),
    /// Up to the first NUL; not necessarily UTF-8.
    Text(&'a [u8]),
    Array(Elements<'a>),
}

/// The elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements<'a> {
    pub scalar: Scalar,
    pub bytes: &'a [u8],
}

impl<'a> EventRef<'a> {
    #[inline]
    pub fn value(&self, field: &FieldLayout) -> Value<'a> {
        value(self.layout, field, self.bytes)
    }

    /// The value of the field of this name, if the event has it.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.layout.fields.iter().find(|f| f.name == name).map(|f| self.value(f))
    }

    /// The process whose memory the event's addresses are in.
    pub fn process(&self) -> Option<u32> {
        process(self.layout, self.origin, self.bytes)
    }
}

/// The process that an event happened in: its field `tgid`, or that of the thread that logged it.
pub fn process(layout: &EventLayout, origin: Origin, record: &[u8]) -> Option<u32> {
    if let Origin::Thread { thread, .. } = origin {
        return Some(thread.tgid);
    }
    // Context fields are the last ones.
    let field = layout.fields.iter().rev().find(|f| f.name == "tgid")?;
    value(layout, field, record).int().and_then(|pid| u32::try_from(pid).ok())
}

/// The value of `field` in the record `bytes`. Missing bytes read as 0.
#[inline]
pub fn value<'a>(layout: &EventLayout, field: &FieldLayout, bytes: &'a [u8]) -> Value<'a> {
    let at = field.offset as usize;
    match field.shape {
        Shape::One => scalar(field.scalar, bytes, at),
        Shape::Array(n) => {
            let size = field.scalar.size() as usize * n as usize;
            Value::Array(Elements {
                scalar: field.scalar,
                bytes: bytes.get(at..at + size).unwrap_or_default(),
            })
        }
        Shape::Text(n) => {
            let text = bytes.get(at..at + n as usize).unwrap_or_default();
            Value::Text(text.split(|b| *b == 0).next().unwrap_or_default())
        }
        Shape::Tail(_) => {
            let length = bits::<2>(bytes, at) as usize;
            let from = layout.fixed as usize + before(layout, field, bytes);
            let text = bytes.get(from..from + length).unwrap_or_default();
            // A text that changed while it was read may have become shorter.
            Value::Text(text.split(|b| *b == 0).next().unwrap_or_default())
        }
    }
}

/// Bytes of the texts that precede the one of `field`.
#[inline]
fn before(layout: &EventLayout, field: &FieldLayout, bytes: &[u8]) -> usize {
    let earlier = layout.tails().take_while(|(other, _)| other.offset < field.offset);
    earlier.map(|(other, _)| bits::<2>(bytes, other.offset as usize) as usize).sum()
}

#[inline]
fn bits<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(b) = bytes.get(at..at + N) {
        word[..N].copy_from_slice(b);
    }
    u64::from_le_bytes(word)
}

#[inline]
fn scalar<'a>(scalar: Scalar, bytes: &[u8], at: usize) -> Value<'a> {
    match scalar {
        Scalar::Bool => Value::Bool(bits::<1>(bytes, at) != 0),
        Scalar::I8 => Value::Int(i64::from(bits::<1>(bytes, at) as i8)),
        Scalar::U8 => Value::Uint(bits::<1>(bytes, at)),
        Scalar::I16 => Value::Int(i64::from(bits::<2>(bytes, at) as i16)),
        Scalar::U16 => Value::Uint(bits::<2>(bytes, at)),
        Scalar::I32 => Value::Int(i64::from(bits::<4>(bytes, at) as i32)),
        Scalar::U32 => Value::Uint(bits::<4>(bytes, at)),
        Scalar::I64 => Value::Int(bits::<8>(bytes, at) as i64),
        Scalar::U64 => Value::Uint(bits::<8>(bytes, at)),
    }
}

impl<'a> Elements<'a> {
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> {
        let size = self.scalar.size() as usize;
        (0..self.bytes.len() / size).map(move |i| scalar(self.scalar, self.bytes, i * size))
    }
}

impl<'a> Value<'a> {
    /// The number, if there is one and it fits.
    #[inline]
    pub fn int(self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(n),
            Value::Uint(n) => i64::try_from(n).ok(),
            Value::Bool(b) => Some(i64::from(b)),
            Value::Text(_) | Value::Array(_) => None,
        }
    }

    /// The bits of a number, a negative one as two's complement.
    #[inline]
    pub fn bits(self) -> Option<u64> {
        match self {
            Value::Int(n) => Some(n as u64),
            Value::Uint(n) => Some(n),
            Value::Bool(b) => Some(u64::from(b)),
            Value::Text(_) | Value::Array(_) => None,
        }
    }

    pub fn text(self) -> Option<&'a [u8]> {
        match self {
            Value::Text(text) => Some(text),
            Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Array(_) => None,
        }
    }
}
