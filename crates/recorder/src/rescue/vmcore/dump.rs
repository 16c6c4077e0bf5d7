// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads a memory image: an ELF file, as /proc/vmcore is under kdump, and as QEMU's
//! `dump-guest-memory` writes it. It is untrusted, and read in pieces.

use elf::abi::PT_LOAD;
use elf::endian::AnyEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::parse::{ParseAt, ParseError};
use elf::section::SectionHeader;
use elf::segment::{ProgramHeader, SegmentTable};
use klogger_engines::anchor::format::PAGE;
use klogger_os::Error;
use klogger_os::files::open_regular;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEADER: usize = 64;
/// Segments of one file, at most; a machine has some dozens, and makedumpfile makes a new one at
/// each hole.
const SEGMENTS_MAX: usize = 1 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 4 << 20;

pub struct Dump {
    file: File,
    /// Sorted by address.
    segments: Vec<Segment>,
}

/// A range of memory that is in the file.
struct Segment {
    address: u64,
    length: u64,
    offset: u64,
}

impl Dump {
    pub fn open(path: &Path) -> Result<Dump, Error> {
        let cannot = |e: io::Error| Error::new(format!("cannot read {}: {e}", path.display()));
        if path.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let file = open_regular(path).map_err(cannot)?;
        let mut head = [0; HEADER];
        let there = read_some(&file, 0, &mut head).map_err(cannot)?;
        if let Some(error) = other_format(path, &head[..there]) {
            return Err(error);
        }
        let segments = segments(&file, &head).map_err(|why| {
            Error::new(format!("{} is not a memory image: {why}", path.display())).help(
                "give the file that kdump made of /proc/vmcore (ELF, 64 bits), or that of QEMU's \
                 dump-guest-memory",
            )
        })?;
        Ok(Dump { file, segments })
    }

    /// Reads memory at an address; what the image does not contain is zero. Returns whether it
    /// contains all of it.
    pub fn read(&self, address: u64, to: &mut [u8]) -> bool {
        to.fill(0);
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done as u64) else { return false };
            let Some((offset, left)) = self.find(at) else { return false };
            let part = (to.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            if self.file.read_exact_at(&mut to[done..done + part], offset).is_err() {
                return false;
            }
            done += part;
        }
        true
    }

    /// The offset of an address in the file, and how many bytes follow it there.
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.segments.partition_point(|s| s.address <= address);
        // Segments may overlap: most images contain the kernel's text twice.
        let mut before = self.segments[..after].iter().rev().take(4);
        let segment = before.find(|s| address - s.address < s.length)?;
        let skip = address - segment.address;
        Some((segment.offset + skip, segment.length - skip))
    }

    /// Calls `see` with each page in the image.
    pub fn pages(&self, mut see: impl FnMut(u64, &[u8])) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        for s in &self.segments {
            let skip = s.address.next_multiple_of(PAGE as u64) - s.address;
            let mut at = skip;
            while at + PAGE as u64 <= s.length {
                let length = usize::try_from(s.length - at).unwrap_or(PIECE).min(PIECE);
                let got = read_some(&self.file, s.offset + at, &mut piece[..length])?;
                let whole = got / PAGE * PAGE;
                for n in (0..whole).step_by(PAGE) {
                    see(s.address + at + n as u64, &piece[n..n + PAGE]);
                }
                if whole == 0 {
                    break;
                }
                at += whole as u64;
            }
        }
        Ok(())
    }
}

/// Fills `to` from the file, up to the file's end.
fn read_some(file: &File, offset: u64, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Recognizes images that are not ELF.
fn other_format(path: &Path, head: &[u8]) -> Option<Error> {
    let what = match head {
        _ if head.starts_with(b"KDUMP   ") => "compressed by kdump (makedumpfile)",
        _ if head.starts_with(b"DISKDUMP") => "a diskdump",
        _ if head.starts_with(b"makedumpfile\0") => "a flattened file of makedumpfile",
        _ => return None,
    };
    Some(Error::new(format!("{} is {what}, but only ELF files can be read", path.display())).help(
        "let kdump save an ELF file the next time: 'makedumpfile -E -d 31 /proc/vmcore FILE', or \
         'cp /proc/vmcore FILE'",
    ))
}

fn segments(file: &File, head: &[u8; HEADER]) -> Result<Vec<Segment>, String> {
    let broken = |e: ParseError| e.to_string();
    let ident = parse_ident::<AnyEndian>(head).map_err(broken)?;
    if ident.1 != Class::ELF64 || ident.0 != AnyEndian::Little {
        return Err("it is not from a little-endian machine of 64 bits".into());
    }
    let header = FileHeader::parse_tail(ident, &head[elf::abi::EI_NIDENT..]).map_err(broken)?;
    if header.e_type != elf::abi::ET_CORE {
        return Err("it is an ELF file, but not a core".into());
    }
    ProgramHeader::validate_entsize(header.class, header.e_phentsize.into()).map_err(broken)?;
    let count = count(file, &header)?;
    if count > SEGMENTS_MAX {
        return Err(format!("it has {count} parts"));
    }
    let mut table = vec![0; count * usize::from(header.e_phentsize)];
    let there = read_some(file, header.e_phoff, &mut table).map_err(|e| e.to_string())?;
    let parts = SegmentTable::new(header.endianness, header.class, &table[..there]);
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let mut segments: Vec<Segment> = parts.iter().filter_map(|p| segment(p, length)).collect();
    segments.sort_by_key(|s| (s.address, s.length));
    // Each byte of the file is read once, except the kernel's text, which is in it under two
    // addresses.
    let all = segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.length));
    match segments[..] {
        [] => Err("it holds no memory".into()),
        _ if all > length.saturating_mul(2) => Err("its parts overlap".into()),
        _ => Ok(segments),
    }
}

/// If the number of segments does not fit into the header, it is in the first section.
fn count(file: &File, header: &FileHeader<AnyEndian>) -> Result<usize, String> {
    if header.e_phnum != elf::abi::PN_XNUM {
        return Ok(header.e_phnum.into());
    }
    let mut section = [0; 64];
    let there = read_some(file, header.e_shoff, &mut section).map_err(|e| e.to_string())?;
    let first = SectionHeader::parse_at(header.endianness, header.class, &mut 0, &section[..there]);
    Ok(first.map_err(|e| e.to_string())?.sh_info as usize)
}

/// The part of a segment that is in a file of so many bytes.
fn segment(p: ProgramHeader, file: u64) -> Option<Segment> {
    let length = p.p_filesz.min(file.checked_sub(p.p_offset)?);
    let sound = p.p_paddr.checked_add(length)?.checked_add(PAGE as u64).is_some();
    let segment = Segment { address: p.p_paddr, length, offset: p.p_offset };
    (p.p_type == PT_LOAD && length > 0 && sound).then_some(segment)
}
