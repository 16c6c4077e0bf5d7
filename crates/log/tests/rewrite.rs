// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A copy of a log with other names of user code has all else that the log has.

mod common;

use common::events;
use klogger_log::code::{Code, File, Function, Place, UserStack};
use klogger_log::reader::Reader;
use klogger_log::writer::rewrite::with_code;
use std::path::Path;

fn code(name: &str) -> Code {
    let function = Function { name: name.into(), offset: 3, source: String::new() };
    Code {
        data: Vec::new(),
        files: vec![File { path: "/bin/x".into(), build_id: "ab".into(), loads: Vec::new() }],
        stacks: vec![UserStack {
            number: 65537,
            pid: 1,
            cut: false,
            frames: vec![Place::File(0, 16)],
            ..UserStack::default()
        }],
        names: [((0, 16), vec![function])].into(),
    }
}

fn copy(log: &Reader, code: &Code) -> Vec<u8> {
    let mut bytes = Vec::new();
    with_code(log, code, &mut bytes).unwrap();
    bytes
}

#[test]
fn all_blocks_are_copied_and_the_names_are_the_new_ones() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs/v3.klog");
    let old = Reader::open(path).unwrap();
    let first = Reader::from_bytes(copy(&old, &code("first"))).unwrap();
    assert_eq!(first.code(), code("first"));
    let second = copy(&first, &code("second"));
    assert_eq!(second, copy(&old, &code("second")));
    let second = Reader::from_bytes(second).unwrap();
    assert_eq!(second.code(), code("second"));
    for log in [&first, &second] {
        assert!(log.is_complete() && log.damage().is_empty() && log.check_rest().is_empty());
        assert_eq!(log.ledger(&[]), old.ledger(&[]));
        assert_eq!(log.blocks().len(), old.blocks().len() + 1);
        assert_eq!(events(log), events(&old));
    }
    assert!(!events(&old).is_empty());
}
