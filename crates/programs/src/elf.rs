// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads an ELF file in pieces: programs can be large, and are untrusted.

use crate::Wrong;
use ::elf::abi;
use ::elf::endian::LittleEndian;
use ::elf::file::{Class, FileHeader, parse_ident};
use ::elf::parse::ParseAt;
use ::elf::section::SectionHeader;
use ::elf::segment::ProgramHeader;
use std::fs::File;
use std::os::unix::fs::FileExt;

const HEADER: usize = 64;
/// Bytes of one section at most; the symbols of the largest programs have some hundred MiB.
const SECTION_MAX: u64 = 1 << 30;
/// Of the names of sections: a file has at most 65535.
const SECTION_NAMES_MAX: u64 = 16 << 20;

/// The machine for which programs of this one are compiled.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = abi::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = abi::EM_AARCH64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = abi::EM_NONE;

/// A section, and the texts to which its entries refer.
pub struct Named {
    pub entries: Vec<u8>,
    pub names: Vec<u8>,
}

/// A program or library.
pub struct Elf {
    pub file: File,
    length: u64,
    /// ET_EXEC, ET_DYN ...
    pub kind: u16,
    sections: Vec<SectionHeader>,
    names: Vec<u8>,
    segments: Vec<ProgramHeader>,
}

impl Elf {
    /// `Err`: why it is not a program of this machine.
    pub fn open(file: File) -> Result<Elf, Wrong> {
        let length = file.metadata().map_err(|e| Wrong::new(format!("cannot read it: {e}")))?.len();
        let mut bytes = [0; HEADER];
        let there = read_some(&file, &mut bytes)?;
        let header = header(&bytes[..there])?;
        let (sections, names, segments) = Default::default();
        let mut elf = Elf { file, length, kind: header.e_type, sections, names, segments };
        elf.sections = elf.table(header.e_shoff, header.e_shnum, header.e_shentsize)?;
        elf.segments = elf.table(header.e_phoff, header.e_phnum, header.e_phentsize)?;
        let names = elf.sections.get(usize::from(header.e_shstrndx)).copied();
        if names.is_some_and(|s| s.sh_size > SECTION_NAMES_MAX) {
            return Err(damaged());
        }
        elf.names = names.map(|s| elf.data(&s)).transpose()?.unwrap_or_default();
        Ok(elf)
    }

    fn table<T: ParseAt>(&self, offset: u64, count: u16, size: u16) -> Result<Vec<T>, Wrong> {
        if count > 0 && T::validate_entsize(Class::ELF64, size.into()).is_err() {
            return Err(damaged());
        }
        let bytes = self.read(offset, u64::from(count) * u64::from(size))?;
        let mut at = 0;
        let parse = |_| T::parse_at(LittleEndian, Class::ELF64, &mut at, &bytes);
        (0..count).map(parse).collect::<Result<_, _>>().map_err(|_| damaged())
    }

    /// Bytes of the file.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Wrong> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length);
        if end.is_none() || length > SECTION_MAX {
            return Err(damaged());
        }
        let mut bytes = vec![0; length as usize];
        let read = self.file.read_exact_at(&mut bytes, offset);
        read.map(|()| bytes).map_err(|e| Wrong::new(format!("cannot read it: {e}")))
    }

    fn data(&self, section: &SectionHeader) -> Result<Vec<u8>, Wrong> {
        match section.sh_type {
            abi::SHT_NOBITS => Ok(Vec::new()),
            _ => self.read(section.sh_offset, section.sh_size),
        }
    }

    fn name(&self, section: &SectionHeader) -> &[u8] {
        text_at(&self.names, section.sh_name)
    }

    /// A section by its name, with its address.
    pub fn section(&self, name: &str) -> Result<Option<(u64, Vec<u8>)>, Wrong> {
        let found = self.sections.iter().find(|s| self.name(s) == name.as_bytes());
        found.map(|s| Ok((s.sh_addr, self.data(s)?))).transpose()
    }

    pub fn has_section(&self, name: &str) -> bool {
        self.sections.iter().any(|s| self.name(s) == name.as_bytes())
    }

    /// A section of this type, and the one to which it refers: symbols and their names.
    pub fn with_names(&self, kind: u32) -> Result<Option<Named>, Wrong> {
        let Some(section) = self.sections.iter().find(|s| s.sh_type == kind) else {
            return Ok(None);
        };
        let names = self.sections.get(section.sh_link as usize).ok_or_else(damaged)?;
        Ok(Some(Named { entries: self.data(section)?, names: self.data(names)? }))
    }

    /// Bytes of what [`Elf::with_names`] reads.
    pub fn size_with_names(&self, kind: u32) -> u64 {
        let Some(section) = self.sections.iter().find(|s| s.sh_type == kind) else { return 0 };
        let names = self.sections.get(section.sh_link as usize).map_or(0, |s| s.sh_size);
        section.sh_size.saturating_add(names)
    }

    /// All sections of this type, one after the other, up to so many bytes.
    pub fn all_of(&self, kind: u32, most: u64) -> Result<Vec<u8>, Wrong> {
        let of_kind = || self.sections.iter().filter(|s| s.sh_type == kind);
        let size = of_kind().fold(0u64, |sum, s| sum.saturating_add(s.sh_size));
        if size > most {
            return Err(damaged());
        }
        let mut all = Vec::new();
        for section in of_kind() {
            all.extend(self.data(section)?);
        }
        Ok(all)
    }

    /// The segments of this type.
    pub fn segments_of(&self, kind: u32) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(move |s| s.p_type == kind)
    }

    /// Whether it has the names of functions that other files do not call.
    pub fn has_symbols(&self) -> bool {
        self.sections.iter().any(|s| s.sh_type == abi::SHT_SYMTAB)
    }

    /// Where in the file the byte is that is loaded at this address; `code`: it must be executable.
    pub fn offset_of(&self, address: u64, code: bool) -> Option<u64> {
        let has = |s: &&ProgramHeader| {
            s.p_type == abi::PT_LOAD
                && (!code || s.p_flags & abi::PF_X != 0)
                && (s.p_vaddr..s.p_vaddr.saturating_add(s.p_memsz)).contains(&address)
        };
        let segment = self.segments.iter().find(has)?;
        (address - segment.p_vaddr).checked_add(segment.p_offset)
    }

    /// Whether a program that is loaded has something at this address.
    pub fn is_loaded(&self, address: u64) -> bool {
        let has = |s: &ProgramHeader| {
            s.p_type == abi::PT_LOAD && address.wrapping_sub(s.p_vaddr) < s.p_memsz
        };
        self.segments.iter().any(has)
    }

    /// The code from `address` on, `length` bytes or up to the end of its segment.
    pub fn code(&self, address: u64, length: u64) -> Result<Vec<u8>, Wrong> {
        let has = |s: &&ProgramHeader| {
            s.p_type == abi::PT_LOAD
                && (s.p_vaddr..s.p_vaddr.saturating_add(s.p_filesz)).contains(&address)
        };
        let segment = self.segments.iter().find(has).ok_or_else(damaged)?;
        let skip = address - segment.p_vaddr;
        let offset = segment.p_offset.checked_add(skip).ok_or_else(damaged)?;
        self.read(offset, length.min(segment.p_filesz - skip))
    }

    /// The number that the linker has given to this program, in hexadecimal.
    pub fn build_id(&self) -> Option<String> {
        let (_, note) = self.section(".note.gnu.build-id").ok()??;
        let id = note.get(16..).filter(|id| !id.is_empty())?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn read_some(file: &File, to: &mut [u8]) -> Result<usize, Wrong> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) => return Err(Wrong::new(format!("cannot read it: {e}"))),
        }
    }
    Ok(done)
}

fn header(bytes: &[u8]) -> Result<FileHeader<LittleEndian>, Wrong> {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line);
        let program = line.split_whitespace().next().unwrap_or_default().to_string();
        let error = Wrong::new("it is a script, and has no functions for probes");
        return Err(match program.starts_with('/') {
            true => error.help(format!("name the program that runs it: {program}:FUNCTION")),
            false => error,
        });
    }
    let not_elf = || Wrong::new("it is not a program (no ELF file)");
    if bytes.len() < 20 || !bytes.starts_with(&abi::ELFMAGIC) {
        return Err(not_elf());
    }
    let own = "name a program or library of this machine";
    match (bytes[4], bytes[5], u16::from_le_bytes([bytes[18], bytes[19]])) {
        (abi::ELFCLASS32, ..) => {
            return Err(Wrong::new("it is a program of 32 bits").help(
                "probes in programs of 32 bits are not supported: their arguments are passed \
             differently",
            ));
        }
        (_, abi::ELFDATA2LSB, MACHINE) => {}
        _ => return Err(Wrong::new("it is a program for another kind of machine").help(own)),
    }
    let ident = parse_ident::<LittleEndian>(bytes).map_err(|_| not_elf())?;
    let tail = bytes.get(abi::EI_NIDENT..).ok_or_else(not_elf)?;
    FileHeader::parse_tail(ident, tail).map_err(|_| damaged())
}

/// The text that ends with a NUL.
pub fn text_at(bytes: &[u8], at: u32) -> &[u8] {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    &rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())]
}

pub fn damaged() -> Wrong {
    Wrong::new("its ELF structures are damaged")
}
