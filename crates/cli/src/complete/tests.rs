// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

use super::values::{FREE, name_of, values_of};
use super::*;

fn words(line: &str) -> Vec<String> {
    let found = what_follows(Line::of_text(line));
    found.words.into_iter().map(|(word, _)| word).collect()
}

fn has(line: &str, expected: &[&str]) {
    let found = words(line);
    let missing: Vec<_> = expected.iter().filter(|e| !found.iter().any(|f| f == *e)).collect();
    assert!(missing.is_empty(), "'{line}' lacks {missing:?}: {found:?}");
}

#[test]
fn commands_and_programs() {
    has("klogger ", &["record", "report", "sql", "study", "guest", "help"]);
    assert_eq!(words("klogger rep"), ["report"]);
    assert_eq!(words("sudo klogger rep"), ["report"]);
}

#[test]
fn nothing_hidden_is_shown() {
    for line in ["klogger man", "klogger comple", "klogger help man"] {
        assert_eq!(words(line), [""; 0], "{line}");
    }
}

#[test]
fn options_of_every_command() {
    for command in tree(&Arc::default()).get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = command.get_name();
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let longs: Vec<String> =
            shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        let longs: Vec<&str> = longs.iter().map(String::as_str).collect();
        has(&format!("klogger {name} --"), &longs);
        has(&format!("klogger {name} -"), &longs);
    }
    has("klogger report x.klog --h", &["--html"]);
    has("klogger kernel integrate --", &["--dry-run"]);
}

#[test]
fn schemata_after_s() {
    has("klogger record -s ", &["scheduler", "locking", "programs"]);
    has("klogger record -s sched", &["scheduler"]);
    has("klogger guest --schema=sched", &["--schema=scheduler"]);
    assert_eq!(words("klogger record -s scheduler,loc"), ["scheduler,locking"]);
    assert!(what_follows(Line::of_text("klogger record -s ./")).files);
    assert!(!words("klogger record -s scheduler -s ").iter().any(|w| w == "scheduler"));
}

#[test]
fn system_calls_and_their_classes() {
    has("klogger trace -e ", &["fsync", "%network", "SCHEDOUT"]);
    assert_eq!(words("klogger trace -e fsync,fdatas"), ["fsync,fdatasync"]);
    assert_eq!(words("klogger record -e %mem"), ["%memory"]);
}

#[test]
fn events_of_the_schemata_or_of_the_log() {
    assert_eq!(words("klogger record -s scheduler --disable SCHEDO"), ["SCHEDOUT"]);
    assert_eq!(words("klogger enable SCHEDO"), ["SCHEDOUT"]);
    assert_eq!(words("klogger record -s locking --disable SCHEDO"), [""; 0]);
    assert_eq!(words("klogger record -s scheduler --rate-limit FOR"), ["FORK="]);
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/logs/v2.klog");
    has(&format!("klogger cat {log} --event "), &["LOST", "PROCESS_EXISTS"]);
    assert_eq!(words(&format!("klogger cat {log} --event TRY_TO_WA")), [""; 0]);
    assert_eq!(words(&format!("klogger cat {log} -e LOST,PROCESS_EXI")), ["LOST,PROCESS_EXISTS"]);
}

#[test]
fn fields_in_a_condition() {
    let record = "klogger record -s scheduler --where";
    assert_eq!(words(&format!("{record} SCHEDO")), ["SCHEDOUT:"]);
    assert_eq!(words(&format!("{record} 'schedout: pri")), ["schedout: prio"]);
    assert_eq!(
        words(&format!("{record} 'SCHEDOUT: prio < 120 && ne")),
        ["SCHEDOUT: prio < 120 && next"]
    );
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/logs/v2.klog");
    has(&format!("klogger cat {log} --where "), &["time", "cpu", "count"]);
    assert_eq!(
        words(&format!("klogger cat {log} -e LOST --where 'cpu == 0 && cou")),
        ["cpu == 0 && count"]
    );
    assert_eq!(words(&format!("klogger cat {log} --where 'text == \"num")), [""; 0]);
}

#[test]
fn values_that_clap_knows() {
    assert_eq!(words("klogger record --engine us"), ["user"]);
    assert_eq!(words("klogger report x.klog --format js"), ["json"]);
    has("klogger cat --format=", &["--format=text", "--format=json", "--format=csv"]);
}

/// A new option must have a value of a known name, or one that is in the list of others.
#[test]
fn names_of_values_are_known() {
    fn check(command: &clap::Command) {
        let typed = |arg: &&clap::Arg| arg.get_action().takes_values() && !arg.is_hide_set();
        for arg in command.get_arguments().filter(typed) {
            let name = name_of(command.get_name(), arg);
            let known = values_of(&name, arg.get_value_hint()).is_some()
                || !arg.get_possible_values().is_empty()
                || FREE.contains(&name.as_str());
            assert!(known, "{}: {name}: complete it, or add it to FREE", command.get_name());
        }
        command.get_subcommands().filter(|c| !c.is_hide_set()).for_each(check);
    }
    check(&tree(&Arc::default()));
}
