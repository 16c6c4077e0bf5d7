// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The options of the programs `klogger-NAME`, for completions and man pages. A test of Python
//! writes the file (python/tests/test_commands.py).

use crate::external;
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::Deserialize;
use std::collections::BTreeMap;

const FILE: &str = include_str!("../../../python/commands.json");

#[derive(Deserialize)]
struct Program {
    about: String,
    usage: String,
    /// What follows the options: examples.
    after: String,
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
struct Argument {
    /// None: it is no option, but an argument.
    flags: Vec<String>,
    /// None: it takes no value.
    value: Option<String>,
    /// The only values there are.
    values: Vec<String>,
    path: bool,
    many: bool,
    help: String,
}

/// All of them, as commands of klogger.
pub fn commands() -> Vec<Command> {
    let mut described: BTreeMap<String, Program> = serde_json::from_str(FILE).unwrap_or_default();
    let programs = external::programs();
    programs
        .map(|(name, about)| match described.remove(name) {
            Some(program) => command(name, about, program),
            None => Command::new(name).about(about),
        })
        .collect()
}

fn command(name: &'static str, about: &'static str, program: Program) -> Command {
    Command::new(name)
        .about(about)
        .long_about(program.about)
        .override_usage(program.usage)
        .after_help(program.after)
        .args(program.arguments.into_iter().enumerate().map(argument))
}

fn argument((at, described): (usize, Argument)) -> Arg {
    let named = |flag: &&String| flag.starts_with("--");
    let long = described.flags.iter().find(named).map(|flag| flag[2..].to_string());
    let short = described.flags.iter().find(|f| !named(f)).and_then(|f| f.chars().nth(1));
    let id = long.clone().unwrap_or_else(|| format!("argument {at}"));
    let mut arg = Arg::new(id).help(described.help);
    // A default value of its own in the text of the help is enough.
    arg = match (described.value, described.flags.is_empty(), described.many) {
        (None, ..) => arg.action(ArgAction::SetTrue),
        (Some(value), false, false) => arg.value_name(value).action(ArgAction::Append),
        (Some(value), true, false) => arg.value_name(value),
        (Some(value), _, true) => arg.value_name(value).num_args(1..),
    };
    if described.path {
        arg = arg.value_hint(ValueHint::AnyPath);
    }
    if !described.values.is_empty() {
        arg = arg.value_parser(described.values);
    }
    match (long, short) {
        (Some(long), Some(short)) => arg.long(long).short(short),
        (Some(long), None) => arg.long(long),
        (None, Some(short)) => arg.short(short),
        (None, None) => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_options() {
        let all = commands();
        assert_eq!(all.len(), external::programs().count());
        for command in &all {
            command.clone().debug_assert();
            assert!(command.get_arguments().count() > 0, "{}", command.get_name());
        }
        let report = all.iter().find(|c| c.get_name() == "report").unwrap();
        let names: Vec<_> = report.get_arguments().filter_map(Arg::get_long).collect();
        assert!(names.contains(&"html") && names.contains(&"analysis"), "{names:?}");
    }
}
