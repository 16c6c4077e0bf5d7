// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Types of fields as both versions of CTF describe them.

use klogger_log::preamble::Preamble;
use klogger_schema::layout::FieldLayout;
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};
use std::collections::HashSet;

/// An integer, and the names of its values.
pub struct Integer {
    pub bits: u32,
    pub signed: bool,
    /// In which it is shown: 8, 10 or 16.
    pub base: u32,
    pub boolean: bool,
    /// (value, its name); values and names are unique.
    pub labels: Vec<(i128, String)>,
    /// The values are bits that can be combined.
    pub flags: bool,
}

pub enum Type {
    One(Integer),
    Array(u32, Integer),
    /// Ends with NUL.
    Text,
}

impl Integer {
    pub fn unsigned(bits: u32) -> Integer {
        Integer { bits, signed: false, base: 10, boolean: false, labels: Vec::new(), flags: false }
    }
}

pub fn of_field(field: &FieldLayout, preamble: &Preamble) -> Type {
    let integer = || Integer {
        signed: field.scalar.signed(),
        base: match field.decode {
            Decode::Hex | Decode::Code | Decode::Data => 16,
            Decode::Octal => 8,
            _ => 10,
        },
        boolean: field.scalar == Scalar::Bool,
        ..Integer::unsigned(field.scalar.size() * 8)
    };
    match field.shape {
        Shape::One => Type::One(labelled(integer(), field, preamble)),
        Shape::Array(n) => Type::Array(n, integer()),
        Shape::Text(_) | Shape::Tail(_) => Type::Text,
    }
}

fn labelled(mut integer: Integer, field: &FieldLayout, preamble: &Preamble) -> Integer {
    let Decode::Table(name) = &field.decode else { return integer };
    if let Some(decoding) =
        preamble.decodings.iter().find(|d| d.name == *name).filter(|_| !integer.boolean)
    {
        integer.labels = labels(decoding, integer.bits, integer.signed);
        integer.flags = decoding.flags;
    }
    integer
}

fn labels(decoding: &Decoding, bits: u32, signed: bool) -> Vec<(i128, String)> {
    let (least, most) = if signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    let (mut values, mut names) = (HashSet::new(), HashSet::new());
    let mut labels = Vec::new();
    for (value, name) in &decoding.values {
        let value = if signed { i128::from(*value as i64) } else { i128::from(*value) };
        if (least..=most).contains(&value) && values.insert(value) {
            let name = if names.insert(name) { name.clone() } else { format!("{name} ({value})") };
            labels.push((value, name));
        }
    }
    // A name for no bits: a reader would not show the value otherwise.
    if decoding.flags && values.insert(0) {
        labels.push((0, "0".into()));
    }
    labels
}
