// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the values of options and arguments may be, by the name that the help has for them. A new
//! option with a value of a known name is completed without further ado.

use super::known::{self, Named};
use super::line::Line;
use clap::{Arg, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use klogger_log::filter::GENERAL;
use klogger_os::{patient, processes, recorders};
use klogger_schema::model::ProbeKind;
use klogger_schema::system_calls::Machine;
use klogger_schema::system_calls::classes::CLASSES;
use klogger_toolchain::host_kernel;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::Arc;

/// The candidate that stands for files and folders, which shells complete themselves.
pub const FILES: &str = "\u{1}files";

type Values = fn(&Line, &str) -> Vec<Named>;

/// A row for each name of values that are completed.
const ROWS: &[(&[&str], Values)] = &[
    (&["SCHEMA"], schemata),
    (&["EVENT", "EVENT,..."], |line, current| list(current, event_names(line))),
    (&["EVENT|CALL"], events_and_calls),
    (&["EVENT=N/s"], |line, _| with("=", event_names(line))),
    (&["EVENT: EXPRESSION"], condition),
    (&["EVENT where EXPRESSION: ACTION"], |line, _| with(" where ", event_names(line))),
    (&["EXPRESSION", "CONDITION"], expression),
    (&["PID"], |_, current| list(current, running())),
    (&["PID|FILE", "NAMESPACE"], |_, _| [running(), files()].concat()),
    (&["COMM"], |_, _| named(running())),
    (&["USER"], |_, current| list(current, users())),
    (&["RECORDER"], |_, _| recorders()),
    (&["TRACEPOINT"], |_, current| list(current, tracepoints(current))),
    (&["KIND"], |_, current| list(current, kinds())),
    (&["ANALYSIS"], |_, _| known::of_schemata("analyses", "sql")),
    (&["STUDY"], |_, _| known::of_schemata("studies", "py")),
    (
        &[
            "FILE",
            "DEVICE",
            "DIR",
            "PATH",
            "OUT",
            "LOG",
            "FOLDER",
            "KERNEL",
            "LINUX_DIR",
            "A",
            "B",
            "FILE.sql",
            "[FILE] BEGIN END",
        ],
        |_, _| files(),
    ),
];

/// Names of values that cannot be listed, or have few that the help names.
#[cfg(test)]
pub const FREE: &[&str] = &[
    "ACTION",
    "AGE|SIZE",
    "CPU",
    "CPU,...",
    "COMMAND",
    "EXECUTOR",
    "FIELD",
    "FORMAT",
    "GROUPS",
    "HOST",
    "KEY",
    "LIST",
    "MARK",
    "MODE",
    "N",
    "N|SIZE|AGE",
    "NAME",
    "NAME=VALUE",
    "NUMBER",
    "OPTION",
    "PATTERN",
    "PERCENT",
    "PROGRAM",
    "QUERY",
    "RULE",
    "S",
    "SIZE",
    "SPARK",
    "TEXT",
    "TID",
    "TIME",
    "VERSION",
    "WORD",
    "WORDS",
    "ENGINE",
    "PARAMETER=VALUE",
    "PART",
    "WHAT",
];

/// The name of an argument's value.
pub fn name_of(command: &str, arg: &Arg) -> String {
    let named = arg.get_value_names().and_then(|names| Some(names.first()?.to_string()));
    let name = named.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    match (name.as_str(), arg.get_long(), command) {
        ("PID", Some("recorder"), _) => "RECORDER".into(),
        ("NAME", Some("analysis"), _) => "ANALYSIS".into(),
        ("NAME", Some("event"), "record" | "show") => "TRACEPOINT".into(),
        ("NAME", Some("comm"), _) => "COMM".into(),
        ("NAME", None, "study") => "STUDY".into(),
        _ => name,
    }
}

/// The completer of an argument, if its values can be completed and clap does not know them.
pub fn completer(command: &str, arg: &Arg, line: &Arc<Line>) -> Option<ArgValueCompleter> {
    let takes_values = arg.get_action().takes_values();
    if !takes_values || !arg.get_possible_values().is_empty() {
        return None;
    }
    let values = values_of(&name_of(command, arg), arg.get_value_hint())?;
    let line = line.clone();
    Some(ArgValueCompleter::new(move |current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        let fits = |(value, _): &Named| value.starts_with(current) || value.ends_with(FILES);
        let all = values(&line, current).into_iter().filter(fits);
        all.map(|(value, help)| CompletionCandidate::new(value).help(Some(help.into()))).collect()
    }))
}

/// None: they cannot be completed.
pub fn values_of(name: &str, hint: ValueHint) -> Option<Values> {
    let is_path = matches!(hint, ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    let row = ROWS.iter().find(|(names, _)| names.contains(&name)).map(|(_, values)| *values);
    row.or(is_path.then_some(|_, _| files()))
}

fn files() -> Vec<Named> {
    vec![(FILES.into(), String::new())]
}

/// Kinds of attach points.
fn kinds() -> Vec<Named> {
    ProbeKind::ALL.map(|kind| (kind.word().into(), kind.noun().into())).into()
}

/// All names after the last comma, but those before it.
fn list(current: &str, names: Vec<Named>) -> Vec<Named> {
    let start = current.rfind(',').map_or(0, |at| at + 1);
    let (before, _) = current.split_at(start);
    let is_new = |(name, _): &Named| !before.split(',').any(|known| known == name);
    let names = names.into_iter().filter(is_new);
    names.map(|(name, help)| (format!("{before}{name}"), help)).collect()
}

fn with(end: &str, names: Vec<Named>) -> Vec<Named> {
    names.into_iter().map(|(name, help)| (format!("{name}{end}"), help)).collect()
}

/// Names, and files: `./mine.klogger`.
fn schemata(line: &Line, current: &str) -> Vec<Named> {
    let given = line.values("-s", "--schema");
    let mut names = known::schema_names();
    names.push(("programs".into(), "the events of all programs".into()));
    names.retain(|(name, _)| !given.contains(&name.as_str()));
    match current.contains(',') {
        true => list(current, names),
        false => [list(current, names), files()].concat(),
    }
}

/// Events, system calls and classes of them; trace events if a group is named.
fn events_and_calls(line: &Line, current: &str) -> Vec<Named> {
    if current.contains(':') {
        return list(current, tracepoints(current));
    }
    let calls = Machine::here().calls().into_keys();
    let calls = calls.map(|call| (call.to_string(), "a system call".to_string()));
    let classes = CLASSES.iter().map(|class| (format!("%{}", class.name), class.what.to_string()));
    list(current, event_names(line).into_iter().chain(classes).chain(calls).collect())
}

fn event_names(line: &Line) -> Vec<Named> {
    let events = known::events(line).into_iter();
    events.map(|event| (event.name, event.doc.unwrap_or_default())).collect()
}

/// `EVENT:`, and then its fields.
fn condition(line: &Line, current: &str) -> Vec<Named> {
    let Some((event, _)) = current.split_once(':') else {
        return with(":", event_names(line));
    };
    let mut events = known::events(line);
    events.retain(|e| e.name.eq_ignore_ascii_case(event.trim()));
    last_word(current, known::fields(&events))
}

/// The fields of the events of `--event`, or of all.
fn expression(line: &Line, current: &str) -> Vec<Named> {
    let chosen = line.values("-e", "--event");
    let mut events = known::events(line);
    events.retain(|e| chosen.is_empty() || chosen.iter().any(|c| e.name.eq_ignore_ascii_case(c)));
    let general = GENERAL.map(|name| (name.to_string(), "of every event".to_string()));
    last_word(current, [known::fields(&events), general.to_vec()].concat())
}

/// The names in the place of the last word of an expression; none in a text.
fn last_word(current: &str, names: Vec<Named>) -> Vec<Named> {
    if current.matches('"').count() % 2 == 1 {
        return Vec::new();
    }
    let word = current.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let before = &current[..word.map_or(0, |at| at + 1)];
    names.into_iter().map(|(name, help)| (format!("{before}{name}"), help)).collect()
}

/// Processes that are no threads of the kernel.
fn running() -> Vec<Named> {
    let is_program = |pid: &u32| match patient::read(*pid, "cmdline") {
        Ok(words) => !words.is_empty(),
        // It hangs.
        Err(error) => error.kind() == std::io::ErrorKind::TimedOut,
    };
    let pids = processes::all_processes().into_iter().filter(is_program);
    let name = |pid| processes::thread(pid, pid).map(|t| String::from_utf8_lossy(&t.comm).into());
    pids.map(|pid| (pid.to_string(), name(pid).unwrap_or_default())).collect()
}

/// Their names, which may be anything: those that are words.
fn named(processes: Vec<Named>) -> Vec<Named> {
    let names: BTreeSet<String> = processes.into_iter().map(|(_, name)| name).collect();
    let names = names.into_iter().filter(|name| known::is_word(name));
    names.map(|name| (name, "a process".into())).collect()
}

fn users() -> Vec<Named> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(':').next());
    let names = names.filter(|name| known::is_word(name));
    names.map(|name| (name.into(), "a user".into())).collect()
}

/// Those that tracefs shows this user, by name, or as `group:name` once that is begun.
fn tracepoints(current: &str) -> Vec<Named> {
    let last = current.rsplit(',').next().unwrap_or(current);
    let full = last.contains(':');
    let groups = host_kernel::groups().into_iter().filter(|(name, _)| known::is_word(name));
    let shown = |name: String, group: &str| if full { format!("{group}:{name}") } else { name };
    groups.map(|(name, group)| (shown(name, &group), group.clone())).collect()
}

fn recorders() -> Vec<Named> {
    // Without a list there is nothing to complete.
    let mut pids: Vec<u32> =
        recorders::recordings().unwrap_or_default().iter().map(|found| found.pid).collect();
    pids.dedup();
    pids.iter().map(|pid| (pid.to_string(), "a recording".into())).collect()
}
