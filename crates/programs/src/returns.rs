// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The returns of functions. The kernel replaces the address that a call returns to, on the stack
//! of the program. Who reads that address ends the program: Go, when it moves a stack, and what
//! looks for the handler of an exception. In such files the return instructions are probed instead.

use crate::elf::{Elf, Named, text_at};
use crate::find::{Location, location};
use crate::instructions;
use crate::symbols::Function;
use elf::abi;
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::parse::ParsingIterator;
use elf::symbol::Symbol;
use klogger_codegen::Refusal;
use klogger_schema::model::ProbeKind;

/// Sections that the linker of Go makes.
const GO: [&str; 3] = [".gopclntab", ".go.buildinfo", ".note.go.buildid"];
/// What throws exceptions in C++, and panics in Rust, and what finds their handlers.
const THROWS: [&str; 5] = [
    "__cxa_throw",
    "__gxx_personality_v0",
    "_Unwind_RaiseException",
    "rust_eh_personality",
    "rust_panic",
];

/// How the returns of a file's functions are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// The kernel replaces the address; or no returns are probed at all.
    Replaced,
    /// At return instructions, for this reason.
    Probed(&'static str),
}

impl Returns {
    pub fn of(elf: &Elf, kind: ProbeKind) -> Returns {
        if kind != ProbeKind::ReturnUser {
            return Returns::Replaced;
        }
        if GO.iter().any(|name| elf.has_section(name)) {
            return Returns::Probed("Go moves its stacks");
        }
        match names_one_of(elf, &THROWS) {
            true => Returns::Probed("exceptions may pass it"),
            false => Returns::Replaced,
        }
    }

    pub fn are_probed(self) -> bool {
        self != Returns::Replaced
    }

    /// The return instructions of a function.
    pub fn locations(
        self,
        elf: &Elf,
        path: &str,
        name: &str,
        f: &Function,
    ) -> Result<Vec<Location>, Refusal> {
        let code = elf.code(f.address, f.size).map_err(|wrong| wrong.of(path))?;
        let why = match instructions::returns(&code) {
            _ if f.size == 0 => "the size of its code is not known",
            instructions::Returns::Unknown(why) => why,
            instructions::Returns::At(all) => {
                let what = format!("a return of '{name}'");
                let one = |plus| location(elf, path, &what, f.address + plus, Some(f));
                return all.into_iter().map(one).collect();
            }
        };
        Err(self.refused(path, name, why))
    }

    fn refused(self, path: &str, name: &str, why: &str) -> Refusal {
        let Returns::Probed(reason) = self else { unreachable!("the kernel replaces the address") };
        Refusal::of_this_kernel(
            format!("cannot probe the return of '{name}' of {path}: {why}"),
            Some(format!(
                "{reason}, so that a return address which the kernel has replaced ends the \
                 program, and klogger has to find its return instructions; probe its beginning, or \
                 a function that calls it"
            )),
        )
    }
}

/// Whether the file defines such a symbol, or uses that of another file.
fn names_one_of(elf: &Elf, wanted: &[&str]) -> bool {
    [abi::SHT_DYNSYM, abi::SHT_SYMTAB].into_iter().any(|table| {
        let Ok(Some(Named { entries, names })) = elf.with_names(table) else { return false };
        let mut all: ParsingIterator<LittleEndian, Symbol> =
            ParsingIterator::new(LittleEndian, Class::ELF64, &entries);
        all.any(|s| wanted.iter().any(|name| text_at(&names, s.st_name) == name.as_bytes()))
    })
}
