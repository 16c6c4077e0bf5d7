// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The guide to the language has every word of the language, and its examples are correct.

mod common;

use klogger_schema::contexts::CONTEXTS;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, ProbeKind};
use klogger_schema::reserved::{BUILTIN_EVENTS, BUILTIN_TABLES, HEADER_FIELDS};
use klogger_schema::vocabulary::{DECLARATIONS, DECODES, TYPES, UNITS};
use klogger_schema::{Options, parse};

/// Its first page, and all others in any order.
fn guide() -> String {
    let docs = common::root().join("docs");
    let pages = std::fs::read_dir(docs.join("language")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let all = [docs.join("schema-language.md")].into_iter().chain(pages);
    all.map(|page| std::fs::read_to_string(page).unwrap() + "\n").collect()
}

/// The indented block that begins with this line.
fn block(first: &str) -> String {
    let guide = guide();
    let lines = guide
        .lines()
        .skip_while(|l| l.trim() != first)
        .take_while(|l| l.is_empty() || l.starts_with("    "));
    lines.map(|l| l.get(4..).unwrap_or("").to_string() + "\n").collect()
}

#[test]
fn every_word_is_explained() {
    let guide = guide();
    let types = TYPES.iter().map(|(word, _)| *word);
    let decodes = DECODES.iter().map(|(word, _)| *word);
    let kinds = ProbeKind::ALL.map(ProbeKind::word);
    let taken = BUILTIN_EVENTS.into_iter().chain(BUILTIN_TABLES).chain(HEADER_FIELDS);
    for word in types.chain(UNITS).chain(decodes).chain(kinds).chain(taken) {
        assert!(guide.contains(&format!("`{word}`")), "the guide does not name `{word}`");
    }
    for word in DECLARATIONS {
        assert!(guide.contains(&format!("    {word} ")), "the guide has no example of `{word}`");
    }
}

#[test]
fn the_guide_has_the_row_of_each_context() {
    let guide = guide();
    for row in CONTEXTS {
        let decode = match row.decode() {
            Decode::Thread => " as thread".into(),
            Decode::Stack => " as stack".into(),
            Decode::Table(name) => format!(" as {name}"),
            _ => String::new(),
        };
        let field = format!("{} {}{decode}", row.type_name, row.word);
        let line = format!("| `{}` | `{field}` | {} |", row.word, row.doc);
        assert!(guide.contains(&line), "the guide has no line\n{line}");
    }
}

#[test]
fn the_first_schema_is_valid_and_its_misspelling_is_refused_as_shown() {
    let text = block("schema sleepers \"Which threads go to sleep, and in what state\"");
    let parsed = parse("sleepers.klogger", &text, &Options::default()).unwrap();
    assert!(parsed.warnings.is_empty());
    let errors =
        parse("sleepers.klogger", &text.replace("uint state", "unit state"), &Options::default())
            .unwrap_err();
    let shown = block("$ klogger check sleepers.klogger");
    assert_eq!(errors.len(), 1);
    assert!(
        shown.contains(&errors[0].message) && shown.contains(errors[0].help.as_ref().unwrap()),
        "{shown}"
    );
}

#[test]
fn the_layout_is_as_drawn() {
    let schema = parse(
        "e.klogger",
        block("event EXAMPLE { uchar a  int b  string c  ushort d }").lines().next().unwrap(),
        &Options::default(),
    )
    .unwrap()
    .schema;
    let layout = EventLayout::new("e", &schema.events[0], 1);
    assert_eq!(layout.fields.iter().map(|f| f.offset).collect::<Vec<_>>(), [8, 12, 16, 18]);
    assert_eq!(layout.fixed, 20);
}
