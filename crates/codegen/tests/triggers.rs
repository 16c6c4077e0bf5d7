// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The C of an event with triggers, compiled and run over primitives that say what they are asked
//! for.

use klogger_codegen::events::events_header;
use klogger_schema::model::Trigger;
use klogger_schema::{Options, parse};
use std::process::Command;

const SCHEMA: &str = "schema t \"Triggers\"
event E {
    uint   n
    string text
}
event PLAIN { uint n }
";

/// Primitives of an engine: a ring that can be full, and events that can be off.
const PRIMITIVES: &str = "\
#include <stdio.h>
#include <string.h>
#define __always_inline inline
typedef unsigned long long __u64;
#define unlikely(x) (x)
#define KLOGGER_PAD8(n) (((n) + 7u) & ~7u)
#define klogger_store(field, value) ((field) = (value))
struct klogger_hit { int full, off; };
struct klogger_text { unsigned int length; char bytes[256]; };
static char space[512];
#define klogger_may(index, scope) (!klogger_hit->off && (scope))
#define klogger_in_scope_current() 1
static void klogger_text_read(int index, struct klogger_text *t, const char *from)
{
    (void)index;
    t->length = strlen(from);
}
static void klogger_text_store(char *to, struct klogger_text *t) { (void)to; (void)t; }
static void *klogger_reserve(struct klogger_hit *hit, int index, unsigned int size)
{
    (void)size;
    printf(\"reserve %d, \", index);
    return hit->full ? NULL : space;
}
static void klogger_commit(struct klogger_hit *hit, void *record, int index)
{
    (void)hit, (void)record;
    printf(\"commit %d, \", index);
}
#define klogger_fire(hit, trigger, index) printf(\"fire %d by %d, \", trigger, index)
";

const MAIN: &str = "
int main(void)
{
    struct klogger_hit on = { 0, 0 }, full = { 1, 0 }, off = { 0, 1 };
    klogger_event_E(&on, 5, \"x\"); puts(\"\");
    klogger_event_E(&on, 15, \"x\"); puts(\"\");
    klogger_event_E(&on, 25, \"x\"); puts(\"\");
    klogger_event_E(&full, 25, \"x\"); puts(\"\");
    klogger_event_E(&off, 25, \"x\"); puts(\"\");
    klogger_event_E(&on, 99, \"x\"); puts(\"\");
    return 0;
}
";

#[test]
fn triggers_fire_after_the_event_and_also_without_room() {
    let mut schema = parse("t.klogger", SCHEMA, &Options::default()).unwrap().schema;
    let plain = events_header(&schema).text;
    let trigger =
        |number, c: &str| Trigger { number, condition: format!("(unsigned long long)(n) > {c}") };
    schema.events[0].triggers = vec![trigger(1, "10ull"), trigger(7, "20ull")];
    schema.events[0].condition = Some("n != 99".into());
    let text = events_header(&schema).text;
    // The other event is as it was.
    let (at, before) =
        (text.find("struct klogger_record_PLAIN"), plain.find("struct klogger_record_PLAIN"));
    assert_eq!(text[at.unwrap()..], plain[before.unwrap()..]);
    assert!(!plain.contains("trigger"));

    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("t.c"), folder.path().join("t"));
    std::fs::write(&source, format!("{PRIMITIVES}{text}{MAIN}")).unwrap();
    let built = Command::new("cc").arg("-o").args([&program, &source]).output().unwrap();
    assert!(built.status.success(), "{text}\n{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let lines: Vec<&str> = said.lines().map(|line| line.trim_end_matches(", ")).collect();
    assert_eq!(
        lines,
        [
            "reserve 0, commit 0",
            "reserve 0, commit 0, fire 1 by 0",
            "reserve 0, commit 0, fire 1 by 0, fire 7 by 0",
            "reserve 0, fire 1 by 0, fire 7 by 0",
            "",
            "",
        ]
    );
}
