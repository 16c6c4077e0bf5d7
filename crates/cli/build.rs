// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The pages of the schema language as one text, for its man page: in the order in which the first
//! page names them.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let first = read(&docs.join("schema-language.md"));
    let mut whole = first.clone();
    let links = first.split("](language/").skip(1);
    for page in links.filter_map(|rest| rest.split_once(')').map(|(page, _)| page)) {
        whole.push('\n');
        whole += &one_level_down(&read(&docs.join("language").join(page)));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("schema-language.md"), whole).expect("OUT_DIR can be written");
}

fn read(path: &Path) -> String {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The title of a page is a section of the whole; code blocks are indented, and begin no line.
fn one_level_down(page: &str) -> String {
    let is_title = |line: &str| line.starts_with('#');
    let line = |line: &str| format!("{}{line}\n", if is_title(line) { "#" } else { "" });
    page.lines().map(line).collect()
}
