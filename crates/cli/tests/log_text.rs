// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The output of `klogger cat`, `info` and `export` for the logs in `tests/logs`: compared with the
//! files beside them, and read by the programs that the formats are for. `KLOGGER_BLESS=1 cargo
//! test -p klogger --test log_text` rewrites the files.

use klogger_log::format::Kind;
use klogger_log::lock;
use klogger_log::reader::Reader;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs")
}

fn klogger(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_klogger"));
    command.current_dir(logs()).args(words).output().expect("klogger runs")
}

fn out(words: &[&str]) -> String {
    let output = klogger(words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Exit code and standard error.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let output = klogger(words);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn same_as(file: &str, found: &str) {
    let path = logs().join(file);
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(&path, found).expect("the file can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(!expected.is_empty(), "{file} is empty or missing");
    assert_eq!(found, expected, "{file}");
}

#[test]
fn every_format() {
    for version in ["v1", "v2", "v3", "v4", "stacks"] {
        let log = format!("{version}.klog");
        same_as(&format!("{version}.txt"), &out(&["cat", &log]));
        for (format, suffix) in [("json", "json"), ("csv", "csv"), ("perl", "pl")] {
            same_as(&format!("{version}.{suffix}"), &out(&["cat", &log, "--format", format]));
        }
        same_as(&format!("{version}.info"), &out(&["info", &log, "--fields"]));
    }
}

#[test]
fn lines_fit_the_width() {
    for log in ["v1.klog", "v2.klog", "v3.klog", "v4.klog", "stacks.klog"] {
        let info = out(&["info", log]);
        assert!(info.lines().all(|l| l.chars().count() <= 100), "{info}");
    }
}

/// Runs a program on a text; `None`, with the reason printed, if the program is not installed.
fn checked(program: &str, words: &[&str]) -> Option<String> {
    match Command::new(program).current_dir(logs()).args(words).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("skipped: {program} cannot be run ({error})");
            None
        }
    }
}

#[test]
fn perl_reads_it() {
    let script = r#"my $l = do "./v1.pl"; die $@ unless ref $l eq "ARRAY";
        print scalar @$l, " $l->[1]{header}{type} $l->[1]{command} $l->[3]{depth}[2]";"#;
    if let Some(found) = checked("perl", &["-we", script]) {
        assert_eq!(found, "11 PROCESS_EXISTS sh -c $HOME @\n\u{fffd} 300");
    }
}

#[test]
fn python_reads_json_and_csv() {
    let script = "import json, csv\n\
        rows = [json.loads(l) for l in open('v1.json')]\n\
        table = list(csv.DictReader(open('v1.csv', newline='')))\n\
        assert len(rows) == len(table) == 11\n\
        assert [r['serial'] for r in rows] == [int(r['serial']) for r in table]\n\
        print(rows[3]['depth'], table[3]['note'], repr(table[1]['command']), rows[0]['cpu'])";
    if let Some(found) = checked("python3", &["-c", script]) {
        assert_eq!(found.trim_end(), "[-1, 0, 300] a,b 'sh -c $HOME @\\n\u{fffd}' -1");
    }
}

#[test]
fn events_are_chosen() {
    let lines = |words: &[&str]| {
        let mut all = vec!["cat", "v1.klog"];
        all.extend(words);
        out(&all).lines().count()
    };
    assert_eq!(lines(&["--event", "SCHEDIN,schedout"]), 5);
    assert_eq!(lines(&["--event", "SCHEDIN", "--event", "CALL"]), 4);
    assert_eq!(lines(&["--cpu", "0"]), 5);
    assert_eq!(lines(&["--cpu", "1-3,-"]), 6);
    assert_eq!(lines(&["--from", "1s", "--to", "2"]), 3);
    assert_eq!(lines(&["--from", "-500ms"]), 2);
    assert_eq!(lines(&["--to", "300ns"]), 5);
    assert_eq!(lines(&["--where", "pid == 'child'"]), 3);
    assert_eq!(lines(&["--where", "prio < 0 || note =~ 'b$'"]), 2);
}

#[test]
fn threads_of_programs() {
    let lines = |words: &[&str]| {
        let mut all = vec!["cat", "v2.klog"];
        all.extend(words);
        out(&all).lines().count()
    };
    let all = lines(&[]);
    assert_eq!(lines(&["--cpu", "0-32767,-"]), all - 7, "events of threads have no CPU");
    assert_eq!(lines(&["--where", "tgid == 1200"]), 4);
    assert_eq!(lines(&["--where", "tgid == 20"]), 2, "fields of that name are meant, too");
    assert_eq!(lines(&["--where", "tid == 1201"]), 2, "REQUEST has a field of that name");
    assert_eq!(lines(&["--event", "TASK", "--where", "tid == 31"]), 3);
    assert_eq!(lines(&["--event", "request", "--where", "verb == 'PUT'"]), 1);
    let csv = out(&["cat", "v2.klog", "--format", "csv", "--event", "SCHEDIN"]);
    assert!(csv.starts_with("time,cpu,serial,event,pid,prio,tgid\n"), "no program logs it: {csv}");
    let script = "import json, csv\n\
        rows = [json.loads(l) for l in open('v2.json')]\n\
        table = list(csv.DictReader(open('v2.csv', newline='')))\n\
        assert [r.get('cpu') for r in rows] == [int(r['cpu']) if r['cpu'] else None for r in \
        table]\n\
        request = next(i for i, r in enumerate(rows) if r['event'] == 'REQUEST')\n\
        print(rows[request]['tid'], rows[request]['tid_'], table[request]['tid'], \
        table[request]['tid_'])";
    if let Some(found) = checked("python3", &["-c", script]) {
        assert_eq!(found.trim_end(), "1201 7 1201 7");
    }
    let script = r#"my $l = do "./v2.pl"; die $@ unless ref $l eq "ARRAY";
        my @of = grep { !defined $_->{header}{cpu} } @$l; print scalar @of,
            " $of[0]{header}{tid}";"#;
    if let Some(found) = checked("perl", &["-we", script]) {
        assert_eq!(found, "7 31");
    }
}

#[test]
fn errors_are_reported() {
    let says = |words: &[&str], text: &str| {
        let (code, error) = refused(words);
        assert_eq!(code, Some(2), "{words:?}");
        assert!(error.contains(text), "{words:?}: {error}");
    };
    says(&["cat", "v1.klog", "--event", "SCHEDINN"], "did you mean `SCHEDIN`");
    says(&["cat", "v1.klog", "--where", "pri == 1"], "no event of this log has a field 'pri'");
    says(&["cat", "v1.klog", "--cpu", "3-1"], "write CPU numbers");
    says(&["cat", "v1.klog", "--from", "soon"], "write seconds");
    says(&["cat", "no-such.klog"], "no-such.klog: No such file");
    says(&["cat", "v1.txt"], "v1.txt: this is not a klogger log");
    says(&["cat", "."], "there are no segments of a recording here");
}

#[test]
fn exports_are_written_to_the_right_places() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("x.klog");
    fs::copy(logs().join("v1.klog"), &log).expect("copied");
    let log = log.to_str().expect("UTF-8");
    for (kind, file, golden) in [
        ("json", "x.klog.json", "v1.json"),
        ("csv", "x.klog.csv", "v1.csv"),
        ("perl", "x.klog.pl", "v1.pl"),
    ] {
        out(&["export", log, "--to", kind]);
        let (found, expected) = (fs::read(dir.path().join(file)), fs::read(logs().join(golden)));
        assert_eq!(found.expect(file), expected.expect(golden));
    }
    assert_eq!(out(&["export", log]).trim_end(), format!("{log}-parquet"));
    assert!(dir.path().join("x.klog-parquet/meta.json").exists());
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["x.klog", "x.klog-parquet", "x.klog.csv", "x.klog.json", "x.klog.pl"],
        "nothing else is left behind"
    );
}

#[test]
fn a_cut_log_is_read_with_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("cut.klog");
    let bytes = fs::read(logs().join("v1.klog")).expect("the golden log");
    fs::write(&log, &bytes[..bytes.len() - 30]).expect("written");
    let log = log.to_str().expect("UTF-8");
    for command in ["cat", "info"] {
        let output = klogger(&[command, log]);
        assert!(output.status.success());
        let said =
            String::from_utf8_lossy(if command == "cat" { &output.stderr } else { &output.stdout })
                .into_owned();
        assert!(said.contains("recorder was killed") || said.contains("recorder_killed"), "{said}");
    }
}

/// v3.klog without its ledger and what follows, as a recorder leaves it that has not ended. Returns
/// the file with the recorder's lock.
fn unfinished(path: &Path) -> fs::File {
    let bytes = fs::read(logs().join("v3.klog")).expect("the log can be read");
    let reader = Reader::from_bytes(bytes.clone()).expect("a log");
    let ledger = reader.blocks().iter().find(|b| b.header.kind == Kind::Ledger).expect("a ledger");
    fs::write(path, &bytes[..ledger.offset as usize]).expect("the file can be written");
    let file = fs::OpenOptions::new().write(true).open(path).expect("the file can be opened");
    lock::lock(&file).expect("nobody else has the lock");
    file
}

#[test]
fn a_log_that_is_still_being_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("a.klog");
    let lock = unfinished(&log);
    let log = log.to_str().expect("UTF-8");
    let line = "klogger: a.klog is still being written: its events up to now end at 2.500000000 s";
    let whole = klogger(&["cat", "v3.klog"]).stdout;
    for words in [&["cat", log][..], &["info", log], &["export", log], &["export", log]] {
        let output = klogger(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let (first, rest) = said.split_once('\n').expect("a line");
        assert_eq!(first, line, "{words:?}");
        // The log has lost events.
        assert!(rest.is_empty() || rest.starts_with("klogger: warning: 5 events were lost"));
        if words[0] == "cat" {
            assert!(!output.stdout.is_empty() && whole.starts_with(&output.stdout));
        }
    }
    // The lock ends with the recorder. Tables that were made before are made again.
    drop(lock);
    let end = "or its machine crashed); 'klogger rescue' may find its last events";
    for words in [&["cat", log][..], &["export", log]] {
        let output = klogger(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().expect("a line");
        assert!(first.ends_with(end) && !said.contains("being written"), "{said}");
    }
}
