// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds which of the tracepoints in schemata a kernel's headers declare.

use super::tree::Tree;
use klogger_codegen::kernel::{Tracepoints, attach_points, find, question};
use klogger_os::Error;
use klogger_os::files::unless_absent;
use klogger_schema::model::{Schema, Target};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders with trace headers, and the prefix of their headers in `#include`.
fn folders(tree: &Tree) -> Vec<(String, String)> {
    let arch = format!("arch/{}/include/asm", tree.arch);
    [
        ("include/trace/events", "trace/events"),
        ("include/trace/misc", "trace/misc"),
        ("include/ras", "ras"),
    ]
    .map(|(folder, prefix)| (folder.to_string(), prefix.to_string()))
    .into_iter()
    .chain([(format!("{arch}/trace"), "asm/trace".to_string()), (arch, "asm".to_string())])
    .collect()
}

/// The tracepoints in all headers that mention one named in a schema. `work`: a folder for
/// temporary files.
pub(super) fn tracepoints(
    tree: &Tree,
    schemas: &[&Schema],
    work: &Path,
) -> Result<Tracepoints, Error> {
    let headers = candidates(tree, &wanted(schemas))?;
    if headers.is_empty() {
        return Ok(Tracepoints::new());
    }
    let cannot = |e| Error::new(format!("cannot write to a temporary folder: {e}"));
    fs::create_dir(work).map_err(cannot)?;
    fs::write(work.join("Kbuild"), "obj-m := places.o\n").map_err(cannot)?;
    fs::write(work.join("places.c"), question(&headers)).map_err(cannot)?;
    let output = tree.make(work, "places.i")?;
    let text = match output.status.success() {
        true => fs::read_to_string(work.join("places.i"))
            .map_err(|e| Error::new(format!("cannot read what make has written: {e}")))?,
        false => String::new(),
    };
    if text.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!("the headers of kernel {} cannot be used", tree.release))
            .help(format!("make says:\n{}", super::last_lines(&said))));
    }
    Ok(find(&text))
}

fn wanted<'a>(schemas: &[&'a Schema]) -> BTreeSet<&'a str> {
    let targets = schemas.iter().flat_map(|s| &s.probes).flat_map(|p| &p.targets);
    let declared = |t: &&Target| attach_points::of(t.kind).is_some_and(|row| row.in_headers);
    targets.filter(declared).filter(|t| !t.is_many()).map(|t| t.name.as_str()).collect()
}

/// Headers that mention a tracepoint. Macros may append the last part of its name: `_entry`, `_tp`.
fn candidates(tree: &Tree, wanted: &BTreeSet<&str>) -> Result<Vec<String>, Error> {
    let shorter = wanted.iter().filter_map(|name| name.rsplit_once('_').map(|(front, _)| front));
    let words: BTreeSet<&str> = wanted.iter().copied().chain(shorter).collect();
    let mut found = Vec::new();
    for (folder, prefix) in folders(tree) {
        let folder = tree.source.join(&folder);
        let cannot = |e| Error::new(format!("cannot read headers in {}: {e}", folder.display()));
        let Some(entries) = unless_absent(fs::read_dir(&folder)).map_err(cannot)? else { continue };
        for entry in entries {
            let path = entry.map_err(cannot)?.path();
            if path.extension().is_none_or(|e| e != "h") {
                continue;
            }
            // A link may lead nowhere.
            let text = unless_absent(fs::read(&path)).map_err(cannot)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            if text.contains("#define TRACE_SYSTEM") && mentions(&text, &words) {
                found.push(format!(
                    "{prefix}/{}",
                    path.file_name().unwrap_or_default().to_string_lossy()
                ));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn mentions(text: &str, words: &BTreeSet<&str>) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| words.contains(word))
}
