// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One file for each subcommand: its arguments, its help, and `run`.

pub mod build;
pub mod cat;
pub mod check;
pub mod check_log;
pub mod control;
pub mod doctor;
pub mod export;
pub mod generate;
pub mod info;
pub mod kernel;
pub mod list;
pub mod manual;
pub mod new;
pub mod places;
pub mod ps;
pub mod record;
pub mod rescue;
pub mod show;
pub mod snapshot;
pub mod stack;
pub mod symbolize;
pub mod trace;
pub mod tracepoints;

use crate::complete;
use crate::external;
pub use crate::failure::Outcome;
use std::ffi::OsString;

/// `--format` of commands that describe something.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(clap::Subcommand)]
#[command(after_help = external::help())]
pub enum Command {
    Record(Box<record::Args>),
    Trace(Box<trace::Args>),
    Ps(ps::Args),
    Mark(control::MarkArgs),
    Enable(control::EnableArgs),
    Disable(control::DisableArgs),
    Snapshot(snapshot::Args),
    Rescue(rescue::Args),
    Doctor(doctor::Args),
    List(list::Args),
    Show(show::Args),
    Places(places::Args),
    Tracepoints(tracepoints::Args),
    Check(check::Args),
    CheckLog(check_log::Args),
    New(new::Args),
    Info(info::Args),
    Cat(cat::Args),
    Export(export::Args),
    Symbolize(symbolize::Args),
    Stack(stack::Args),
    Gen(generate::Args),
    Build(build::Args),
    Kernel(kernel::Args),
    #[command(hide = true)]
    Manual(manual::Args),
    #[command(hide = true)]
    Complete(complete::Args),
    /// Reads files with the names of code, for a recorder or `klogger symbolize`
    #[command(hide = true, name = klogger_symbolize::WORKER)]
    NameCode,
    /// Finds the files of code, for another klogger
    #[command(hide = true, name = klogger_symbolize::FINDER)]
    FindCode,
    /// Asks servers for debug information, for another klogger
    #[command(hide = true, name = klogger_symbolize::FETCHER)]
    FetchCode,
    /// `klogger NAME` runs the program `klogger-NAME`
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

impl Command {
    /// Whether people read what it prints: texts of many lines, of which a pager shows one screen
    /// after the other.
    pub fn is_read(&self) -> bool {
        match self {
            Command::Info(args) => args.is_text(),
            Command::Cat(args) => args.is_text(),
            Command::CheckLog(args) => args.is_text(),
            Command::List(args) => args.is_text(),
            Command::Show(args) => args.is_text(),
            Command::Places(args) => args.is_text(),
            Command::Tracepoints(args) => args.is_text(),
            _ => false,
        }
    }

    /// Whether it shows what is on this machine: what it could not look at is said at its end.
    /// Recordings have that in their ledger.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Command::Ps(_)
                | Command::Rescue(_)
                | Command::Doctor(_)
                | Command::List(_)
                | Command::Places(_)
                | Command::Tracepoints(_)
        )
    }

    pub fn run(self) -> Outcome {
        match self {
            Command::Record(args) => record::run(*args),
            Command::Trace(args) => trace::run(*args),
            Command::Ps(args) => ps::run(args),
            Command::Mark(args) => control::mark(args),
            Command::Enable(args) => control::enable(args),
            Command::Disable(args) => control::disable(args),
            Command::Snapshot(args) => snapshot::run(args),
            Command::Rescue(args) => rescue::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::List(args) => list::run(args),
            Command::Show(args) => show::run(args),
            Command::Places(args) => places::run(args),
            Command::Tracepoints(args) => tracepoints::run(args),
            Command::Check(args) => check::run(args),
            Command::CheckLog(args) => check_log::run(args),
            Command::New(args) => new::run(args),
            Command::Info(args) => info::run(args),
            Command::Cat(args) => cat::run(args),
            Command::Export(args) => export::run(args),
            Command::Symbolize(args) => symbolize::run(args),
            Command::Stack(args) => stack::run(args),
            Command::Gen(args) => generate::run(args),
            Command::Build(args) => build::run(args),
            Command::Kernel(args) => kernel::run(args),
            Command::Manual(args) => manual::run(args),
            Command::Complete(args) => complete::run(args),
            Command::NameCode => part(klogger_symbolize::work()),
            Command::FindCode => part(klogger_symbolize::find()),
            Command::FetchCode => part(klogger_symbolize::fetch()),
            Command::External(words) => external::run(words),
        }
    }
}

/// Its caller notices if it fails.
fn part(work: std::io::Result<()>) -> Outcome {
    Ok(match work {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(_) => std::process::ExitCode::FAILURE,
    })
}
