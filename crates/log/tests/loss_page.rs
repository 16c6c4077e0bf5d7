// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The list of causes in `docs/loss.md` equals the table of `Key`.
//!
//! `KLOGGER_BLESS=1 cargo test --release -p klogger-log --test loss_page` rewrites it.

use klogger_log::ledger::Key;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- keys: generated from crates/log/src/ledger/key.rs by\n     \
                     KLOGGER_BLESS=1 cargo test --release -p klogger-log --test loss_page -->\n";
const END: &str = "<!-- end of keys -->\n";

/// The words of a text in lines of at most 98 columns, all but the first one indented.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 98 {
            lines += &line;
            lines.push('\n');
            line = String::from(" ");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

/// A list: a table with texts of this length would be wider than a terminal.
fn list() -> String {
    let item = |key: &Key| {
        let about = key.info();
        let what =
            format!("- `{}` ({}): {}.", about.name, about.severity.word(), about.explanation);
        let remedy = format!("  Remedy: {}.", about.remedy);
        wrapped(&what) + "  " + &wrapped(&remedy)
    };
    let items: String = Key::ALL.iter().map(item).collect();
    format!("{BEGIN}\n{items}\n{END}")
}

#[test]
fn the_page_has_every_cause() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/loss.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) =
        text.split_once(BEGIN).expect("docs/loss.md has the beginning of the list");
    let (found, after) = rest.split_once(END).expect("docs/loss.md has the end of the list");
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(&page, format!("{before}{}{after}", list())).unwrap();
        return;
    }
    assert!(
        format!("{BEGIN}{found}{END}") == list(),
        "docs/loss.md is not up to date: run with KLOGGER_BLESS=1"
    );
}
