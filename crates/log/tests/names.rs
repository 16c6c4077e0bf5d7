// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads over time, decoded values, and filters.

mod common;

use common::{RECORDER, START, comm, cpu, int, layout, log_of, preamble, record, thread};
use klogger_log::decode::Decoder;
use klogger_log::filter::Filter;
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::reader::Reader;
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};

/// Process 10 is there at the start, forks 20, which renames itself by exec and exits; its number
/// is used again.
fn story() -> Reader {
    let preamble = preamble();
    let mut recorder = Vec::new();
    let exists = record(&preamble, "PROCESS_EXISTS").int("pid", 10).int("tgid", 10).int("ppid", 1);
    exists.text("comm", b"shell").text("command", b"shell -i").finish(START + 5, &mut recorder);
    let mut first = Vec::new();
    let run = |pid: i64, time, out: &mut Vec<u8>| {
        record(&preamble, "RUN").int("pid", pid).int("prio", 100 + pid).finish(time, out)
    };
    run(10, START + 1, &mut first);
    record(&preamble, "PROCESS_FORK")
        .int("parent", 10)
        .int("pid", 20)
        .int("tgid", 20)
        .text("comm", b"shell")
        .finish(START + 10, &mut first);
    run(20, START + 11, &mut first);
    record(&preamble, "PROCESS_RENAME")
        .int("pid", 20)
        .text("comm", b"cc1")
        .finish(START + 20, &mut first);
    record(&preamble, "PROCESS_EXEC")
        .int("pid", 20)
        .int("old_pid", 20)
        .text("filename", b"/usr/lib/cc1-real")
        .finish(START + 21, &mut first);
    run(20, START + 22, &mut first);
    record(&preamble, "PROCESS_EXIT").int("pid", 20).finish(START + 30, &mut first);
    run(20, START + 31, &mut first);
    record(&preamble, "PROCESS_FORK")
        .int("parent", 10)
        .int("pid", 20)
        .int("tgid", 20)
        .text("comm", b"other")
        .finish(START + 40, &mut first);
    run(20, START + 41, &mut first);
    run(77, START + 42, &mut first);
    run(0, START + 43, &mut first);
    Reader::from_bytes(log_of(&preamble, &[(cpu(0), first), (RECORDER, recorder)])).unwrap()
}

#[test]
fn the_recorders_threads_have_names() {
    let named = |names: &[&str], pid: i64| {
        let mut preamble = preamble();
        preamble.recorder.tids = vec![7, 8];
        preamble.recorder.names = names.iter().map(|n| n.to_string()).collect();
        let mut records = Vec::new();
        let exists =
            record(&preamble, "PROCESS_EXISTS").int("pid", 8).int("tgid", 8).int("ppid", 1);
        exists.text("comm", b"other").text("command", b"").finish(START + 5, &mut records);
        let reader = Reader::from_bytes(log_of(&preamble, &[(RECORDER, records)])).unwrap();
        Processes::new(&reader).name(pid).map(|name| String::from_utf8_lossy(name).into_owned())
    };
    assert_eq!(named(&["klogger", "klogger/0"], 7).as_deref(), Some("klogger"));
    // A log of an older version.
    assert_eq!(named(&[], 7).as_deref(), Some("(recorder)"));
    // If the log has a name, that counts.
    assert_eq!((named(&[], 8).as_deref(), named(&[], 9)), (Some("other"), None));
}

/// The fields of the events for which a filter holds, as text.
fn chosen(reader: &Reader, filter: &str) -> Vec<String> {
    let filter = Filter::new(filter, reader.preamble(), START).unwrap();
    let decoder = Decoder::new(reader);
    let mut processes = Processes::new(reader);
    let mut merge = reader.merge(&Selection::default());
    let mut lines = Vec::new();
    while let Some(event) = merge.next() {
        processes.apply(&event);
        if filter.matches(&event, &decoder, &processes) {
            let mut text = Vec::new();
            decoder.show(&event, 0, &processes, &mut text);
            lines.push(String::from_utf8(text).unwrap());
        }
    }
    lines
}

#[test]
fn threads_have_the_name_of_the_moment() {
    let expected = ["shell[10]", "shell[20]", "cc1[20]", "cc1[20]", "other[20]", "77", "idle[0]"];
    assert_eq!(chosen(&story(), "event == RUN"), expected);
}

/// Thread 20 is in scope from 10 to 30, and its id is used again; thread 30 gets another name.
#[test]
fn threads_out_of_scope_have_the_names_that_were_seen() {
    let mut preamble = preamble();
    let since = ("since", Scalar::U64, Shape::One, Decode::Plain);
    preamble.events.push(layout(9, "PROCESS_SEEN", &[thread("pid"), int("tgid"), since, comm()]));
    let (mut recorder, mut events) = (Vec::new(), Vec::new());
    for (pid, since, name) in [(30, 33, "second"), (20, 35, "outside"), (30, 12, "first")] {
        let seen = record(&preamble, "PROCESS_SEEN").int("pid", pid).int("tgid", pid);
        let seen = seen.int("since", (START + since) as i64).text("comm", name.as_bytes());
        seen.finish(START + 90, &mut recorder);
    }
    let run = |pid: i64, at: u64, out: &mut Vec<u8>| {
        record(&preamble, "RUN").int("pid", pid).finish(START + at, out);
    };
    let fork = record(&preamble, "PROCESS_FORK").int("parent", 10).int("pid", 20);
    run(30, 1, &mut events);
    fork.int("tgid", 20).text("comm", b"shell").finish(START + 10, &mut events);
    run(20, 11, &mut events);
    record(&preamble, "PROCESS_EXIT").int("pid", 20).finish(START + 30, &mut events);
    run(20, 31, &mut events);
    run(30, 32, &mut events);
    run(30, 33, &mut events);
    run(20, 36, &mut events);
    let log = log_of(&preamble, &[(cpu(0), events), (RECORDER, recorder)]);
    let found = chosen(&Reader::from_bytes(log).unwrap(), "event == RUN");
    let expected =
        ["first[30]", "shell[20]", "shell[20]", "first[30]", "second[30]", "outside[20]"];
    assert_eq!(found, expected);
}

#[test]
fn the_table_has_a_row_for_each_name() {
    let reader = story();
    let mut processes = Processes::with_history(&reader);
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        processes.apply(&event);
    }
    let rows = processes.into_rows(START + 44);
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let found: Vec<_> = rows
        .iter()
        .map(|r| {
            (
                r.pid,
                text(&r.comm),
                text(&r.command),
                r.from_ns - START,
                r.to_ns - START,
                r.exit_ns.map(|t| t - START),
            )
        })
        .collect();
    let row = |pid, comm: &str, command: &str, from, to, exit| {
        (pid, comm.to_string(), command.to_string(), from, to, exit)
    };
    let expected = [
        row(0, "idle", "", 0, 44, None),
        row(10, "shell", "shell -i", 0, 44, None),
        row(20, "shell", "shell -i", 10, 20, None),
        row(20, "cc1", "/usr/lib/cc1-real", 20, 40, Some(30)),
        row(20, "other", "shell -i", 40, 44, None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn filters() {
    let reader = story();
    let count = |filter: &str| chosen(&reader, filter).len();
    assert_eq!(count("prio == 120"), 4);
    assert_eq!(count("prio == 0x78 && time > 20ns"), 3);
    assert_eq!(count("pid == \"cc1\" && event == 'RUN'"), 2);
    assert_eq!(count("pid =~ \"^(cc1|oth)\" && event == RUN"), 3);
    assert_eq!(count("cpu == -1"), 1);
    assert_eq!(count("comm == 'shell'"), 2);
    assert_eq!(count("!(prio == 120)"), 3, "events without prio do not match");
    assert_eq!(count("!(prio == 120) || cpu == -1"), 4);
    assert_eq!(count("parent < pid"), 2);
    assert_eq!(count("serial >= 3 && serial <= 4 && cpu = 0"), 2);
}

#[test]
fn invalid_filters_are_reported() {
    let reader = story();
    let error = |filter: &str| match Filter::new(filter, reader.preamble(), START) {
        Ok(_) => panic!("{filter} is accepted"),
        Err(error) => (error.message, error.help),
    };
    assert_eq!(
        error("proi == 1"),
        ("no event of this log has a field 'proi'".into(), "did you mean `prio`?".into())
    );
    assert_eq!(error("event == RUNN").0, "this log has no event 'RUNN'");
    assert_eq!(error("prio == 'high'").0, "a number is compared with a text");
    assert_eq!(error("prio == ").0, "the filter is not complete");
    assert!(error("comm =~ '('").0.contains("is not a regular expression"));
}

#[test]
fn values_are_decoded() {
    let one = |name, scalar, decode| (name, scalar, Shape::One, decode);
    let table = |name: &str| Decode::Table(name.into());
    let mut preamble = preamble();
    preamble.events.push(common::layout(
        50,
        "ALL",
        &[
            one("plain", Scalar::I8, Decode::Plain),
            one("hex", Scalar::U16, Decode::Hex),
            one("octal", Scalar::U16, Decode::Octal),
            one("code", Scalar::U64, Decode::Code),
            one("nowhere", Scalar::U64, Decode::Code),
            one("device", Scalar::U32, Decode::Device),
            one("ip", Scalar::U32, Decode::Ip),
            ("ip6", Scalar::U8, Shape::Array(16), Decode::Ip),
            one("error", Scalar::I32, Decode::Errno),
            one("fine", Scalar::I32, Decode::Errno),
            one("flags", Scalar::U32, table("flags")),
            one("none", Scalar::U32, table("flags")),
            one("choice", Scalar::U32, table("choice")),
            one("other", Scalar::I32, table("choice")),
            ("array", Scalar::I16, Shape::Array(2), Decode::Plain),
            one("size", Scalar::U64, Decode::Plain),
        ],
    ));
    let last = preamble.events.len() - 1;
    preamble.events[last].fields[15].unit = Some("bytes".into());
    let values = |v: &[(u64, &str)]| v.iter().map(|(n, t)| (*n, t.to_string())).collect();
    preamble.decodings = vec![
        Decoding {
            name: "flags".into(),
            flags: true,
            values: values(&[(4, "C"), (1, "A"), (2, "B")]),
        },
        Decoding { name: "choice".into(), flags: false, values: values(&[(7, "seven")]) },
    ];
    let mut builder = record(&preamble, "ALL")
        .int("plain", -3)
        .int("hex", 0xbeef)
        .int("octal", 0o4755)
        .int("code", 0x1010)
        .int("nowhere", 5);
    builder = builder
        .int("device", 8 << 20 | 1)
        .int("ip", 0x0100_007f)
        .element("ip6", 15, 1)
        .int("error", -2);
    builder = builder
        .int("fine", 12)
        .int("flags", 0x15)
        .int("choice", 7)
        .int("other", -7)
        .int("size", 4096);
    let mut records = Vec::new();
    builder.element("array", 0, -1).element("array", 1, 2).finish(START, &mut records);
    let mut bytes = Vec::new();
    let none = klogger_log::writer::Compression::None;
    let mut writer = klogger_log::writer::Writer::new(&mut bytes, &preamble, none).unwrap();
    writer
        .block(&klogger_log::writer::EventBlock {
            origin: cpu(0),
            time_base: START,
            first_serial: 0,
            records: &records,
        })
        .unwrap();
    writer.symbols("1000 start\n2000 stop\n").unwrap();
    writer.finish(&Default::default()).unwrap();
    let reader = Reader::from_bytes(bytes).unwrap();
    let (decoder, processes) = (Decoder::new(&reader), Processes::new(&reader));
    let mut merge = reader.merge(&Selection::default());
    let event = merge.next().unwrap();
    let mut text = Vec::new();
    for index in 0..event.layout.fields.len() {
        decoder.show(&event, index, &processes, &mut text);
        text.push(b' ');
    }
    let expected = "-3 0xbeef 04755 start+0x10 0x5 8:1 127.0.0.1 ::1 -ENOENT 12 A|C|0x10 0 seven \
                    -7 [-1,2] 4096B ";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
