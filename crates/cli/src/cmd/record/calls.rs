// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls among the words of `-e`: by name, by class, and excluded, as strace has them.
//!
//! They are recorded with the schema `syscalls`, whose probes are attached to these calls only.

use super::what::What;
use crate::failure::Failure;
use klogger_codegen::KernelTypes;
use klogger_schema::model::Schema;
use klogger_schema::nearest::did_you_mean;
use klogger_schema::system_calls::Machine;
use klogger_schema::system_calls::classes::{CLASSES, Class};
use klogger_schema::wildcard;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use std::collections::BTreeSet;

/// The schema of all system calls.
pub const SCHEMA: &str = "syscalls";
/// The word for all of them.
const ALL: &str = "all";

/// The system calls that words name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Empty: none was named, or all.
    pub calls: BTreeSet<String>,
    /// All were named, also numbers without a name.
    pub all: bool,
    /// Some were named by a class, or are all but those that were excluded.
    pub by_class: bool,
    /// The words that name no system call.
    pub others: Vec<String>,
}

/// A word of `-e` without what users of strace write before it; whether it excludes; and whether it
/// can only be a system call.
fn bare(word: &str) -> (&str, bool, bool) {
    let rest = word.strip_prefix("trace=").unwrap_or(word);
    let name = rest.strip_prefix('!').unwrap_or(rest);
    let excludes = name.len() < rest.len();
    (name, excludes, excludes || rest.len() < word.len() || name.starts_with('%'))
}

fn is_all(name: &str) -> bool {
    name.strip_prefix('%').unwrap_or(name) == ALL
}

/// What a word names: a system call of this machine, or a class.
fn calls_of(name: &str) -> Option<(BTreeSet<String>, bool)> {
    let all = Machine::here().calls();
    if let Some(class) = Class::of(name) {
        let of_class = class.calls().filter(|call| all.contains_key(call));
        return Some((of_class.map(String::from).collect(), true));
    }
    if is_all(name) {
        return Some((all.into_keys().map(String::from).collect(), true));
    }
    all.contains_key(name).then(|| ([name.to_string()].into(), false))
}

/// Finds the system calls among the words. `!` excludes what follows it, as in strace also the
/// further words.
pub fn named(words: &[String]) -> Result<Named, Failure> {
    let mut named = Named::default();
    let mut excluding = false;
    for word in words {
        let (name, excludes, only) = bare(word);
        let Some((calls, by_class)) = calls_of(name) else {
            if only || (excluding && !wildcard::is_pattern(name)) {
                return Err(unknown(name));
            }
            named.others.push(word.clone());
            continue;
        };
        if excludes && !excluding && named.calls.is_empty() {
            named.calls = calls_of(ALL).map(|(all, _)| all).unwrap_or_default();
            named.by_class = true;
        }
        excluding |= excludes;
        named.by_class |= by_class;
        match excluding {
            true => named.calls.retain(|call| !calls.contains(call)),
            false => named.calls.extend(calls),
        }
    }
    if !excluding && words.iter().any(|word| is_all(bare(word).0)) {
        named.calls.clear();
        named.all = true;
    } else if named.calls.is_empty() && (excluding || named.by_class) {
        return Err(Failure::new("-e excludes every system call that it names")
            .help("name fewer after '!'"));
    }
    Ok(named)
}

fn unknown(name: &str) -> Failure {
    let bare = name.strip_prefix('%').unwrap_or(name);
    let failure = Failure::new(format!("this machine has no system call '{name}'"));
    failure.help(nearest(bare).unwrap_or_else(|| {
        let classes: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        format!(
            "'klogger places {bare}' lists those with a word; classes are {}",
            classes.join(", ")
        )
    }))
}

/// The call or class whose name is similar.
pub fn nearest(name: &str) -> Option<String> {
    let classes = CLASSES.iter().map(|class| class.name);
    did_you_mean(name, Machine::here().calls().into_keys().chain(classes))
}

/// Takes the system calls out of `-e`, for the schema that records them. What is neither a call nor
/// looks like an event is an error where the kernel's events cannot be listed.
pub fn take(what: &mut What) -> Result<(), Failure> {
    let found = named(&what.events)?;
    what.events = found.others;
    if found.calls.is_empty() && !found.all {
        return Ok(());
    }
    record(what, found.calls);
    check_others(&what.events)
}

/// Has these calls recorded.
pub fn record(what: &mut What, calls: BTreeSet<String>) {
    let is_there = what.schemas.iter().any(|word| word.split(',').any(|name| name == SCHEMA));
    if !is_there {
        what.schemas.push(SCHEMA.into());
    }
    what.calls = calls;
}

/// Words beside system calls, if they are not events either.
pub fn check_others(words: &[String]) -> Result<(), Failure> {
    let events = || host_kernel::types().map(|types: KernelTypes| types.trace_events().is_ok());
    match words.iter().find(|word| !word.contains([':', '*', '?', '_'])) {
        Some(word) if !events().unwrap_or(false) => Err(unknown(word)),
        _ => Ok(()),
    }
}

/// Attaches the probes of the schema to these calls only; empty: to all.
pub fn narrow(units: &mut [CompiledSchema], calls: &BTreeSet<String>) {
    let only: Vec<String> = calls.iter().cloned().collect();
    for unit in units.iter_mut().filter(|unit| unit.schema.name == SCHEMA) {
        let targets = unit.schema.probes.iter_mut().flat_map(|probe| &mut probe.targets);
        let targets = targets.filter(|target| target.kind.is_system_call());
        targets.for_each(|target| target.only = only.clone());
    }
}

/// Whether the probes of a schema name a call, so that its lines of it are more than those of
/// `syscalls`.
pub fn has_call(schema: &Schema, word: &str) -> bool {
    let targets = schema.probes.iter().flat_map(|probe| &probe.targets);
    let mut calls = targets.filter(|target| target.kind.is_system_call());
    calls.any(|target| target.patterns().any(|name| name == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Named, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        named(&words).map_err(|failure| failure.to_string())
    }

    fn calls(words: &[&str]) -> Vec<String> {
        of(words).unwrap().calls.into_iter().collect()
    }

    #[test]
    fn words_name_calls_and_classes() {
        assert_eq!(calls(&["fsync", "trace=ppoll"]), ["fsync", "ppoll"]);
        for word in ["network", "%network", "net", "trace=network", "trace=%net"] {
            let found = of(&[word]).unwrap();
            assert!(found.calls.contains("connect") && found.by_class, "{word}");
            assert!(!found.calls.contains("fsync"), "{word}");
        }
        let mixed = of(&["fsync", "sched_switch", "block:*"]).unwrap();
        assert_eq!(mixed.others, ["sched_switch", "block:*"]);
        assert!(!mixed.by_class);
    }

    #[test]
    fn exclamation_marks_exclude() {
        assert!(of(&["fsync", "trace=all"]).unwrap().all);
        let all = Machine::here().calls().len();
        assert_eq!(calls(&["!futex"]).len(), all - 1);
        assert_eq!(calls(&["trace=!futex", "fsync"]).len(), all - 2);
        let network = calls(&["network"]);
        let without = calls(&["network", "!connect"]);
        assert_eq!(without.len(), network.len() - 1);
        assert!(!without.contains(&"connect".to_string()));
        assert!(of(&["!all"]).is_err());
    }

    #[test]
    fn what_can_only_be_a_call_is_refused() {
        for (word, name, help) in [
            ("trace=fsnc", "fsnc", "did you mean `fsync`?"),
            ("!futx", "futx", "did you mean `futex`?"),
            ("%netwrk", "%netwrk", "did you mean `network`?"),
        ] {
            let said = of(&[word]).unwrap_err();
            assert!(
                said.starts_with(&format!("this machine has no system call '{name}'")),
                "{said}"
            );
            assert!(said.contains(help), "{said}");
        }
        assert_eq!(of(&["fsnc"]).unwrap().others, ["fsnc"]);
    }
}
