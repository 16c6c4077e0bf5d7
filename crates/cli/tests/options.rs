// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Options may be before, between and after the other arguments of a command.

use std::path::Path;
use std::process::{Command, Output};

fn klogger(words: &[&str]) -> Output {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs");
    Command::new(env!("CARGO_BIN_EXE_klogger")).current_dir(logs).args(words).output().unwrap()
}

/// Each command, its arguments, and its options.
const LINES: &[(&str, &[&str], &[&str])] = &[
    ("info", &["v2.klog"], &["--format", "json", "--fields"]),
    ("cat", &["v2.klog"], &["--format", "csv", "--cpu", "0"]),
    ("export", &["v2.klog"], &["--to", "json", "-o", "-"]),
    (
        "check",
        &["../golden/schema/paper.klogger", "../golden/schema/types.klogger"],
        &["--format", "json"],
    ),
    ("show", &["scheduler"], &["--format", "json"]),
    ("list", &[], &["--format", "json"]),
    ("gen", &["../golden/schema/paper.klogger"], &["--engine", "user"]),
    ("tracepoints", &["no_such_tracepoint"], &["--format", "json"]),
    ("mark", &["1", "text"], &["--recorder", "4194304"]),
    ("enable", &["A", "B"], &["--recorder", "4194304"]),
    ("rescue", &["4194304"], &["-q", "-o", "/dev/null/x.klog"]),
    ("build", &[], &["-s", "no-such-schema", "-o", "/dev/null/x"]),
    ("record", &[], &["-s", "no-such-schema", "-a", "--mode", "0640"]),
];

#[test]
fn options_may_be_anywhere() {
    for (command, words, options) in LINES {
        let said = |at: usize| {
            let line = [&[*command], &words[..at], options, &words[at..]].concat();
            let output = klogger(&line);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!error.contains("Usage:"), "{line:?}: {error}");
            (output.status.code(), output.stdout, error)
        };
        let first = said(0);
        (1..=words.len()).for_each(|at| assert!(said(at) == first, "{command}: {at}"));
    }
}

#[test]
fn arguments_after_two_dashes_are_the_commands() {
    // klogger has no such option, and there is no schema of that name: the error must be about the
    // schema.
    let output =
        klogger(&["record", "-s", "no-such-schema", "--", "prog", "--no-such-option", "-o", "x"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("there is no bundled schema 'no-such-schema'"), "{error}");
}
