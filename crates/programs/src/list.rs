// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Lists the functions and static probes of a program or library.

use crate::elf::Elf;
use crate::instructions::{self, Hit};
use crate::static_probes::static_probes;
use crate::symbols::{Function, demangled, functions};
use crate::which::{Opened, Programs};
use klogger_codegen::Refusal;
use klogger_os::uprobes;
use klogger_schema::model::ProbeKind;
use std::collections::BTreeMap;

/// A place of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFile {
    pub kind: ProbeKind,
    /// As a probe names it, with the program.
    pub name: String,
    /// As its author wrote it, if the compiler made another name of that.
    pub written: Option<String>,
    /// How many arguments a static probe has.
    pub arguments: Option<usize>,
    /// What the kernel does at a hit; None: it depends on the kernel, or cannot be probed, or a
    /// static probe has several places, at different instructions.
    pub hit: Option<Hit>,
}

/// Whether a word means a program rather than a part of a name: a path, or a library's name.
pub fn is_program(word: &str) -> bool {
    word.starts_with('/') || word.starts_with("lib")
}

/// All functions and static probes of a program.
///
/// # Errors
///
/// If it is not a program of this machine.
pub fn list(programs: &Programs, program: &str) -> Result<Vec<InFile>, Refusal> {
    let mut found = Vec::new();
    for opened in programs.open(program)? {
        found.extend(statics(program, &opened)?);
        let all = functions(&opened.elf).map_err(|wrong| wrong.of(&opened.path))?;
        // The loader calls an IFUNC, not the program.
        let mut all: Vec<Function> = all.into_iter().filter(|f| !f.chooses).collect();
        all.dedup_by(|a, b| a.name == b.name);
        found.extend(all.into_iter().map(|f| InFile {
            kind: ProbeKind::User,
            written: demangled(&f.name),
            name: format!("{program}:{}", f.name),
            arguments: None,
            hit: hit(&opened.elf, f.address),
        }));
    }
    Ok(found)
}

fn statics(program: &str, opened: &Opened) -> Result<impl Iterator<Item = InFile>, Refusal> {
    let mut by_name: BTreeMap<String, (usize, Option<Hit>)> = BTreeMap::new();
    for probe in static_probes(&opened.elf).map_err(|wrong| wrong.of(&opened.path))? {
        let count = probe.arguments.split('@').count() - 1;
        let hit = hit(&opened.elf, probe.address);
        let name = format!("{program}:{}:{}", probe.provider, probe.name);
        let of_all = by_name.entry(name).or_insert((count, hit));
        *of_all = (count, hit.filter(|_| hit == of_all.1));
    }
    Ok(by_name.into_iter().map(|(name, (arguments, hit))| InFile {
        kind: ProbeKind::Usdt,
        name,
        written: None,
        arguments: Some(arguments),
        hit,
    }))
}

/// What the kernel does at a hit of a probe at this address.
fn hit(elf: &Elf, address: u64) -> Option<Hit> {
    let offset = elf.offset_of(address, true)?;
    let code = elf.code(address, INSTRUCTION_MAX).ok()?;
    match instructions::unfit(&code) {
        Some(_) => None,
        None => instructions::hit(&code, offset, uprobes::optimises()),
    }
}

/// Bytes.
const INSTRUCTION_MAX: u64 = 15;
