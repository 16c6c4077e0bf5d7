// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks the layouts in a preamble, and those that come later: fields lie within their records, so
//! that code which reads records by them does as well, and ids and names are unique.

use crate::preamble::{Addition, Preamble};
use klogger_schema::layout::{EventLayout, HEADER_SIZE, RECORD_MAX};
use klogger_schema::model::Decoding;
use std::collections::{BTreeMap, HashSet};

/// What a log describes.
#[derive(Default)]
pub(crate) struct Known {
    ids: HashSet<u16>,
    /// Of events, in lower case.
    names: HashSet<String>,
    schemas: HashSet<String>,
    pub decodings: BTreeMap<String, Decoding>,
}

impl Known {
    /// The error says what is wrong.
    pub fn new(preamble: &Preamble) -> Result<Known, String> {
        let mut known = Known::default().events(&preamble.events)?;
        known.schemas = preamble.schemas.iter().map(|s| s.name.clone()).collect();
        known.decodings = preamble.decodings.iter().map(|d| (d.name.clone(), d.clone())).collect();
        Ok(known)
    }

    /// The new parts of `addition`, for [`Known::extend`]. The error says what contradicts the
    /// rest.
    pub fn check(&self, addition: &Addition) -> Result<Known, String> {
        let mut new = self.events(&addition.events)?;
        for schema in &addition.schemas {
            if self.schemas.contains(&schema.name) || !new.schemas.insert(schema.name.clone()) {
                return Err(format!("two schemata have the name {:?}", schema.name));
            }
        }
        for decoding in &addition.decodings {
            match self.decodings.get(&decoding.name).or(new.decodings.get(&decoding.name)) {
                Some(old) if old == decoding => {}
                Some(_) => {
                    return Err(format!(
                        "two different decodings have the name {:?}",
                        decoding.name
                    ));
                }
                None => drop(new.decodings.insert(decoding.name.clone(), decoding.clone())),
            }
        }
        Ok(new)
    }

    pub fn extend(&mut self, new: Known) {
        self.ids.extend(new.ids);
        self.names.extend(new.names);
        self.schemas.extend(new.schemas);
        self.decodings.extend(new.decodings);
    }

    /// The ids and names of `events`, if they are valid and new.
    fn events(&self, events: &[EventLayout]) -> Result<Known, String> {
        let mut new = Known::default();
        for event in events {
            if event.id == 0 || self.ids.contains(&event.id) || !new.ids.insert(event.id) {
                return Err(format!(
                    "event {} has an id that is invalid or in use: {}",
                    event.name, event.id
                ));
            }
            let name = event.name.to_ascii_lowercase();
            if !is_name(&name) || self.names.contains(&name) || !new.names.insert(name) {
                return Err(format!("the event name {:?} is invalid or in use", event.name));
            }
            check_event(event).map_err(|why| format!("event {}: {why}", event.name))?;
        }
        Ok(new)
    }
}

fn check_event(event: &EventLayout) -> Result<(), String> {
    if !(HEADER_SIZE..=RECORD_MAX).contains(&event.fixed) {
        return Err(format!("its size is {} bytes", event.fixed));
    }
    let mut names = HashSet::new();
    let mut lengths = HEADER_SIZE;
    for field in &event.fields {
        let (_, size) = field.shape.align_and_size(field.scalar);
        let end = field.offset.checked_add(size);
        if field.offset < HEADER_SIZE || end.is_none_or(|end| end > event.fixed) {
            return Err(format!("field {} lies outside of the record", field.name));
        }
        if !is_name(&field.name) || !names.insert(field.name.to_ascii_lowercase()) {
            return Err(format!("the field name {:?} is invalid or in use", field.name));
        }
        if let Some(most) = field.shape.tail_max() {
            if field.offset < lengths || most > RECORD_MAX {
                return Err(format!("the string {} lies outside of its place", field.name));
            }
            lengths = field.offset + size;
        }
    }
    Ok(())
}

/// Names become those of files and columns.
fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 128
}
