// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The layers of ARCHITECTURE.md: a crate depends only on those below it, and engines do not depend
//! on each other.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From the bottom to the top. Crates of one layer do not depend on each other.
const LAYERS: &[&[&str]] = &[
    &["klogger-schema", "klogger-os", "klogger-c-layout"],
    &["klogger-log", "klogger-codegen"],
    &["klogger-programs"],
    &["klogger-export", "klogger-toolchain", "klogger-ring", "klogger-symbolize"],
    &["klogger-engines"],
    &["klogger-recorder"],
    &["klogger"],
];

/// Crates for programs that log, and the crates that they may depend on. No other crate depends on
/// them.
const OF_PROGRAMS: &[(&str, &[&str])] = &[
    ("klogger-user", &["klogger-c-layout"]),
    ("klogger-user-build", &["klogger-codegen", "klogger-schema"]),
    (
        "klogger-user-example",
        &["klogger-user", "klogger-user-build", "klogger-codegen", "klogger-schema"],
    ),
];

/// Engines, each with a file and a folder of this name.
const ENGINES: &[&str] = &["bpf", "kernel", "user"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crates of the workspace, each with the klogger crates that it depends on, including those for
/// tests.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let words = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).current_dir(root()).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value["name"].as_str().unwrap().to_string();
    let of = |package: &Value| {
        let names = package["dependencies"].as_array().unwrap().iter().map(text);
        let own = text(package);
        let klogger = names.filter(|n| n.starts_with("klogger") && *n != own).collect();
        (own, klogger)
    };
    metadata["packages"].as_array().unwrap().iter().map(of).collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn no_crate_depends_on_one_of_its_layer_or_above() {
    let crates = dependencies();
    assert!(crates.len() > 10, "{crates:?}");
    for (name, known) in &crates {
        let Some(own) = layer(name) else {
            let may = OF_PROGRAMS.iter().find(|(program, _)| program == name);
            let (_, may) = may.unwrap_or_else(|| panic!("{name} has no layer"));
            assert!(known.iter().all(|k| may.contains(&k.as_str())), "{name}: {known:?}");
            continue;
        };
        for other in known {
            assert!(layer(other).is_some_and(|o| o < own), "{name} depends on {other}");
        }
    }
}

/// Rust files at `path` and below it.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|e| sources(&e.unwrap().path())).collect();
    }
    path.extension().filter(|e| *e == "rs").map(|_| path.into()).into_iter().collect()
}

/// Names that follow `prefix` in the code of `text`: `bpf` for `crate::bpf::load`, and all names of
/// `crate::{bpf, kernel}`.
fn modules<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let behind = code.flat_map(|line| line.split(prefix).skip(1));
    let words = |rest: &'a str| {
        let all = if rest.starts_with('{') { usize::MAX } else { 1 };
        let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter(|word| !word.is_empty()).take(all).collect::<Vec<_>>()
    };
    behind.flat_map(words).collect()
}

#[test]
fn modules_are_found() {
    let text =
        "// crate::no\nuse crate::bpf::load;\nuse crate::{kernel, user::{x}};\nuse b::crate;";
    assert_eq!(modules(text, "crate::"), ["bpf", "kernel", "user", "x"]);
}

#[test]
fn no_engine_imports_another() {
    let folder = root().join("crates/engines/src");
    for engine in ENGINES {
        let (file, below) = (folder.join(format!("{engine}.rs")), folder.join(engine));
        let sources = [sources(&file), sources(&below)].concat();
        assert!(sources.len() > 3, "{engine}: {sources:?}");
        for source in sources {
            let text = fs::read_to_string(&source).unwrap();
            for module in modules(&text, "crate::") {
                let other = ENGINES.iter().any(|e| e != engine && *e == module);
                assert!(!other, "{}: crate::{module}", source.display());
            }
        }
    }
}

/// The recorder uses engines through the trait and the registry. Rescue is an exception: it reads
/// the engines' own formats.
#[test]
fn the_recorder_names_no_engine() {
    let folder = root().join("crates/recorder/src");
    for source in sources(&folder) {
        let text = fs::read_to_string(&source).unwrap();
        if source.starts_with(folder.join("rescue")) {
            continue;
        }
        let named = modules(&text, "klogger_engines::").into_iter().find(|m| ENGINES.contains(m));
        assert!(named.is_none(), "{}: {named:?}", source.display());
    }
}
