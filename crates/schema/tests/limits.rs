// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Texts at and beyond the limits: each is rejected quickly, with one clear message.

use klogger_schema::layout::RECORD_MAX;
use klogger_schema::model::Schema;
use klogger_schema::{Diagnostic, Options, TEXT_MAX, parse};
use std::fmt::Write;

fn read(text: &str) -> Result<Schema, Vec<Diagnostic>> {
    parse("limits.klogger", text, &Options::default()).map(|parsed| parsed.schema)
}

/// The only error of a text.
fn only_error(text: &str) -> String {
    let mut errors = read(text).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let error = errors.remove(0);
    assert!(error.help.is_some());
    error.message
}

fn repeat(n: usize, mut line: impl FnMut(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}", line(i));
        text
    })
}

#[test]
fn a_megabyte() {
    let fits = format!("event A {{ }} //{}", "x".repeat(TEXT_MAX - 14));
    assert_eq!(fits.len(), TEXT_MAX);
    assert_eq!(read(&fits).unwrap().events.len(), 1);
    assert_eq!(only_error(&format!("{fits}x")), "this schema has 1048577 bytes");
}

#[test]
fn a_thousand_events() {
    let events = |n| repeat(n, |i| format!("event E{i} {{ int a }}"));
    assert_eq!(read(&events(1000)).unwrap().events.len(), 1000);
    assert_eq!(only_error(&events(1001)), "more than 1000 events");
}

#[test]
fn a_thousand_tables_and_probes() {
    assert_eq!(
        only_error(&repeat(1001, |i| format!("enum e{i} {{ }}"))),
        "more than 1000 enums and flags"
    );
    assert_eq!(
        only_error(&repeat(1001, |i| format!("probe function f{i}() {{ }}"))),
        "more than 1000 probes"
    );
}

#[test]
fn a_record_that_just_fits() {
    let with = |n| format!("event A {{ string[1000] a  u8 b[{n}] }}");
    let bytes = RECORD_MAX - 8 - 1000;
    assert!(read(&with(bytes)).is_ok());
    assert_eq!(only_error(&with(bytes + 1)), "a record of event A would take 4104 bytes");
}

#[test]
fn fifty_errors_are_enough() {
    assert_eq!(read(&repeat(60, |i| format!("event E{i} {{ itn a }}"))).unwrap_err().len(), 50);
    let unknown = repeat(60, |i| format!("klogger(UNKNOWN{i});"));
    assert_eq!(read(&format!("probe tracepoint x() {{ {unknown} }}")).unwrap_err().len(), 50);
}

/// Texts of a megabyte that would take long if all parts were compared with each other.
#[test]
fn large_texts_end() {
    let fill = |unit: &str| unit.repeat(TEXT_MAX / unit.len() - 100);
    let fill_numbered = |head: &str, unit: &dyn Fn(usize) -> String| {
        let mut text = head.to_string();
        for i in 0.. {
            let next = unit(i);
            if text.len() + next.len() + 10 > TEXT_MAX {
                break;
            }
            text.push_str(&next);
        }
        text
    };
    let one_event = "event A { ";
    for text in [
        fill("{"),
        fill("/*"),
        fill("event A {"),
        fill("event E { int a } "),
        fill("probe x y("),
        fill("code { \" }\n"),
        format!("event A scope {} {{ }}", fill("a,")),
        format!("event A {{ {} }}", fill("int a ")),
        format!("event A {{ {} }}", fill("u64 a[1024] ")),
        format!("event A {{ context {} }}", fill("tid ")),
        format!("context {}", fill("tid ")),
        format!("arch A {{ {} }}", fill("counter0 a ")),
        format!("probe function f({}) {{ }}", fill("int a,")),
        format!("probe function f() {{ {} }}", fill("klogger(")),
        format!("probe function f() {{ {} }}", fill("klogger(A);")),
        format!("probe {} {{ }}", fill("function f() or ")),
        format!("event {} {{ }}", fill("x")),
        format!("event A {{ {} a }}", fill("x")),
        fill_numbered(one_event, &|i| format!("int f{i} ")) + "}",
        fill_numbered("enum e { ", &|i| format!("{i} \"\" ")) + "}",
        fill_numbered("", &|i| format!("event E{i} {{ u8 a as T{i} }} ")),
        fill_numbered("probe function f() { ", &|i| format!("klogger(E{i}); ")) + "}",
    ] {
        let found = read(&text).map_or_else(|errors| errors.len(), |_| 0);
        assert!(found <= 50, "{}", &text[..40]);
    }
}
