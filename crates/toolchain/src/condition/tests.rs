// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The C of conditions, which is compiled and run here; and what is refused.

use super::compile;
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use std::fmt::Write;
use std::process::Command;

const SCHEMA: &str = "schema t \"Types\"
enum colour { 1 \"red\" 2 \"green\" }
flags bits { 1 \"a\" 2 \"b\" 4 \"c\" }
event E {
    int i
    uint u
    char s
    ulonglong big
    int pid as thread
    uchar shade as colour
    ushort set as bits
    int error as errno
    string[8] name
    string text
    int list[3]
    context comm otel_span
}
";

fn schema() -> Schema {
    parse("t.klogger", SCHEMA, &Options::default()).unwrap().schema
}

fn c_of(text: &str) -> String {
    let schema = schema();
    compile(&schema, &schema.events[0], text).unwrap_or_else(|e| panic!("{text}: {e}: {}", e.help))
}

/// The event: i = -1, u = 4294967295, s = -128, big = 2^64 - 1, shade = green, set = a|c,
/// error = -2, name = \"abcdefg\" (cut), text = \"hello\"; on CPU 3.
const VALUES: &[(&str, bool)] = &[
    ("i == -1", true),
    ("i == 4294967295", false),
    ("i < u", true),
    ("u > i", true),
    ("u == i", false),
    ("i != u", true),
    ("u <= i", false),
    ("i >= big", false),
    ("big == 18446744073709551615", true),
    ("big > -1 && -1 < big", true),
    ("s == -128 && s <= -128", true),
    ("s > -129 && s < 128", true),
    ("s == -129 || s > 127", false),
    ("-9223372036854775808 < i", true),
    ("i < 99999999999ns", true),
    ("1 == 1 && 2 < 1", false),
    ("cpu == 3 && cpu != -1", true),
    ("cpu > 3", false),
    ("shade == 'green'", true),
    ("shade != 'red'", true),
    ("!(shade == 'green')", false),
    ("set == 'a|c'", true),
    ("set == 'a|b|c' || set == 'a'", false),
    ("error == 'ENOENT'", true),
    ("error != 'EPERM'", true),
    ("error == 'EPERM'", false),
    // Neither equal nor different: it has no name.
    ("i == 7 || !(i == -1 && error != 'ENOENT')", true),
    ("name == 'abcdefg'", true),
    ("name == 'abcdef' || name == 'abcdefgh' || name == ''", false),
    ("name != 'abcdef'", true),
    ("text == \"hello\"", true),
    ("'hello' == text", true),
    ("text == 'hell' || text == 'hello!' || text == 'Hello'", false),
    ("!(text != 'hello')", true),
    ("text =~ '^hel' && text =~ '^hello$' && name =~ '^abc.*' && text =~ '^'", true),
    ("text =~ '^hell$' || text =~ '^ell' || text =~ '^hello!' || name =~ '^abcdefghi'", false),
    ("comm == 'worker' && comm =~ '^work' && comm != 'workers'", true),
    ("comm == 'work' || comm == 'worker with a long name' || comm == ''", false),
    // As long as its field.
    ("otel_span == '00f067aa0ba902b7' && otel_span =~ '^00f067aa0ba902b7$'", true),
    ("otel_span == '00f067aa0ba902b8' || otel_span == '00f067aa0ba902b70'", false),
    ("otel_span == '00f067aa0ba902b' || otel_span == ''", false),
    ("i == 1 || u == 1 || (s == -128 && !(big == 1))", true),
];

/// The primitives of an engine, for the C library.
const PROGRAM: &str = "\
#include <stdio.h>
#include <string.h>
static unsigned int klogger_cpu(void) { return 3; }
#define klogger_context_comm(to) strncpy(to, \"worker\", sizeof(to))
#define klogger_context_otel_span(to) memcpy(to, \"00f067aa0ba902b7\", sizeof(to))
static unsigned int klogger_text_part(char *to, unsigned int size, const char *from)
{
    unsigned int n = 0;
    while (n + 1 < size && from[n]) { to[n] = from[n]; n++; }
    to[n] = 0;
    return n;
}
int main(void)
{
    int i = -1, pid = 1, error = -2;
    unsigned int u = 4294967295u;
    signed char s = -128;
    unsigned long long big = 18446744073709551615ull;
    unsigned char shade = 2;
    unsigned short set = 5;
    const char *name = \"abcdefghij\", *text = \"hello\";
    (void)pid;
";

#[test]
fn conditions_have_the_values_that_a_filter_has() {
    let mut c = String::from(PROGRAM);
    for (text, _) in VALUES {
        let _ = writeln!(c, "    puts(({}) ? \"1\" : \"0\");", c_of(text));
    }
    // Without a name it is neither equal nor different.
    let _ = writeln!(c, "    error = 5;");
    for text in ["error == 'ENOENT'", "error != 'ENOENT'", "!(error == 'ENOENT')"] {
        let _ = writeln!(c, "    puts(({}) ? \"1\" : \"0\");", c_of(text));
    }
    c.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("c.c"), folder.path().join("c"));
    std::fs::write(&source, &c).unwrap();
    let built = Command::new("cc").arg("-o").args([&program, &source]).output().unwrap();
    assert!(built.status.success(), "{c}\n{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let said: Vec<bool> = said.lines().map(|line| line == "1").collect();
    assert_eq!(said.len(), VALUES.len() + 3);
    for ((text, expected), is) in VALUES.iter().zip(&said) {
        assert_eq!(is, expected, "{text}: {}", c_of(text));
    }
    assert_eq!(said[VALUES.len()..], [false, false, false]);
}

const REFUSED: &[(&str, &str, &str)] = &[
    ("text =~ 'x'", "regular expressions (=~) cannot be evaluated", "klogger cat --where"),
    ("text < 'x'", "texts can only be compared with == and !=", "klogger cat --where"),
    ("pid == 'bash'", "the names of the threads in 'pid' are not known", "pid == 4711"),
    ("time > 1s", "'time' is not known while events are logged", "klogger cat --where"),
    ("serial == 1", "'serial' is not known", "klogger cat --where"),
    ("event == E", "the event is named before the colon: 'E: ...'", "a condition for each"),
    ("bgi == 1", "E has no field 'bgi'", "did you mean `big`?"),
    ("xyzzy == 1", "E has no field 'xyzzy'", "it has: i, u, s, big, pid"),
    ("list == 1", "'list' has several values", "one value"),
    ("i == 'x'", "'i' is a number, and is compared with a text", "leave out the quotes"),
    ("text == 1", "a number is compared with a text", "leave out the quotes"),
    ("text == name", "two texts are compared with each other", "in quotes"),
    ("shade == 'gren'", "'colour' has no name 'gren'", "did you mean `green`?"),
    ("set == 'c|a'", "no value of 'bits' is shown as 'c|a'", "\"a|c\""),
    ("set == 'a|x'", "'bits' has no name 'x'", "a, b, c"),
    ("error == 'ENOENTT'", "there is no error 'ENOENTT'", "did you mean `ENOENT`?"),
    ("i ==", "the filter is not complete", "compare fields with"),
];

#[test]
fn what_cannot_be_decided_while_events_are_logged() {
    let schema = schema();
    for (text, message, help) in REFUSED {
        let e = compile(&schema, &schema.events[0], text).unwrap_err();
        assert!(e.message.contains(message), "{text}: {}", e.message);
        assert!(e.help.contains(help), "{text}: {}", e.help);
    }
    let long = format!("text == '{}'", "x".repeat(64));
    let e = compile(&schema, &schema.events[0], &long).unwrap_err();
    assert_eq!(e.message, "a text of 64 bytes is compared; 63 are possible");
}
