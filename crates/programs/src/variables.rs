// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The variables of a program, by their addresses.

use crate::Wrong;
use crate::elf::{Elf, Named, text_at};
use crate::symbols::demangled;
use elf::abi;
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::parse::ParsingIterator;
use elf::symbol::Symbol;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What is at an address of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// As its author wrote it.
    pub name: String,
    /// How far behind its beginning the address is.
    pub offset: u64,
}

/// The file with the debug information of a program, by its build id: in the first of the folders
/// that has it.
pub fn debug_file(build_id: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    let path = |folder: &PathBuf| folder.join(format!(".build-id/{first}/{rest}.debug"));
    folders.iter().map(path).find(|path| path.is_file())
}

/// The variables of a program at these addresses, as the file has them before it is loaded.
///
/// `debug`: folders with debug information, for programs without a symbol table. An address outside
/// of all segments is `None`; one at which the file names no variable is `Some(None)`.
///
/// # Errors
/// Why the file is no program of this machine, or what is damaged in it.
pub fn variables(
    program: File,
    debug: &[PathBuf],
    addresses: &[u64],
) -> Result<Vec<Option<Option<Variable>>>, Wrong> {
    let program = Elf::open(program)?;
    let mut search = Search::new(addresses);
    let separate = || {
        let path = debug_file(&program.build_id()?, debug)?;
        Elf::open(open(&path)?).ok()
    };
    let with_table = if program.has_symbols() { None } else { separate() };
    search.table(with_table.as_ref().unwrap_or(&program), abi::SHT_SYMTAB)?;
    search.table(&program, abi::SHT_DYNSYM)?;
    let found = addresses.iter().map(|address| {
        let is_loaded = program.is_loaded(*address);
        is_loaded.then(|| search.found(*address))
    });
    Ok(found.collect())
}

fn open(path: &Path) -> Option<File> {
    klogger_os::files::open_regular(path).ok()
}

/// The nearest symbol to each address so far.
struct Search {
    /// Ascending, each once.
    addresses: Vec<u64>,
    best: Vec<Option<Best>>,
}

/// Ordered by how well it says what is at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Best {
    /// The one that begins last is the innermost.
    begin: u64,
    smaller: std::cmp::Reverse<u64>,
    /// Of several names of a variable, those that are for everybody.
    plain: std::cmp::Reverse<usize>,
    name: std::cmp::Reverse<Vec<u8>>,
}

impl Search {
    fn new(addresses: &[u64]) -> Search {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        let best = vec![None; addresses.len()];
        Search { addresses, best }
    }

    fn table(&mut self, elf: &Elf, table: u32) -> Result<(), Wrong> {
        let Some(Named { entries, names }) = elf.with_names(table)? else { return Ok(()) };
        let all: ParsingIterator<LittleEndian, Symbol> =
            ParsingIterator::new(LittleEndian, Class::ELF64, &entries);
        all.filter(is_variable).for_each(|symbol| self.symbol(&symbol, &names));
        Ok(())
    }

    fn symbol(&mut self, symbol: &Symbol, names: &[u8]) {
        let (begin, size) = (symbol.st_value, symbol.st_size);
        let from = self.addresses.partition_point(|address| *address < begin);
        let within = self.addresses[from..].iter().take_while(|a| **a - begin < size).count();
        for best in &mut self.best[from..from + within] {
            if best.as_ref().is_some_and(|best| best.begin > begin) {
                continue;
            }
            let name = text_at(names, symbol.st_name);
            let name = name[..name.len().min(NAME_MAX)].to_vec();
            let plain = name.iter().take_while(|byte| **byte == b'_').count();
            let (smaller, plain) = (std::cmp::Reverse(size), std::cmp::Reverse(plain));
            let this = Best { begin, smaller, plain, name: std::cmp::Reverse(name) };
            if !this.name.0.is_empty() && best.as_ref().is_none_or(|best| *best < this) {
                *best = Some(this);
            }
        }
    }

    fn found(&self, address: u64) -> Option<Variable> {
        let at = self.addresses.binary_search(&address).ok()?;
        let Best { begin, name, .. } = self.best[at].as_ref()?;
        let symbol = String::from_utf8_lossy(&name.0);
        let is_mangled = symbol.starts_with("_Z") || symbol.starts_with("_R");
        let written = if is_mangled { demangled(&symbol) } else { None };
        let name = written.unwrap_or_else(|| symbol.into_owned());
        Some(Variable { name, offset: address - begin })
    }
}

/// Of a name, the rest is left out.
const NAME_MAX: usize = 4096;

/// Variables of threads have no address in the file; symbols without a type, as assemblers make
/// them, count if they have a size.
fn is_variable(symbol: &Symbol) -> bool {
    let kind = symbol.st_symtype();
    let is_data = matches!(kind, abi::STT_OBJECT | abi::STT_COMMON | abi::STT_NOTYPE);
    is_data && !symbol.is_undefined() && symbol.st_shndx != abi::SHN_ABS && symbol.st_size > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    /// (begin, size, name)
    fn model(symbols: &[(u64, u64, String)], address: u64) -> Option<Variable> {
        let has = |(begin, size, _): &&(u64, u64, String)| {
            address >= *begin && u128::from(address) < u128::from(*begin) + u128::from(*size)
        };
        let key = |(begin, size, name): &(u64, u64, String)| {
            let plain = name.chars().take_while(|c| *c == '_').count();
            (u64::MAX - begin, *size, plain, name.clone())
        };
        let (begin, _, name) = symbols.iter().filter(has).min_by_key(|s| key(s))?;
        Some(Variable { name: name.clone(), offset: address - begin })
    }

    fn symbol(names: &mut Vec<u8>, (begin, size, name): &(u64, u64, String)) -> Symbol {
        let st_name = names.len() as u32;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let mut bytes = st_name.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[abi::STT_OBJECT, 0, 1, 0]);
        bytes.extend_from_slice(&begin.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        ParsingIterator::new(LittleEndian, Class::ELF64, &bytes).next().unwrap()
    }

    proptest::proptest! {
        #[test]
        fn variables_are_found_as_a_slow_search_finds_them(
            symbols in proptest::collection::vec(
                (
                    proptest::prop_oneof![0u64..64, (u64::MAX - 64)..=u64::MAX],
                    proptest::prop_oneof![1u64..32, (u64::MAX - 64)..=u64::MAX],
                    "_?[ab]",
                ),
                0..24,
            ),
            addresses in proptest::collection::vec(
                proptest::prop_oneof![0u64..96, (u64::MAX - 64)..=u64::MAX],
                0..24,
            ),
        ) {
            let mut search = Search::new(&addresses);
            for one in &symbols {
                let mut names = Vec::new();
                let symbol = symbol(&mut names, one);
                search.symbol(&symbol, &names);
            }
            for address in addresses {
                proptest::prop_assert_eq!(search.found(address), model(&symbols, address));
            }
        }
    }

    fn program(folder: &Path) -> PathBuf {
        let (source, path) = (folder.join("a.c"), folder.join("a"));
        let text = "int lock = 1; static long table[8]; static __thread int own; int main(void) \
                    { own = 1; return lock + (int)*(volatile long *)&table[1] + own; }";
        std::fs::write(&source, text).unwrap();
        let made = Command::new("cc").args(["-O0", "-o"]).arg(&path).arg(&source).status();
        assert!(made.unwrap().success());
        path
    }

    fn address(path: &Path, name: &str) -> u64 {
        crate::symbols::variable(&Elf::open(File::open(path).unwrap()).unwrap(), name).unwrap()
    }

    #[test]
    fn variables_of_a_program_with_and_without_symbols() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(folder.path());
        let (lock, table) = (address(&path, "lock"), address(&path, "table"));
        let at = [lock, lock + 3, table, table + 63, u64::MAX, lock + (1 << 30)];
        let find = || variables(File::open(&path).unwrap(), &[], &at).unwrap();
        let variable = |name: &str, offset| Some(Some(Variable { name: name.into(), offset }));
        let named = [variable("lock", 0), variable("lock", 3), variable("table", 0)];
        assert_eq!(find()[..3], named);
        assert_eq!(find()[3..], [variable("table", 63), None, None]);
        assert!(Command::new("strip").arg(&path).status().unwrap().success());
        assert_eq!(find(), [Some(None), Some(None), Some(None), Some(None), None, None]);
    }

    #[test]
    fn forged_files_have_variables_or_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(folder.path());
        let whole = std::fs::read(&path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // Counts, offsets and sizes of the tables of segments and sections.
        for at in (32..64).chain(64..120) {
            for value in [0xff, 0x7f, 0, 1] {
                file.write_at(&[value], at).unwrap();
                let _ = variables(File::open(&path).unwrap(), &[], &[0, 0x4000, u64::MAX]);
                file.write_at(&whole[at as usize..=at as usize], at).unwrap();
            }
        }
        let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap());
        for at in sections..whole.len() as u64 {
            file.write_at(&[0xff], at).unwrap();
            let _ = variables(File::open(&path).unwrap(), &[], &[0, 0x4000, u64::MAX]);
            file.write_at(&whole[at as usize..=at as usize], at).unwrap();
        }
        assert!(variables(File::open(&path).unwrap(), &[], &[0]).is_ok());
    }
}
