// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Lists the functions and static probes of a program or library.

use crate::static_probes::static_probes;
use crate::symbols::{demangled, functions};
use crate::which::Programs;
use klogger_codegen::Refusal;
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
        let cannot = |wrong: crate::Wrong| wrong.of(&opened.path);
        let mut statics = BTreeMap::new();
        for probe in static_probes(&opened.elf).map_err(cannot)? {
            let count = probe.arguments.split('@').count() - 1;
            statics.insert(format!("{program}:{}:{}", probe.provider, probe.name), count);
        }
        found.extend(statics.into_iter().map(|(name, arguments)| InFile {
            kind: ProbeKind::Usdt,
            name,
            written: None,
            arguments: Some(arguments),
        }));
        // The loader calls an IFUNC, not the program.
        let all = functions(&opened.elf).map_err(cannot)?;
        let mut names: Vec<String> =
            all.into_iter().filter(|f| !f.chooses).map(|f| f.name).collect();
        names.dedup();
        found.extend(names.into_iter().map(|name| InFile {
            kind: ProbeKind::User,
            written: demangled(&name),
            name: format!("{program}:{name}"),
            arguments: None,
        }));
    }
    Ok(found)
}
