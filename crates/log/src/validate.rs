// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks the layouts in a preamble, so that whoever reads records by them stays within the records.

use crate::preamble::Preamble;
use klogger_schema::layout::{EventLayout, HEADER_SIZE, RECORD_MAX};
use klogger_schema::model::Shape;
use std::collections::HashSet;

/// Says what is wrong, if something is.
pub(crate) fn check(preamble: &Preamble) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut names = HashSet::new();
    for event in &preamble.events {
        if event.id == 0 || !ids.insert(event.id) {
            return Err(format!("event {} has an id, {}, that it cannot have", event.name, event.id));
        }
        if !is_name(&event.name) || !names.insert(event.name.to_ascii_lowercase()) {
            return Err(format!("two events, or none, can be called {:?}", event.name));
        }
        check_event(event).map_err(|why| format!("event {}: {why}", event.name))?;
    }
    Ok(())
}

fn check_event(event: &EventLayout) -> Result<(), String> {
    if !(HEADER_SIZE..=RECORD_MAX).contains(&event.fixed) {
        return Err(format!("its size is {} bytes", event.fixed));
    }
    let mut tails = 0;
    let mut names = HashSet::new();
    for field in &event.fields {
        let (_, size) = field.shape.align_and_size(field.scalar);
        let end = field.offset.checked_add(size);
        if field.offset < HEADER_SIZE || end.is_none_or(|end| end > event.fixed) {
            return Err(format!("field {} lies outside of the record", field.name));
        }
        if !is_name(&field.name) || !names.insert(field.name.to_ascii_lowercase()) {
            return Err(format!("two fields, or none, can be called {:?}", field.name));
        }
        match field.shape {
            Shape::Tail => tails += 1,
            Shape::One | Shape::Array(_) | Shape::Text(_) => {}
        }
    }
    if tails > 1 { Err("it has more than one string".into()) } else { Ok(()) }
}

/// Names become those of files and columns.
fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 128
}
