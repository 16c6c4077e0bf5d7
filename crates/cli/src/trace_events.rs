// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `-e NAME`: a schema of trace events, made from what the kernel says of them.

use crate::cmd::record::calls;
use crate::failure::Failure;
use crate::messages;
use crate::schemata;
use klogger_codegen::trace_event::{self, Made, TraceEvent};
use klogger_codegen::{KernelTypes, Refusal};
use klogger_programs::Programs;
use klogger_schema::include::Includes;
use klogger_schema::model::{ProbeKind, Schema};
use klogger_schema::nearest::did_you_mean;
use klogger_schema::{Options, parse, wildcard};
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;

/// Trace events of a recording at most: the kernel takes some hundredths of a second to attach a
/// program to one, and as long to detach it.
const EVENTS_MAX: usize = 128;
/// The file name of such a schema, in messages.
const FILE: &str = "events.klogger";

/// The text of a schema of all events that match, each once.
pub fn text(patterns: &[String]) -> Result<String, Failure> {
    made(patterns, &host_kernel::types()?).map(|made| made.text)
}

/// The schema, compiled. Says which fields it leaves out.
pub fn unit(patterns: &[String]) -> Result<CompiledSchema, Failure> {
    let made = made(patterns, &host_kernel::types()?)?;
    for (event, fields) in &made.left_out {
        messages::note(&format!(
            "{event}: without {}, which {} neither a number nor a text",
            fields.join(", "),
            if fields.len() == 1 { "is" } else { "are" }
        ));
    }
    schemata::compiled(parsed(&made.text)?, &Programs::default())
}

fn parsed(text: &str) -> Result<Schema, Failure> {
    parse(FILE, text, &Options::default()).map(|parsed| parsed.schema).map_err(|found| {
        messages::diagnostics(FILE, text, &Includes::default(), &found);
        Failure::printed()
    })
}

fn made(patterns: &[String], types: &KernelTypes) -> Result<Made, Failure> {
    let known = types.trace_events().map_err(|e| {
        Failure::new(e).help("run klogger as root, on a kernel that has CONFIG_EVENT_TRACING")
    })?;
    let mut events: Vec<TraceEvent> = Vec::new();
    let mut refused = None;
    for pattern in patterns {
        for full in matching(pattern, &known)? {
            if events.iter().all(|e| e.full_name() != *full)
                && let Some(event) = types.trace_event(full).map_err(Failure::new)?
            {
                match event.is_made() {
                    true => refused = Some(event.made()),
                    false => events.push(event),
                }
            }
        }
    }
    // A pattern that names others as well names these in vain.
    let is_pattern = patterns.iter().any(|pattern| wildcard::is_pattern(pattern));
    if let Some(Refusal { message, help, .. }) =
        refused.filter(|_| events.is_empty() || !is_pattern)
    {
        return Err(Failure { help, ..Failure::new(message) });
    }
    match events.len() {
        n if n > EVENTS_MAX => Err(Failure::new(format!(
            "-e names {n} trace events, and a recording has at most {EVENTS_MAX}"
        ))
        .help("name fewer: 'klogger tracepoints WORD' lists those with a word")),
        _ => Ok(trace_event::schema(&events, types)),
    }
}

/// The events that a value of `-e` names, as `GROUP:NAME`.
fn matching<'a>(pattern: &str, known: &'a [String]) -> Result<Vec<&'a String>, Failure> {
    let of_group = pattern.contains(':');
    let fits = |full: &&String| {
        let own = if of_group { full.as_str() } else { name_of(full) };
        wildcard::matches(pattern, own) && ProbeKind::TraceEvent.wrong(full).is_none()
    };
    let found: Vec<&String> = known.iter().filter(fits).collect();
    if found.is_empty() { Err(unknown(pattern, known)) } else { Ok(found) }
}

fn name_of(full: &str) -> &str {
    full.split_once(':').map_or(full, |(_, name)| name)
}

/// The kinds of events of perf that are samples, and not places in the kernel.
const SAMPLED: [&str; 12] = [
    "cycles",
    "instructions",
    "cache-misses",
    "cache-references",
    "branches",
    "branch-misses",
    "cpu-clock",
    "task-clock",
    "page-faults",
    "faults",
    "context-switches",
    "cs",
];

fn unknown(pattern: &str, known: &[String]) -> Failure {
    let is_known = |name: &str| known.iter().any(|full| name_of(full) == name);
    let list = || "'klogger tracepoints' lists them".to_string();
    if wildcard::is_pattern(pattern) {
        return Failure::new(format!("no trace event matches '{pattern}'")).help(list());
    }
    let failure = Failure::new(format!("this kernel has no trace event '{pattern}'"));
    let call = pattern.strip_prefix("trace=").unwrap_or(pattern);
    if is_known(&format!("sys_enter_{call}")) {
        return failure.help(format!(
            "for the system call: -e sys_enter_{call} -e sys_exit_{call}, or -e 'sys_*_{call}'"
        ));
    }
    if let Some(rest) = ["tracepoint:", "t:"].iter().find_map(|word| pattern.strip_prefix(word)) {
        return failure.help(format!("omit the first word: -e {rest}"));
    }
    if SAMPLED.contains(&pattern) {
        return failure.help(
            "klogger logs each event and takes no samples; 'klogger tracepoints' lists the events",
        );
    }
    let candidates: Vec<&str> = match pattern.contains(':') {
        true => known.iter().map(String::as_str).collect(),
        false => known.iter().map(|full| name_of(full)).collect(),
    };
    let similar = did_you_mean(pattern, candidates).or_else(|| calls::nearest(pattern));
    failure.help(similar.unwrap_or_else(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        [
            "block:block_rq_issue",
            "sched:sched_switch",
            "sched:sched_waking",
            "syscalls:sys_enter_openat",
            "syscalls:sys_exit_openat",
        ]
        .map(String::from)
        .to_vec()
    }

    fn found(pattern: &str) -> Result<Vec<String>, String> {
        let known = known();
        let found = matching(pattern, &known);
        found.map(|f| f.into_iter().cloned().collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn names_with_and_without_their_group() {
        for pattern in ["sched_switch", "sched:sched_switch", "sched*:*_switch", "*switch"] {
            assert_eq!(found(pattern).unwrap(), ["sched:sched_switch"], "{pattern}");
        }
        assert_eq!(found("sched:*").unwrap().len(), 2);
        assert_eq!(found("sys_*_openat").unwrap().len(), 2);
    }

    #[test]
    fn what_is_unknown_has_a_remedy() {
        for (pattern, message) in [
            (
                "sched_swich",
                "this kernel has no trace event 'sched_swich'\n  help: did you mean \
              `sched_switch`?",
            ),
            (
                "sched:sched_swich",
                "this kernel has no trace event 'sched:sched_swich'\n  help: \
              did you mean `sched:sched_switch`?",
            ),
            (
                "openat",
                "this kernel has no trace event 'openat'\n  help: for the system call: -e \
              sys_enter_openat -e sys_exit_openat, or -e 'sys_*_openat'",
            ),
            (
                "trace=openat",
                "this kernel has no trace event 'trace=openat'\n  help: for the \
              system call: -e sys_enter_openat -e sys_exit_openat, or -e 'sys_*_openat'",
            ),
            (
                "tracepoint:sched:sched_switch",
                "this kernel has no trace event \
              'tracepoint:sched:sched_switch'\n  help: omit the first word: -e sched:sched_switch",
            ),
            (
                "cycles",
                "this kernel has no trace event 'cycles'\n  help: klogger logs each event \
              and takes no samples; 'klogger tracepoints' lists the events",
            ),
            ("zzz:*", "no trace event matches 'zzz:*'\n  help: 'klogger tracepoints' lists them"),
            ("", "this kernel has no trace event ''\n  help: 'klogger tracepoints' lists them"),
        ] {
            assert_eq!(found(pattern).unwrap_err(), message);
        }
    }
}
