// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Schemata of programs: which are accepted, and which are rejected.

use super::*;

fn unit(text: &str, builtin: bool) -> CompiledSchema {
    let options = Options { builtin, ..Options::default() };
    CompiledSchema { schema: parse("my.klogger", text, &options).unwrap().schema, object: None }
}

const MY: &str = "schema my \"x\"\nevent A { int x  string s }\nevent B { u64 y }\n";

fn catalogue(all: bool) -> Catalogue {
    let (builtin, mine) =
        (unit("schema klogger \"x\"\nevent LOST { u64 count }", true), unit(MY, false));
    Catalogue::new([(&builtin, false), (&mine, true)], all, &[])
}

#[test]
fn a_known_schema_may_differ_in_its_docs_only() {
    let mut c = catalogue(false);
    let said = "schema my \"other words\"\nevent A \"doc\" { int x \"doc\"  string s }\nevent \
                B { u64 y in ns }\n";
    let (admitted, addition) = c.admit(0, "my", said).unwrap();
    assert_eq!((admitted.base, admitted.layouts.len(), addition), (2, 2, None));
    for other in
        ["event A { int x }\nevent B { u64 y }", "event A { int x  string s }", "event B { u64 y }"]
    {
        let error = c.admit(0, "my", &format!("schema my \"x\"\n{other}\n")).unwrap_err().why;
        assert_eq!(
            error, "schema 'my' is another version than my.klogger; rebuild the program",
            "{other}"
        );
    }
    assert!(c.wants("my") && !c.wants("other"));
}

#[test]
fn a_new_schema_gets_ids_of_its_own() {
    let mut c = catalogue(true);
    let text = "schema new \"x\"\nenum kind { 1 \"one\" }\nevent N { int k as kind }\n";
    let (admitted, addition) = c.admit(0, "new", text).unwrap();
    let addition = addition.unwrap();
    assert_eq!(
        (admitted.base, addition.events[0].id, addition.events[0].name.as_str()),
        (4, 4, "N")
    );
    assert_eq!((addition.schemas[0].user, addition.decodings.len()), (true, 1));
    assert_eq!(c.admit(0, "new", text).unwrap(), (admitted, None));
    let other = c.admit(0, "new", "schema new \"x\"\nevent N { int l }\n").unwrap_err().why;
    assert_eq!(other, "schema 'new' is another version than new.klogger; rebuild the program");
}

#[test]
fn a_schema_that_contradicts_others_is_refused() {
    let mut c = catalogue(true);
    c.admit(0, "one", "schema one\nenum Kind { 1 \"x\" }\nevent O { int a as Kind }").unwrap();
    let mut refuse = |name: &str, text: &str| c.admit(0, name, text).unwrap_err().why;
    assert_eq!(
        refuse("clash", "schema clash \"x\"\nevent a { int x }"),
        "two schemata have an event 'a': my and clash"
    );
    assert_eq!(
        refuse("me", "schema you \"x\"\nevent Y { int x }"),
        "schema 'me' has the name 'you' in its text"
    );
    for table in ["enum Kind { 1 \"y\" }", "enum kind { 1 \"y\" }", "flags KIND { 1 \"x\" }"] {
        let name = table.split(' ').nth(1).unwrap();
        assert_eq!(
            refuse("two", &format!("schema two\n{table}\nevent T {{ int a as {name} }}")),
            format!("the schemata 'one' and 'two' both declare '{name}', with other texts")
        );
    }
    assert!(refuse("bad", "event {").starts_with("schema 'bad' does not parse: "));
    assert_eq!(refuse("bad", "event {"), refuse("bad", "event {"));
}

#[test]
fn texts_are_bounded() {
    let mut c = catalogue(true);
    let filler = format!("// {}\n", "x".repeat(200_000));
    let fill = |n: u32| format!("{filler}schema s{n} \"x\"\nevent E{n} {{ int x }}\n");
    let refused = (0..).find(|n| c.admit(0, &format!("s{n}"), &fill(*n)).is_err()).unwrap();
    assert_eq!(refused as usize, TEXTS_MAX / 200_000);
}

#[test]
fn programs_of_another_user_leave_room_for_texts() {
    let mut c = catalogue(true);
    c.restrict_others_than(Some(0));
    let mut fill = |uid: u32| {
        let text = |n: u32| format!("schema s{uid}_{n} \"x\"\nevent E{uid}_{n} {{ int x }}\n");
        (0..).find(|n| c.admit(uid, &format!("s{uid}_{n}"), &text(*n)).is_err()).unwrap() as usize
    };
    let quarter = TEXT_COUNT_MAX / 4;
    assert_eq!((fill(7), fill(8), fill(9), fill(0)), (quarter, quarter, 0, TEXT_COUNT_MAX / 2));
}
