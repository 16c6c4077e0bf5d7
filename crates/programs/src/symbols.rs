// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The functions of a program, by their names.

use crate::Wrong;
use crate::elf::{Elf, Named, text_at};
use crate::packed;
use elf::abi;
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::parse::ParsingIterator;
use elf::symbol::Symbol;
use klogger_codegen::Refusal;
use std::fs::File;
use std::path::PathBuf;

/// A function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// As the compiler has written it; in some symbol tables its version follows.
    pub name: String,
    pub address: u64,
    /// Bytes of code; 0 if it is not known.
    pub size: u64,
    /// The loader calls it to choose among implementations.
    pub chooses: bool,
    /// Other files can call it.
    pub exported: bool,
}

impl Function {
    /// Whether its code has this address.
    pub fn has(&self, address: u64) -> bool {
        (self.address..self.address.saturating_add(self.size.max(1))).contains(&address)
    }
}

/// All functions: of the symbol table, of the dynamic symbols, and of stripped programs those that
/// distributions keep beside them, or packed in them.
pub fn functions(elf: &Elf) -> Result<Vec<Function>, Wrong> {
    let all = of_table(elf, abi::SHT_DYNSYM)?;
    let own = of_table(elf, abi::SHT_SYMTAB)?;
    if !own.is_empty() {
        return Ok(sorted(all, own));
    }
    let mut elsewhere = [of_separate_file, packed::functions].into_iter().map(|look| look(elf));
    let found = elsewhere.find(|found| !found.is_empty()).unwrap_or_default();
    Ok(sorted(all, found))
}

fn sorted(mut all: Vec<Function>, more: Vec<Function>) -> Vec<Function> {
    all.extend(more);
    // Exported ones first, so that each is kept as such.
    all.sort_by(|a, b| (&a.name, a.address, b.exported).cmp(&(&b.name, b.address, a.exported)));
    all.dedup_by(|a, b| a.name == b.name && a.address == b.address);
    all
}

fn of_separate_file(elf: &Elf) -> Vec<Function> {
    let Some(id) = elf.build_id().filter(|id| id.len() > 2) else { return Vec::new() };
    let (folder, rest) = id.split_at(2);
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug"));
    let Ok(file) = File::open(path) else { return Vec::new() };
    let Ok(other) = Elf::open(file) else { return Vec::new() };
    of_table(&other, abi::SHT_SYMTAB).unwrap_or_default()
}

/// The address of a variable.
pub fn variable(elf: &Elf, name: &str) -> Option<u64> {
    [abi::SHT_SYMTAB, abi::SHT_DYNSYM].into_iter().find_map(|table| {
        let Named { entries, names } = elf.with_names(table).ok()??;
        let mut all: ParsingIterator<LittleEndian, Symbol> =
            ParsingIterator::new(LittleEndian, Class::ELF64, &entries);
        let is_it = |s: &Symbol| !s.is_undefined() && text_at(&names, s.st_name) == name.as_bytes();
        all.find(is_it).map(|symbol| symbol.st_value)
    })
}

pub(crate) fn of_table(elf: &Elf, table: u32) -> Result<Vec<Function>, Wrong> {
    let Some(Named { entries, names }) = elf.with_names(table)? else { return Ok(Vec::new()) };
    let exported = table == abi::SHT_DYNSYM;
    let function = |symbol: Symbol| {
        let kind = symbol.st_symtype();
        let is_function = kind == abi::STT_FUNC || kind == abi::STT_GNU_IFUNC;
        let name = text_at(&names, symbol.st_name);
        (is_function && !symbol.is_undefined() && !name.is_empty()).then(|| Function {
            name: String::from_utf8_lossy(name).into_owned(),
            address: symbol.st_value,
            size: symbol.st_size,
            chooses: kind == abi::STT_GNU_IFUNC,
            exported,
        })
    };
    let all: ParsingIterator<LittleEndian, Symbol> =
        ParsingIterator::new(LittleEndian, Class::ELF64, &entries);
    Ok(all.filter_map(function).collect())
}

/// The functions with this name. Several: versions of one that is exported, all of which can be
/// called.
pub fn find<'a>(name: &str, all: &'a [Function]) -> Result<Vec<&'a Function>, Refusal> {
    let plain = |f: &&Function| f.name.split('@').next() == Some(name) || f.name == name;
    let mut found: Vec<&Function> = all.iter().filter(plain).collect();
    let is_exported = found.iter().any(|f| f.exported);
    found.retain(|f| f.exported || !is_exported);
    if found.is_empty() {
        found = all.iter().filter(|f| is_written(name, &f.name)).collect();
    }
    found.sort_by_key(|f| f.address);
    // Several names of one function.
    found.dedup_by_key(|f| f.address);
    match found.len() > 1 && !is_exported {
        true => Err(several(name, &found)),
        false => Ok(found),
    }
}

/// Whether `name` is how the author of a function wrote its name, of which the compiler made
/// `symbol`.
fn is_written(name: &str, symbol: &str) -> bool {
    name.contains("::") && demangled(symbol).is_some_and(|written| written == name)
}

/// A name of C++ or Rust as its author wrote it: without parameters, and without what the compiler
/// added to tell it from others.
pub fn demangled(symbol: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{rust:#}"));
    }
    let written = cpp_demangle::Symbol::new(symbol).ok()?;
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    written.demangle_with_options(&options).ok()
}

fn several(name: &str, found: &[&Function]) -> Refusal {
    let one = |f: &&Function| match f.name == name {
        true => format!("{:#x}", f.address),
        false => f.name.clone(),
    };
    let mut names: Vec<String> = found.iter().take(SHOWN).map(one).collect();
    if found.len() > SHOWN {
        names.push("...".into());
    }
    Refusal::of_this_kernel(
        format!("{} functions are called '{name}'", found.len()),
        Some(format!("write one of these after the colon: {}", names.join(", "))),
    )
}

/// How many of several a message names.
const SHOWN: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of 8 bytes.
    pub(crate) fn function(name: &str, address: u64, exported: bool) -> Function {
        Function { name: name.into(), address, size: 8, chooses: false, exported }
    }

    fn addresses(name: &str, all: &[Function]) -> Vec<u64> {
        find(name, all).unwrap().into_iter().map(|f| f.address).collect()
    }

    #[test]
    fn versions_of_an_exported_function_are_all_meant() {
        let all = [
            function("wait@@V2", 0x20, true),
            function("wait@V1", 0x10, true),
            function("wait", 0x30, false),
            function("waits", 0x40, true),
        ];
        assert_eq!(addresses("wait", &all), [0x10, 0x20]);
        assert_eq!(addresses("wait@V1", &all), [0x10]);
        assert_eq!(addresses("none", &all), []);
        // Names of one function.
        let all = [function("read", 0x10, true), function("__read", 0x10, true)];
        assert_eq!(addresses("read", &all), [0x10]);
    }

    #[test]
    fn functions_of_one_file_each_that_have_the_same_name() {
        let all = [function("usage", 0x10, false), function("usage", 0x20, false)];
        let refusal = find("usage", &all).unwrap_err();
        assert_eq!(refusal.message, "2 functions are called 'usage'");
        let help = "write one of these after the colon: 0x10, 0x20";
        assert_eq!(refusal.help.as_deref(), Some(help));
    }

    #[test]
    fn names_as_in_the_source() {
        let all = [
            function("_ZN4Tree3addEi", 0x10, true),
            function("_ZN4Tree3addEl", 0x20, true),
            function("_ZN4Tree5clearEv", 0x30, false),
            function("_ZN5serve7request17h0123456789abcdefE", 0x40, false),
        ];
        assert_eq!(addresses("Tree::clear", &all), [0x30]);
        assert_eq!(addresses("serve::request", &all), [0x40]);
        assert_eq!(addresses("_ZN4Tree3addEl", &all), [0x20]);
        // Two that differ in their parameters.
        let refusal = find("Tree::add", &all).unwrap_err();
        assert_eq!(refusal.message, "2 functions are called 'Tree::add'");
        let help = "write one of these after the colon: _ZN4Tree3addEi, _ZN4Tree3addEl";
        assert_eq!(refusal.help.as_deref(), Some(help));
    }
}
