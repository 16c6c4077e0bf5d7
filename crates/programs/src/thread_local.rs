// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the threads of a process have a variable of their own that a program or library exports.
//!
//! The variables of a program, and of libraries that are loaded with it, are in one block beside
//! the thread pointer. Those of a program have the same place in it in each process; those of a
//! library have one that the loader notes in the memory of the process, for the code that uses the
//! variable. A library that is loaded later may get a block of its own, of which the loader notes
//! the number.

use crate::Wrong;
use crate::elf::{Elf, Named, damaged, text_at};
use elf::abi;
use elf::dynamic::Dyn;
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::parse::ParsingIterator;
use elf::relocation::Rela;
use elf::segment::ProgramHeader;
use elf::symbol::Symbol;
use std::fs::File;

/// Bytes of the dynamic symbols with their names, and of the relocations, that are looked at. A
/// file of a few bytes on the disk may be as large as it likes.
const TABLE_MAX: u64 = 128 << 20;
/// Places of a file where the loader notes the same.
const NOTES_MAX: usize = 16;
/// Segments with code: linkers make one.
const CODE_MAX: usize = 16;
/// In <elf.h>: the program can be loaded anywhere, and is no library.
const DF_1_PIE: u64 = 0x0800_0000;

/// A variable of each thread, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLocal {
    pub access: Access,
    /// Of each segment with code: the offset in the file, the address, and the length.
    code: Vec<(u64, u64, u64)>,
}

/// How the variable is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// So far from the thread pointer, as a number of 64 bits that wraps around.
    Fixed(u64),
    /// Somewhere in the memory of the process.
    Noted(Vec<Note>),
}

/// What the loader notes, and at which address of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// How far the variable is from the thread pointer.
    Offset(u64),
    /// A function, and its argument: that number, or the address of a module, an offset and a
    /// generation.
    Descriptor(u64),
    /// The number of a module, and the offset in the block of its variables; or the latter is this.
    Module(u64, Option<u64>),
}

impl ThreadLocal {
    /// Where the file begins in the memory of a process that has mapped code of it, from this
    /// offset on, at `start`.
    pub fn base(&self, start: u64, offset: u64) -> Option<u64> {
        let has = |(at, _, length): &&(u64, u64, u64)| {
            // What is mapped begins with a page.
            offset <= *at && at - offset < 1 << 16 || offset > *at && offset - at < *length
        };
        let (at, address, _) = self.code.iter().find(has)?;
        Some(start.wrapping_add(*at).wrapping_sub(offset).wrapping_sub(*address))
    }
}

/// The variable of this name that a program or library exports, of the size of a pointer; `None`:
/// it exports none.
///
/// # Errors
/// Why the file is no program of this machine, or what is damaged in it.
pub fn find(file: File, name: &str) -> Result<Option<ThreadLocal>, Wrong> {
    let elf = Elf::open(file)?;
    // Only a file with such variables has this segment.
    let Some(block) = elf.segments_of(abi::PT_TLS).next() else { return Ok(None) };
    let Some((number, value)) = exported(&elf, name)? else { return Ok(None) };
    if value.checked_add(8).is_none_or(|end| end > block.p_memsz) {
        return Err(damaged());
    }
    let access = match is_program(&elf)? {
        true => Access::Fixed(offset_in_program(block, value)?),
        false => Access::Noted(notes(&elf, number, value)?),
    };
    let is_code = |s: &&ProgramHeader| s.p_flags & abi::PF_X != 0;
    let code = elf.segments_of(abi::PT_LOAD).filter(is_code);
    let code: Vec<_> = code.map(|s| (s.p_offset, s.p_vaddr, s.p_filesz)).collect();
    if code.len() > CODE_MAX {
        return Err(damaged());
    }
    Ok(Some(ThreadLocal { access, code }))
}

/// The number of the dynamic symbol, and its value.
fn exported(elf: &Elf, name: &str) -> Result<Option<(u64, u64)>, Wrong> {
    if elf.size_with_names(abi::SHT_DYNSYM) > TABLE_MAX {
        return Err(damaged());
    }
    let Some(Named { entries, names }) = elf.with_names(abi::SHT_DYNSYM)? else { return Ok(None) };
    let all: ParsingIterator<LittleEndian, Symbol> =
        ParsingIterator::new(LittleEndian, Class::ELF64, &entries);
    let is_it = |s: &Symbol| {
        s.st_symtype() == abi::STT_TLS
            && !s.is_undefined()
            && s.st_size == 8
            && text_at(&names, s.st_name) == name.as_bytes()
    };
    Ok(all.enumerate().find(|(_, s)| is_it(s)).map(|(n, s)| (n as u64, s.st_value)))
}

/// Whether a process begins with it, so that its variables come first.
fn is_program(elf: &Elf) -> Result<bool, Wrong> {
    if elf.kind == abi::ET_EXEC {
        return Ok(true);
    }
    let Some(segment) = elf.segments_of(abi::PT_DYNAMIC).next() else { return Ok(false) };
    if segment.p_filesz > TABLE_MAX {
        return Err(damaged());
    }
    let bytes = elf.read(segment.p_offset, segment.p_filesz)?;
    let entries: ParsingIterator<LittleEndian, Dyn> =
        ParsingIterator::new(LittleEndian, Class::ELF64, &bytes);
    let entries = entries.take_while(|d| d.d_tag != abi::DT_NULL);
    let (mut is_pie, mut has_name) = (false, false);
    for entry in entries {
        is_pie |= entry.d_tag == abi::DT_FLAGS_1 && entry.d_val() & DF_1_PIE != 0;
        has_name |= entry.d_tag == abi::DT_SONAME;
    }
    // Older linkers do not mark programs. Some libraries can be run, but they have a name.
    Ok(is_pie || !has_name && elf.segments_of(abi::PT_INTERP).next().is_some())
}

/// On x86-64 the block of a program ends at the thread pointer, as its alignment allows.
fn offset_in_program(block: &ProgramHeader, value: u64) -> Result<u64, Wrong> {
    let align = block.p_align.max(1);
    if !align.is_power_of_two() {
        return Err(damaged());
    }
    let end = block.p_vaddr.wrapping_add(block.p_memsz);
    let size = block.p_memsz.wrapping_add(end.wrapping_neg() & (align - 1));
    Ok(value.wrapping_sub(size))
}

/// Where the loader notes where the variable is, for the code of the library itself.
fn notes(elf: &Elf, number: u64, value: u64) -> Result<Vec<Note>, Wrong> {
    let bytes = elf.all_of(abi::SHT_RELA, TABLE_MAX)?;
    let all: ParsingIterator<LittleEndian, Rela> =
        ParsingIterator::new(LittleEndian, Class::ELF64, &bytes);
    let mut found = Vec::new();
    for rela in all {
        let symbol = u64::from(rela.r_sym);
        // The linker has resolved what no other file can replace.
        let is_it = match symbol {
            0 => rela.r_addend.cast_unsigned() == value,
            _ => symbol == number && rela.r_addend == 0,
        };
        match rela.r_type {
            abi::R_X86_64_TPOFF64 if is_it => found.push(Note::Offset(rela.r_offset)),
            abi::R_X86_64_TLSDESC if is_it => found.push(Note::Descriptor(rela.r_offset)),
            // Another file may have the variable that the loader has chosen.
            abi::R_X86_64_DTPMOD64 if symbol == number => {
                found.push(Note::Module(rela.r_offset, None));
            }
            abi::R_X86_64_DTPMOD64 if symbol == 0 => {
                found.push(Note::Module(rela.r_offset, Some(value)));
            }
            _ => {}
        }
    }
    // A known distance first.
    found.sort_by_key(|note| matches!(note, Note::Module(..)));
    found.truncate(NOTES_MAX);
    Ok(found)
}
