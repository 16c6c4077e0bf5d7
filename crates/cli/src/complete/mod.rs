// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger complete SHELL ...`: what may follow on a command line. The scripts of the shells
//! (`klogger.bash`, `_klogger`, `klogger.fish` in this folder) call it at each Tab.

mod known;
mod line;
mod values;

use crate::cmd::Outcome;
use crate::described;
use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, complete};
use line::Line;
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use values::FILES;

/// A shell, by its name.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The scripts, by the name under which each shell looks for them.
pub const SCRIPTS: [(&str, &str); 3] = [
    ("klogger.bash", include_str!("klogger.bash")),
    ("_klogger", include_str!("_klogger")),
    ("klogger.fish", include_str!("klogger.fish")),
];

/// Print what may follow on a command line
///
/// The first line is `files` if a file or a folder may, else `words`; the others are words.
#[derive(clap::Args)]
pub struct Args {
    shell: Shell,
    /// bash: the command line up to the cursor, and the word there as bash sees it; zsh, fish: the
    /// words up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub fn run(args: Args) -> Outcome {
    let line = match args.shell {
        Shell::Bash => Line::of_text(args.words.first().map_or("", String::as_str)),
        Shell::Zsh | Shell::Fish => Line::of_words(&args.words),
    };
    let found = what_follows(line.clone());
    // bash replaces only what follows its last separator, for instance a colon.
    let word = args.words.get(1).map_or("", String::as_str);
    let kept = match args.shell {
        Shell::Bash => line.current.strip_suffix(word).unwrap_or(""),
        Shell::Zsh | Shell::Fish => "",
    };
    let mut text = String::from(if found.files { "files\n" } else { "words\n" });
    for (value, help) in &found.words {
        let value = value.strip_prefix(kept).unwrap_or(value);
        let _ = match args.shell {
            Shell::Bash => writeln!(text, "{value}"),
            Shell::Zsh => {
                writeln!(text, "{}:{help}", value.replace('\\', "\\\\").replace(':', "\\:"))
            }
            Shell::Fish => writeln!(text, "{value}\t{help}"),
        };
    }
    say_part!("{text}");
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Default)]
struct Found {
    /// Each with one line of help.
    words: Vec<(String, String)>,
    /// Files and folders, which the shell itself completes.
    files: bool,
}

/// What may stand in the place of the word that is being completed.
fn what_follows(line: Line) -> Found {
    let current = line.current.clone();
    let words: Vec<OsString> = line.words.iter().map(OsString::from).collect();
    let line = Arc::new(line);
    let at = |word: &str| {
        let words: Vec<OsString> = words.iter().cloned().chain([word.into()]).collect();
        complete(&mut tree(&line), words, line.words.len(), None).unwrap_or_default()
    };
    let mut all = at(&current);
    // After one dash, of an option with two names there is only the short one.
    if current == "-" {
        all.extend(at("--"));
    }
    let mut found = Found::default();
    for candidate in all.iter().filter(|candidate| !candidate.is_hide_set()) {
        match candidate.get_value().to_str() {
            Some(value) if value.ends_with(FILES) => found.files = true,
            Some(value) => found.words.push((value.into(), help(candidate))),
            None => {}
        }
    }
    // Options do not come unasked where there is something else.
    let is_option = |(word, _): &(String, String)| word.starts_with('-');
    if current.is_empty() && (found.files || !found.words.iter().all(is_option)) {
        found.words.retain(|word| !is_option(word));
    }
    found
}

/// The first line of the help.
fn help(candidate: &CompletionCandidate) -> String {
    let text = candidate.get_help().map(|help| help.to_string()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).collect()
}

/// The whole command line, with the programs `klogger-NAME`.
fn tree(line: &Arc<Line>) -> clap::Command {
    attach(crate::Cli::command().subcommands(described::commands()), line)
}

/// Lets each argument know what its value may be.
fn attach(command: clap::Command, line: &Arc<Line>) -> clap::Command {
    let name = command.get_name().to_string();
    let command = command.mut_args(|arg| match values::completer(&name, &arg, line) {
        Some(completer) => arg.add(completer),
        None => arg,
    });
    command.mut_subcommands(|sub| attach(sub, line))
}

#[cfg(test)]
mod tests;
