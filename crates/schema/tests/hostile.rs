// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A schema is untrusted. For every text: no panic, and every diagnostic points into the text, so
//! that it can be shown. The fuzzer (fuzz/) checks the same; a part of it runs with every `cargo
//! test`.

mod common;

use common::entries;
use klogger_schema::model::{Decode, Shape, Span};
use klogger_schema::vocabulary::{TYPES, UNITS};
use klogger_schema::{Options, parse};
use proptest::prelude::*;
use std::path::PathBuf;

fn parses_or_reports(text: &str) {
    let pointed = |span: Span| {
        text.get(span.start..span.end).unwrap_or_else(|| panic!("{span:?} of {text:?}")).len()
    };
    match parse("hostile.klogger", text, &Options::default()) {
        Ok(parsed) => {
            for d in &parsed.warnings {
                pointed(d.span);
            }
            for block in parsed.schema.probes.iter().map(|p| &p.body).chain(&parsed.schema.code) {
                assert_eq!(pointed(block.span), block.text.len());
            }
        }
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= 50);
            for d in &errors {
                pointed(d.span);
                d.related.iter().for_each(|(span, _)| assert!(pointed(*span) <= text.len()));
            }
        }
    }
}

/// All schemata of the repository, good and bad.
fn corpus() -> Vec<String> {
    let folders = entries("tests/reject").into_iter().chain(entries("schemata"));
    let files = folders.flat_map(entries).chain(entries("tests/golden/schema"));
    let schemata = files.filter(|p: &PathBuf| {
        p.to_string_lossy().contains("klogger") && p.extension().is_none_or(|e| e != "txt")
    });
    schemata.filter(|p| p.is_file()).filter_map(|p| std::fs::read_to_string(p).ok()).collect()
}

/// The time for a text grows with the square of its length: all CPUs take part, and of long texts
/// every seventh beginning is parsed, unless $KLOGGER_FULL is set.
#[test]
fn every_beginning() {
    let texts = &corpus();
    let long = if std::env::var_os("KLOGGER_FULL").is_some() { usize::MAX } else { 2000 };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..workers {
            scope.spawn(move || {
                for text in texts {
                    let step = if text.len() > long { 7 } else { 1 };
                    let some = text.char_indices().step_by(step);
                    let beginnings = some.skip(first).step_by(workers);
                    beginnings.for_each(|(at, _)| parses_or_reports(&text[..at]));
                }
            });
        }
    });
}

/// Deletes, duplicates, and swaps pieces of known texts, with the same numbers in each run.
#[test]
fn mutations() {
    let corpus = corpus();
    assert!(corpus.len() > 20);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below.max(1)
    };
    for _ in 0..20_000 {
        let mut text: Vec<char> = corpus[random(corpus.len())].chars().collect();
        for _ in 0..=random(4) {
            let from = random(text.len());
            let piece: Vec<char> = text[from..(from + random(12)).min(text.len())].to_vec();
            match random(4) {
                0 => drop(text.drain(from..from + piece.len())),
                1 => drop(text.splice(from..from, piece)),
                2 => {
                    drop(text.splice(
                        from..from,
                        [['{', '}', '"', '\'', '\\', '/', '(', '\n'][random(8)]],
                    ))
                }
                _ => {
                    let to = random(text.len());
                    drop(text.splice(to..to, piece));
                }
            }
        }
        parses_or_reports(&text.into_iter().collect::<String>());
    }
}

/// A field as written in a schema, and its expected model.
type Written = (usize, Option<u32>, Option<usize>, bool, Option<String>);

proptest! {
    #[test]
    fn any_text(text in ".{0,400}") {
        parses_or_reports(&text);
    }

    #[test]
    fn any_words(words in proptest::collection::vec(prop_oneof![
        Just("event"), Just("probe"), Just("tracepoint"), Just("or"), Just("enum"), Just("flags"),
        Just("schema"),
        Just("context"), Just("tid"), Just("code"), Just("arch"), Just("counter0"),
        Just("cs"), Just("optional"), Just("sample"),
        Just("every"), Just("scope"),
        Just("in"), Just("as"),
        Just("int"), Just("string"), Just("ns"), Just("A"), Just("b"), Just("{"), Just("}"),
        Just("("), Just(")"),
        Just("["), Just("]"), Just("7"), Just("-"), Just(","), Just(";"), Just("\"x\""),
        Just("'c'"), Just("klogger(A)"),
        Just("/*"), Just("*/"), Just("//"), Just("\n"), Just("\""), Just("'"), Just("*"),
        Just("struct"),
    ], 0..60)) {
        parses_or_reports(&words.join(" "));
    }

    #[test]
    fn fields_are_what_was_written(fields in proptest::collection::vec(
        (0..TYPES.len(), proptest::option::of(1u32..9), proptest::option::of(0..UNITS.len()),
            any::<bool>(),
         proptest::option::of("[a-z \"\\\\#/*{}]{0,12}")), 0..14)
    ) {
        let text = format!("event A {{ {} }}",
            fields.iter().enumerate().map(write_field).collect::<String>());
        let schema = parse("p.klogger", &text, &Options::default()).unwrap().schema;
        let event = &schema.events[0];
        prop_assert_eq!(event.fields.len(), fields.len());
        for (field, (ty, length, unit, hex, doc)) in event.fields.iter().zip(&fields) {
            let (word, scalar) = TYPES[*ty];
            prop_assert_eq!(&field.type_name, word);
            match (word, length) {
                ("char", Some(n)) => prop_assert_eq!(field.shape, Shape::Text(*n)),
                (_, Some(n)) => prop_assert_eq!((field.scalar, field.shape),
                    (scalar, Shape::Array(*n))),
                (_, None) => prop_assert_eq!((field.scalar, field.shape), (scalar, Shape::One)),
            }
            prop_assert_eq!(field.unit.as_deref(), unit.map(|u| UNITS[u]));
            prop_assert_eq!(field.decode == Decode::Hex, *hex && takes_hex(word, length));
            prop_assert_eq!(&field.doc, doc);
        }
    }
}

fn takes_hex(word: &str, length: &Option<u32>) -> bool {
    word != "bool" && !(word == "char" && length.is_some())
}

fn write_field((number, (ty, length, unit, hex, doc)): (usize, &Written)) -> String {
    let word = TYPES[*ty].0;
    let length = length.map_or(String::new(), |n| format!("[{n}]"));
    let unit = unit.map_or(String::new(), |u| format!(" in {}", UNITS[u]));
    let hex =
        if *hex && takes_hex(word, &(!length.is_empty()).then_some(1)) { " as hex" } else { "" };
    let doc = doc.as_ref().map_or(String::new(), |d| {
        format!(" \"{}\"", d.replace('\\', "\\\\").replace('"', "\\\""))
    });
    let end = ["\n", ";", " ", "; // }\n"][number % 4];
    if number % 2 == 0 {
        format!("{word} f{number}{length}{unit}{hex}{doc}{end}")
    } else {
        format!("{word} f{number}{length}{hex}{doc}{unit}{end}")
    }
}
