// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/logs/stacks.klog`: a log with stacks of the kernel and of programs. It was made once, by
//! [`make`], and must stay readable: `KLOGGER_BLESS=1` makes it only if it is missing.

mod common;

use common::{START, cpu, layout, thread};
use klogger_log::builder::RecordBuilder;
use klogger_log::code::{Code, File, Function, Place, Raw, UserStack, Word, WordIs};
use klogger_log::format::Kind;
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Clock, Host, Preamble};
use klogger_log::reader::Reader;
use klogger_log::stacks::{End, Side};
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::model::{Decode, Scalar, Shape};
use std::fs;
use std::path::Path;

const PROGRAM: u32 = 0;
const LIBC: u32 = 1;
const MADE: u32 = 2;
/// After the numbers of kernel stacks.
const FIRST: u64 = 65_537;

fn preamble() -> Preamble {
    let stack = |name| (name, Scalar::U32, Shape::One, Decode::Stack);
    let clock = Clock {
        name: "monotonic".into(),
        source: "tsc".into(),
        start_ns: START,
        ..Clock::default()
    };
    Preamble {
        klogger: "0.1.0".into(),
        engine: "bpf".into(),
        host: Host { machine: "x86_64".into(), cpus: vec![0], ..Host::default() },
        clock,
        scope: "all".into(),
        events: vec![layout(20, "WROTE", &[thread("tid"), stack("kernel"), stack("program")])],
        ..Preamble::default()
    }
}

fn code() -> Code {
    let file = |path: &str, build_id: &str, loads| File {
        path: path.into(),
        build_id: build_id.into(),
        loads,
    };
    let function = |name: &str, offset, source: &str| Function {
        name: name.into(),
        offset,
        source: source.into(),
    };
    let at = Place::File;
    let stack = |number, frames| UserStack { number, pid: 10, frames, ..UserStack::default() };
    Code {
        data: Vec::new(),
        files: vec![
            file("/opt/a program", "00ff12", vec![(0x1000, 0x800, 0x40_1000)]),
            file("/usr/lib/libc.so.6", "ab34", vec![(0x2_6000, 0x15_0000, 0x2_6000)]),
            file("[perf map 10]", "", Vec::new()),
        ],
        stacks: vec![
            // Complete, with an inlined function.
            UserStack {
                gaps: Some(vec![]),
                ..stack(FIRST, vec![at(LIBC, 0x2_7000), at(PROGRAM, 0x1233), at(LIBC, 0x2_724f)])
            },
            // A caller is missing, and the end as well.
            UserStack {
                gaps: Some(vec![0]),
                ..stack(
                    FIRST + 1,
                    vec![at(LIBC, 0x2_7000), at(MADE, 0x7f00), Place::Address(0xfff)],
                )
            },
            // It was not looked whether there is one; the stack is too deep.
            UserStack {
                cut: true,
                raw: Some(Raw {
                    words: vec![Word { at: 40, is: WordIs::Return(at(PROGRAM, 0x1300)) }],
                    ..Raw::default()
                }),
                ..stack(FIRST + 2, vec![at(PROGRAM, 0x1400), at(PROGRAM, 0x1233)])
            },
        ],
        names: [
            ((LIBC, 0x2_7000), vec![function("write", 0x10, "")]),
            (
                (PROGRAM, 0x1233),
                vec![function("main", 0x33, "/src/a b.c:9"), function("put", 0, "/src/a b.c:4")],
            ),
            ((MADE, 0x7f00), vec![function("LazyCompile:f a.js:1", 0x10, "")]),
        ]
        .into(),
    }
}

fn make() -> Vec<u8> {
    let preamble = preamble();
    let mut records = Vec::new();
    for n in 0..3 {
        RecordBuilder::new(&preamble.events[0])
            .int("tid", 10)
            .int("kernel", if n == 0 { 7 } else { 0 })
            .int("program", (FIRST + n) as i64)
            .finish(START + 100 * n, &mut records);
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let block = EventBlock { origin: cpu(0), time_base: START, first_serial: 0, records: &records };
    writer.block(&block).unwrap();
    writer.stacks("7 vfs_write+0x1f ksys_write+0x52 ffffffff81000000\n").unwrap();
    writer.code(&code()).unwrap();
    let ledger = Ledger { end_ns: Some(START + 1000), ..Ledger::default() };
    writer.finish(&ledger).unwrap();
    bytes
}

#[test]
fn the_log_with_stacks_is_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs/stacks.klog");
    if std::env::var_os("KLOGGER_BLESS").is_some() && !path.exists() {
        fs::write(&path, make()).unwrap();
    }
    let log = Reader::open(&path).unwrap();
    assert!(log.is_complete() && log.damage().is_empty() && log.check_rest().is_empty());
    assert!(log.blocks().iter().any(|block| block.header.kind == Kind::Code));
    assert_eq!(log.preamble(), &preamble());
    assert_eq!(log.code(), code());
    let stacks = log.stacks();
    let found = |number| stacks.find(number).unwrap();
    assert_eq!((found(7).side, found(FIRST).side), (Side::Kernel, Side::User));
    let whole = [7, FIRST, FIRST + 1, FIRST + 2].map(|number| found(number).is_whole());
    assert_eq!(whole, [true, true, false, false]);
    assert_eq!((found(FIRST + 1).end, found(FIRST + 2).end), (End::Lost, End::Deep));
}
