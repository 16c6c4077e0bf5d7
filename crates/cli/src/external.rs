// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger NAME ...` for a NAME that is not built in: runs the program `klogger-NAME`, as git and
//! cargo do.

use crate::failure::{Failure, Outcome};
use crate::messages;
use crate::tips;
use clap::CommandFactory;
use klogger_os::confine::find_program;
use klogger_os::files::is_there;
use klogger_schema::nearest::did_you_mean;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The programs and their descriptions are in two tables of this file.
const LIST: &str = include_str!("../../../python/pyproject.toml");

/// From nothing to an answer; tests/first_hour runs them.
const FIRST: &str =
    "  klogger why -- ./program                         where its time went, and why
  klogger list                                     what can be recorded
  klogger record -s scheduler -- ./program         who ran where while it did
  klogger report scheduler.klog                    what kept it from its CPU
  klogger report scheduler.klog --html slow.html   the same with pictures";

/// A program and its description.
type Program = (&'static str, &'static str);

/// The lines `NAME = "TEXT"` of a table.
fn table(name: &str) -> impl Iterator<Item = Program> {
    let head = format!("[tool.klogger.{name}]");
    let lines = LIST.lines().skip_while(move |line| *line != head).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.strip_suffix('"')?.split_once(" = \""))
}

/// All of them.
pub fn programs() -> impl Iterator<Item = Program> {
    table("analyses").chain(table("elsewhere"))
}

/// Whether it is where it would be run from.
pub fn has(name: &str) -> bool {
    let program = format!("klogger-{name}");
    beside(&program).is_some() || find_program(&program).is_some()
}

/// The list at the end of `klogger --help`.
pub fn help() -> String {
    let width = programs().map(|(name, _)| name.len()).max().unwrap_or(0);
    let list = |table: &mut dyn Iterator<Item = Program>| -> Vec<String> {
        table.map(|(name, about)| format!("  {name:width$}  {about}")).collect()
    };
    let analyses = list(&mut table("analyses")).join("\n");
    let elsewhere = list(&mut table("elsewhere")).join("\n");
    format!(
        "Analyses (programs klogger-NAME on the PATH):\n{analyses}\n\n\
         Elsewhere (also programs):\n{elsewhere}\n\n\
         Why is a program slow? Five commands (recording needs root):\n{FIRST}"
    )
}

/// `klogger help report` is `klogger report --help`.
pub fn rewrite_help(words: &mut [OsString]) {
    let is_program = |word: &OsString| programs().any(|(name, _)| *word == *name);
    if let [_, help, name] = words
        && *help == *"help"
        && is_program(name)
    {
        (*help, *name) = (name.clone(), "--help".into());
    }
}

/// Executes the program. Returns only on failure.
pub fn run(words: Vec<OsString>) -> Outcome {
    let mut command = command(&words);
    let error = command.exec();
    Err(cannot_run(&words[0], &command, &error))
}

/// Runs the program as a part of another command: its output, or only its exit code.
pub fn output(words: &[OsString], captured: bool) -> Result<Output, Failure> {
    let mut command = command(words);
    if !captured {
        command.stdout(Stdio::inherit());
    }
    let done = command.stderr(Stdio::inherit()).stdin(Stdio::inherit()).output();
    done.map_err(|error| cannot_run(&words[0], &command, &error))
}

/// The program in the folder of this one.
fn beside(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(program.as_ref());
    // One that cannot be looked at is not passed over: running it says why.
    (!matches!(is_there(&path), Ok(false))).then_some(path)
}

/// Looks for the program beside this one first, then on the PATH.
fn command(words: &[OsString]) -> Command {
    let mut program = OsString::from("klogger-");
    program.push(&words[0]);
    let path = beside(&program).map_or(program, PathBuf::into_os_string);
    let mut command = Command::new(&path);
    command.args(&words[1..]);
    if messages::is_json() {
        command.env("KLOGGER_MESSAGES", "json");
    }
    // Python ignores SIGPIPE and SIGXFSZ when it starts, and cannot tell any more.
    let ignored: Vec<String> = klogger_os::ignored_at_start().iter().map(i32::to_string).collect();
    if !ignored.is_empty() {
        command.env("KLOGGER_IGNORED", ignored.join(","));
    }
    if let Ok(exe) = std::env::current_exe() {
        // The analyses run klogger to make tables.
        command.env("KLOGGER", exe);
    }
    command
}

fn cannot_run(name: &OsStr, command: &Command, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => unknown(&name.to_string_lossy()),
        _ => Failure::new(format!("cannot run {}: {error}", command.get_program().display())),
    }
}

/// No such command: what may have been meant, or why it is not there.
fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!(
        "'{name}' is not a klogger command, and there is no program klogger-{name} on the PATH"
    ));
    if programs().any(|(program, _)| program == name) {
        return failure.help(
            "it is a part of klogger's Python package: 'make install' or 'make wheel' in a \
             checkout, or the PATH that 'make demo' prints",
        );
    }
    let cli = crate::Cli::command();
    let built_in = cli.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name());
    let tip = tips::command(name).map(String::from);
    let names: Vec<&str> = built_in.chain(programs().map(|p| p.0)).collect();
    let begun = || names.iter().find(|n| name.len() > 1 && n.starts_with(name));
    let help = tip
        .or_else(|| begun().map(|whole| format!("did you mean `{whole}`?")))
        .or_else(|| did_you_mean(name, names.iter().copied()));
    failure.help(help.unwrap_or_else(|| "'klogger --help' lists the commands".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_program_that_is_installed_is_in_the_list() {
        let scripts = LIST.lines().filter_map(|line| line.strip_prefix("klogger-"));
        let scripts = scripts.filter_map(|line| Some(line.split_once(" = ")?.0));
        // packaging/klogger-dkms is not a Python program.
        let installed: BTreeSet<&str> = scripts.chain(["dkms"]).collect();
        assert_eq!(programs().map(|p| p.0).collect::<BTreeSet<_>>(), installed);
        assert!(programs().all(|(_, about)| about.len() > 10));
    }

    #[test]
    fn help_of_a_program() {
        let rewritten = |line: &str| {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            rewrite_help(&mut words);
            words.join(OsStr::new(" "))
        };
        assert_eq!(rewritten("klogger help report"), "klogger report --help");
        assert_eq!(rewritten("klogger help record"), "klogger help record");
        assert_eq!(rewritten("klogger help"), "klogger help");
    }

    #[test]
    fn an_unknown_command_may_have_been_misspelt() {
        let help = |name: &str| unknown(name).help.unwrap();
        assert_eq!(help("recrod"), "did you mean `record`?");
        assert_eq!(help("reprot"), "did you mean `report`?");
        assert_eq!(help("script"), "'klogger cat FILE' prints the events of a log");
        assert_eq!(help("rec"), "did you mean `record`?");
        assert_eq!(help("xyzzy"), "'klogger --help' lists the commands");
        assert!(help("sql").starts_with("it is a part of klogger's Python package"));
    }
}
