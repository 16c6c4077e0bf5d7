// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The facts that a program writes into its file before the file is visible: read once, and
//! checked.

use super::layout::*;
use klogger_ring::EVENTS_MAX;
use klogger_ring::clock::Source;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Why a file is not used.
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is gone, or was not made by klogger.
    Foreign,
    /// It cannot be recorded.
    Refused(String),
    /// It has contents that no klogger header writes.
    Hostile(String),
}

/// What the program wrote into the control page before the file was visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// As the program sees itself, in its pid namespace.
    pub pid: u32,
    /// Inode of that namespace; 0: not known.
    pub pid_ns: u64,
    pub token: u64,
    pub size: usize,
    pub slots: usize,
    pub ring_size: usize,
    pub clock: Source,
    pub flight: bool,
    pub schemata: Vec<ModuleSchema>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSchema {
    pub base: u16,
    pub events: u16,
    pub name: String,
    pub text: String,
}

/// `PID.IMAGE`
pub fn is_name(name: &str) -> bool {
    let digits = |text: &str, radix| {
        !text.is_empty() && text.len() <= 20 && text.chars().all(|c| c.is_digit(radix))
    };
    name.split_once('.').is_some_and(|(pid, image)| digits(pid, 10) && digits(image, 16))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Reads the facts from a file of `length` bytes.
pub fn read_facts(file: &File, length: u64) -> Result<Facts, Unusable> {
    let mut page = [0; CONTROL];
    file.read_exact_at(&mut page, 0).map_err(|_| Unusable::Hostile("it is too short".into()))?;
    let hostile = |why: &str| Err(Unusable::Hostile(why.into()));
    if u64_at(&page, AT_MAGIC) != MAGIC {
        return hostile("it has no valid header");
    }
    let version = u32_at(&page, AT_VERSION);
    if version != VERSION {
        let text = format!(
            "its layout has version {version}, and this klogger knows {VERSION}; rebuild the \
             program"
        );
        return Err(Unusable::Refused(text));
    }
    let (slots, ring_size) =
        (u32_at(&page, AT_SLOTS) as usize, u32_at(&page, AT_RING_SIZE) as usize);
    if slots > SLOTS_MAX
        || !ring_size.is_power_of_two()
        || !(RING_MIN..=RING_MAX).contains(&(ring_size as u64))
    {
        return hostile("the size of its rings is invalid");
    }
    let size = SLOTS_AT + slots * slot_bytes(ring_size);
    let said = [u64_at(&page, AT_SIZE), u64_at(&page, AT_SLOTS_AT), u64_at(&page, AT_SLOT_STRIDE)];
    if length != size as u64 || said != [size as u64, SLOTS_AT as u64, slot_bytes(ring_size) as u64]
    {
        return hostile("its layout is invalid");
    }
    let clock = match u32_at(&page, AT_CLOCK) {
        0 => Source::Monotonic,
        1 => Source::Tsc,
        _ => return hostile("its clock is unknown"),
    };
    Ok(Facts {
        pid: u32_at(&page, AT_PID),
        pid_ns: u64_at(&page, AT_PID_NS),
        token: u64_at(&page, AT_TOKEN),
        size,
        slots,
        ring_size,
        clock,
        flight: u32_at(&page, AT_FLIGHT) != 0,
        schemata: read_schemata(file, &page)?,
    })
}

fn read_schemata(file: &File, page: &[u8]) -> Result<Vec<ModuleSchema>, Unusable> {
    let count = u32_at(page, AT_SCHEMATA) as usize;
    if count > SCHEMATA_MAX {
        return Err(Unusable::Hostile(format!("it has {count} schemata")));
    }
    let mut list: Vec<ModuleSchema> = Vec::new();
    let (mut next, mut length) = (LOCAL_BASE, 0);
    for at in (0..count).map(|n| AT_SCHEMA + n * SCHEMA) {
        let (base, events) = (u32_at(page, at + SCHEMA_BASE), u32_at(page, at + SCHEMA_EVENTS));
        let end = base.saturating_add(events);
        if base < next || end as usize > EVENTS_MAX {
            return Err(Unusable::Hostile("the ids of its schemata overlap".into()));
        }
        next = end;
        let name: Vec<u8> =
            page[at + SCHEMA_NAME..at + SCHEMA].iter().copied().take_while(|c| *c != 0).collect();
        let text = read_text(
            file,
            u32_at(page, at + SCHEMA_TEXT_AT) as usize,
            u32_at(page, at + SCHEMA_LENGTH) as usize,
        )?;
        let (Ok(name), Ok(text)) = (String::from_utf8(name), String::from_utf8(text)) else {
            return Err(Unusable::Hostile("one of its schemata is not text".into()));
        };
        length += text.len();
        if !is_identifier(&name) || length > TEXT_MAX {
            return Err(Unusable::Hostile(
                "one of its schemata has an invalid name or length".into(),
            ));
        }
        list.push(ModuleSchema { base: base as u16, events: events as u16, name, text });
    }
    Ok(list)
}

/// Names are printed on terminals, which interpret control characters.
fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| is_part(c) && !c.is_ascii_digit()) && name.chars().all(is_part)
}

fn read_text(file: &File, at: usize, length: usize) -> Result<Vec<u8>, Unusable> {
    if at < AT_FIRST_TEXTS || length > TEXT_MAX || at + length > AT_LOST {
        return Err(Unusable::Hostile("the text of a schema is at an invalid offset".into()));
    }
    let mut text = vec![0; length];
    let hostile = |_| Unusable::Hostile("it is too short".into());
    file.read_exact_at(&mut text, at as u64).map(|()| text).map_err(hostile)
}

#[cfg(test)]
mod tests {
    use super::{is_identifier, is_name};

    #[test]
    fn names_of_files() {
        assert!(is_name("1.0") && is_name("4194304.1f2e3d4c5b6a"));
        for bad in
            ["", "1", "1.", ".1", ".1.2", "1.g", "a.1", "1.1.1", "1.1 ", "1.12345678901234567890a"]
        {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn names_of_schemata() {
        assert!(["a", "_", "Ab_9"].iter().all(|name| is_identifier(name)));
        for bad in ["", "9a", "a-b", "a b", "\x1b[2J", "a\n", "\u{e4}"] {
            assert!(!is_identifier(bad), "{bad:?}");
        }
    }
}
