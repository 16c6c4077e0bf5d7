// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The byte specification is the head of `format.rs`; `docs/log-format.md` is the same text, and
//! its example is correct.
//!
//! `KLOGGER_BLESS=1 cargo test -p klogger-log` rewrites the page.

mod common;

use common::layout;
use klogger_log::builder::RecordBuilder;
use klogger_log::format::VERSION;
use klogger_log::ledger::Ledger;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};
use std::fs;
use std::path::Path;

fn head() -> String {
    let lines = include_str!("../src/format.rs").lines().filter_map(|l| l.strip_prefix("//!"));
    lines.map(|l| l.strip_prefix(' ').unwrap_or(l).to_string() + "\n").collect()
}

#[test]
fn the_page_is_the_head_of_the_module() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/log-format.md");
    let note = "<!-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause -->\n\
                <!-- Made from the head of crates/log/src/format.rs: change it there, then \
                run\n     \
                KLOGGER_BLESS=1 cargo test -p klogger-log --test specification -->\n\n";
    let expected = format!("{note}{}", head());
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let found = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        found == expected,
        "docs/log-format.md is not the head of format.rs; run with KLOGGER_BLESS=1"
    );
}

#[test]
fn the_version_is_the_one_that_is_written() {
    let row = format!("| 7 | 1 | version of the format: {VERSION}; ");
    assert!(head().contains(&row), "no row begins with {row}");
    let older = format!("Version {} has", VERSION - 1);
    assert!(head().contains(&older), "what version {} differs in is missing", VERSION - 1);
}

#[test]
fn the_example_is_what_is_written() {
    let preamble =
        Preamble { events: vec![layout(1, "TICK", &[common::int("n")])], ..Preamble::default() };
    let mut records = Vec::new();
    RecordBuilder::new(&preamble.events[0]).int("n", 42).finish(4096, &mut records);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    writer
        .block(&EventBlock {
            origin: common::cpu(1),
            time_base: 4096,
            first_serial: 7,
            records: &records,
        })
        .unwrap();
    writer.finish(&Ledger::default()).unwrap();
    let block = Reader::from_bytes(bytes.clone()).unwrap().blocks()[0];
    let mut dump = String::new();
    for (i, row) in bytes[block.offset as usize..block.end() as usize].chunks(16).enumerate() {
        let hex: Vec<String> = row.iter().map(|b| format!("{b:02x}")).collect();
        dump += &format!("{:04x}  {}\n", i * 16, hex.join(" "));
    }
    assert!(head().contains(&dump), "the example should be\n{dump}");
}
