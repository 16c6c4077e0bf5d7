// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The few facts about an ELF file that say which file it is. The file is untrusted: sizes are
//! bounded, and nothing is assumed of it.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// In hexadecimal; empty if it has none.
    pub build_id: String,
    /// Of each segment with code: its offset in the file, its size, and its address.
    pub loads: Vec<(u64, u64, u64)>,
}

/// A part of a file that is mapped, or described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub kind: u32,
    flags: u32,
    /// In the file.
    pub offset: u64,
    pub address: u64,
    /// In the file.
    pub length: u64,
}

const HEADERS_MAX: usize = 256;
const NOTES_MAX: usize = 64 << 10;
const SEGMENT: usize = 56;
pub const LOAD: u32 = 1;
/// The index of the unwind tables.
pub const EH_FRAME: u32 = 0x6474_e550;
pub const X86_64: u16 = 62;
const NOTE: u32 = 4;
const EXECUTABLE: u32 = 1;
const BUILD_ID: u32 = 3;

/// The segments, and the machine. `None`: it is not an ELF file of 64 bits in the byte order of x86
/// and arm64.
pub fn segments(file: &File) -> Option<(u16, Vec<Segment>)> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size) = (long(&header, 32)?, usize::from(short(&header, 54)?));
    let count = usize::from(short(&header, 56)?).min(HEADERS_MAX);
    if size != SEGMENT {
        return None;
    }
    let mut segments = vec![0; count * SEGMENT];
    file.read_exact_at(&mut segments, table).ok()?;
    let segment = |bytes: &[u8; SEGMENT]| {
        Some(Segment {
            kind: word(bytes, 0)?,
            flags: word(bytes, 4)?,
            offset: long(bytes, 8)?,
            address: long(bytes, 16)?,
            length: long(bytes, 32)?,
        })
    };
    let segments = segments.as_chunks::<SEGMENT>().0.iter().map(segment).collect::<Option<_>>()?;
    Some((short(&header, 18)?, segments))
}

/// Where the program begins; of a library, 0 mostly.
pub fn entry(file: &File) -> Option<u64> {
    let mut header = [0; 32];
    file.read_exact_at(&mut header, 0).ok()?;
    long(&header, 24)
}

/// `None`: it has no segments that can be read.
pub fn facts(file: &File) -> Option<Facts> {
    let mut facts = Facts::default();
    for Segment { kind, flags, offset, address, length } in segments(file)?.1 {
        if kind == LOAD && flags & EXECUTABLE != 0 {
            facts.loads.push((offset, length, address));
        }
        if kind == NOTE && facts.build_id.is_empty() {
            let mut notes = vec![0; usize::try_from(length).ok()?.min(NOTES_MAX)];
            let read = file.read_exact_at(&mut notes, offset);
            facts.build_id = read.ok().and_then(|()| build_id(&notes)).unwrap_or_default();
        }
    }
    Some(facts)
}

/// The build id in a segment of notes.
fn build_id(mut notes: &[u8]) -> Option<String> {
    loop {
        let (name, length) = (word(notes, 0)? as usize, word(notes, 4)? as usize);
        let at = 12usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = at.checked_add(length)?;
        if word(notes, 8)? == BUILD_ID && notes.get(12..12 + name) == Some(b"GNU\0") {
            return Some(notes.get(at..end)?.iter().map(|b| format!("{b:02x}")).collect());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_code() {
        let facts = facts(&File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(!facts.loads.is_empty());
        assert!(facts.build_id.len() >= 16 || facts.build_id.is_empty());
    }

    #[test]
    fn a_note_is_found_after_others_and_a_forged_one_is_not() {
        let mut notes = vec![4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0];
        notes.extend_from_slice(b"GNU\0\x01\x02\0\0");
        notes.extend_from_slice(&[4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]);
        notes.extend_from_slice(b"GNU\0\xab\xcd\x01");
        assert_eq!(build_id(&notes).unwrap(), "abcd01");
        notes[24] = 0xff;
        assert_eq!(build_id(&notes), None);
        notes[20..24].fill(0xff);
        assert_eq!(build_id(&notes), None);
        let other = File::open("/proc/self/status").unwrap();
        assert_eq!(facts(&other), None);
    }
}
