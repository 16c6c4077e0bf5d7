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
    ("places", &["no_such_place"], &["--kind", "tracepoint,function"]),
    ("tracepoints", &["no_such_tracepoint"], &["--format", "json"]),
    ("mark", &["1", "text"], &["--recorder", "4194304"]),
    ("enable", &["A", "B"], &["--recorder", "4194304"]),
    ("stack", &["65540"], &["--recorder", "4194304", "--format", "json"]),
    ("symbolize", &["v2.klog"], &["--format", "json"]),
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

/// What other tools call it, and what klogger answers.
const OTHERS: &[(&[&str], &str)] = &[
    (
        &["record", "-t", "1"],
        "unexpected argument '-t' found\n\n  tip: '-p ID' takes ids of threads",
    ),
    (&["record", "-s", "scheduler", "make"], "  tip: the command comes after '--': klogger record"),
    (&["record", "-u", "root"], "  tip: --uid USER records the threads of a user\n"),
    (&["record", "--name", "x"], "  tip: --comm NAME records threads by their name\n"),
    (&["record", "--duration=3"], "  tip: --for TIME ends the recording: --for 10s\n"),
    (&["record", "--buffersize", "1M"], "  tip: a similar argument exists: '--buffer-size'\n"),
    (&["cat", "v2.klog", "--filter", "cpu == 0"], "  tip: --where EXPRESSION selects events\n"),
    (&["cat", "-i", "v2.klog"], "  tip: the log is an argument: klogger cat FILE\n"),
    (&["recrod"], "  help: did you mean `record`?\n"),
    (&["comprae"], "  help: did you mean `compare`?\n"),
    (&["script"], "  help: 'klogger cat FILE' prints the events of a log\n"),
];

#[test]
fn names_of_other_tools_get_a_tip() {
    for (line, tip) in OTHERS {
        let output = klogger(line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(tip), "{line:?}: {error}");
        assert_eq!(output.status.code(), Some(2), "{line:?}");
    }
}

/// Command lines of `record`, and the whole message.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["-s", "scheduler,,locking", "-a"],
        "klogger: -s 'scheduler,,locking' contains an empty name\n  \
         help: separate names with single commas: -s scheduler,locking\n",
    ),
    (
        &["-s", "scheduler", "-s", "scheduler", "-a"],
        "klogger: the schema 'scheduler' is named twice\n  help: name each schema once\n",
    ),
    (
        &["-s", "scheduler,schedular", "-a"],
        "klogger: there is no schema 'schedular'\n  help: did you mean `scheduler`?\n",
    ),
    (
        &["-s", "scheduler"],
        "klogger: nothing to record\n  help: give a command (-- COMMAND), processes (-p PID,... or \
         --comm NAME), or -a for the whole system\n",
    ),
    (
        &["--engine", "user", "-o", "no/such/x.klog", "--", "true"],
        "klogger: cannot write no/such/x.klog: there is no directory no/such\n  \
         help: make it with 'mkdir -p no/such', or choose another file with -o FILE\n",
    ),
    (
        &["--engine", "user", "-o", "/dev/full", "--", "true"],
        "klogger: cannot write /dev/full: it is a device, and a log must be a file\n  \
         help: choose a file with -o FILE\n",
    ),
    (
        &["--engine", "user", "-p", "4194304"],
        "klogger: there is no process or thread 4194304\n  \
         help: see 'ps -eL' for those there are\n",
    ),
    (
        &["--engine", "user", "--comm", "make", "--", "true"],
        "klogger: --comm: the user engine cannot choose threads\n  \
         help: only the bpf engine can: record with --engine bpf, or processes with -p\n",
    ),
    (
        &["--engine", "user", "--uid", "0,root", "--", "true"],
        "klogger: --uid: the user engine cannot choose threads\n  \
         help: only the bpf engine can: record with --engine bpf, or processes with -p\n",
    ),
    (
        &["-s", "scheduler", "--comm", "systemd-journald"],
        "error: invalid value 'systemd-journald' for '--comm <NAME>': names of threads have at \
         most 15 bytes; the kernel has 'systemd-journal'\n\nFor more information, try '--help'.\n",
    ),
    (
        &["-s", "scheduler", "--uid", "no:such"],
        "error: invalid value 'no:such' for '--uid <USER>': there is no such user; write a number, \
         or a name of /etc/passwd\n\nFor more information, try '--help'.\n",
    ),
    (
        &["-s", "scheduler", "-p", "0"],
        "error: invalid value '0' for '--pid <PID>': ids of processes begin with 1; -a records \
         all processes\n\nFor more information, try '--help'.\n",
    ),
];

#[test]
fn bad_values_of_record_get_one_message() {
    let folder = tempfile::tempdir().unwrap();
    for (words, message) in REFUSED {
        let output = Command::new(env!("CARGO_BIN_EXE_klogger"))
            .current_dir(folder.path())
            .arg("record")
            .args(*words)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), *message);
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file was left");
}

#[test]
fn arguments_after_two_dashes_are_the_commands() {
    // klogger has no such option, and there is no schema of that name: the error must be about the
    // schema.
    let output =
        klogger(&["record", "-s", "no-such-schema", "--", "prog", "--no-such-option", "-o", "x"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("there is no schema 'no-such-schema'"), "{error}");
}
