// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Standard output, to which commands print by [`say!`] and [`say_part!`], not by `println!`: that
//! panics if nobody reads it, or if it is a file on a full disk.

use crate::failure::Failure;
use crate::messages;
use klogger_log::text::{acts, escaped};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Prints a line.
macro_rules! say {
    ($($what:tt)*) => { $crate::out::line(format_args!($($what)*)) };
}

/// Prints a value as JSON.
macro_rules! say_json {
    ($value:expr) => {
        $crate::out::json(&$value)
    };
}

/// Prints text without an end of line.
macro_rules! say_part {
    ($($what:tt)*) => { $crate::out::part(format_args!($($what)*)) };
}

pub fn line(text: fmt::Arguments) {
    put(&(harmless(&text.to_string()) + "\n"));
}

pub fn part(text: fmt::Arguments) {
    put(&harmless(&text.to_string()));
}

pub fn json(value: &serde_json::Value) {
    json_text(&format!("{value:#}"));
}

/// The same for a text that is JSON.
pub fn json_text(text: &str) {
    put(&(harmless_json(text) + "\n"));
}

/// Prints a text of klogger's own that may have colours.
pub fn styled(text: &str) {
    put(text);
}

fn put(text: &str) {
    check(io::stdout().lock().write_all(text.as_bytes()));
}

fn is_bad(c: char) -> bool {
    acts(c) && !matches!(c, '\n' | '\t')
}

/// What is printed has names of schemata, programs and logs, which must not act on a terminal.
fn harmless(text: &str) -> String {
    match text.contains(is_bad) {
        true => text.split_inclusive(['\n', '\t']).map(harmless_part).collect(),
        false => text.into(),
    }
}

/// Without ends of lines and tabs, but for the last character.
fn harmless_part(part: &str) -> String {
    let end = part.len() - usize::from(part.ends_with(['\n', '\t']));
    escaped(&part[..end]) + &part[end..]
}

/// The same as JSON has it.
fn harmless_json(text: &str) -> String {
    let escape = |c: char| match is_bad(c) {
        true => c.encode_utf16(&mut [0; 2]).iter().map(|n| format!("\\u{n:04x}")).collect(),
        false => c.to_string(),
    };
    if text.contains(is_bad) { text.chars().map(escape).collect() } else { text.into() }
}

/// To be called when a command has ended: what is left is written.
pub fn finish() {
    check(io::stdout().flush());
}

/// The exit code of a program that SIGPIPE has ended, as shells say it.
const ENDED_BY_PIPE: i32 = 128 + libc::SIGPIPE;

/// Ends the process if standard output takes no more: without a word if its reader has seen enough.
fn check(written: io::Result<()>) {
    let Err(e) = written else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        process::exit(ENDED_BY_PIPE);
    }
    let failure = Failure::new(format!("cannot write the output: {e}"));
    messages::error(&failure.help("make space, or write it to another place"));
    process::exit(2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_acts_on_a_terminal() {
        let evil = "a\x1b[31m\tb\n\u{9b}2J \u{202e}c\n";
        assert_eq!(harmless(evil), "a\\x1b[31m\tb\n\\xc2\\x9b2J \\xe2\\x80\\xaec\n");
        assert_eq!(harmless("plain \u{e4}\n"), "plain \u{e4}\n");
        let value = serde_json::json!({ "name": evil });
        let shown = harmless_json(&format!("{value:#}"));
        assert!(!shown.contains(is_bad) && shown.contains("\\u009b2J \\u202ec"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
