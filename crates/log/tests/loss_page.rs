// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of causes in `docs/loss.md` is that of `Key`.
//!
//! `KLOGGER_BLESS=1 cargo test -p klogger-log --test loss_page` writes it anew.

use klogger_log::ledger::Key;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- keys: made from crates/log/src/ledger.rs; KLOGGER_BLESS=1 cargo test -p klogger-log --test loss_page -->\n";
const END: &str = "<!-- end of keys -->\n";

fn table() -> String {
    let row = |key: &Key| {
        let about = key.about();
        format!(
            "| `{}` | {} | {} | {} |\n",
            about.name,
            about.severity.word(),
            about.explanation,
            about.remedy
        )
    };
    let rows: String = Key::ALL.iter().map(row).collect();
    format!("{BEGIN}| key | severity | what happened | remedy |\n|---|---|---|---|\n{rows}{END}")
}

#[test]
fn the_page_has_every_cause() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/loss.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/loss.md has the table's beginning");
    let (found, after) = rest.split_once(END).expect("docs/loss.md has the table's end");
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(&page, format!("{before}{}{after}", table())).unwrap();
        return;
    }
    assert!(
        format!("{BEGIN}{found}{END}") == table(),
        "docs/loss.md is not up to date: run with KLOGGER_BLESS=1"
    );
}
