// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger tracepoints`: the tracepoints of this kernel, and its other trace events, as a schema
//! would declare them; or the functions and static probes of a program.

use super::places::{self, Wanted};
use super::{Format, Outcome};
use klogger_schema::model::ProbeKind;

const EXAMPLES: &str = "\
Examples:
  klogger tracepoints                    all tracepoints of this kernel
  klogger tracepoints block              with 'block' in name or group
  klogger tracepoints --exact sched_switch
  klogger tracepoints sys_enter_open     of system calls; for probes 'klogger places open'
  klogger tracepoints /usr/bin/bash      functions and static probes of a program
  klogger tracepoints libc | grep alloc
  klogger tracepoints block_rq --format json";

/// List the tracepoints of this kernel, with their parameters
///
/// 'klogger record -e NAME' records what is listed here. Names and types are from the kernel's type
/// information (BTF); groups, and the events of system calls, are from tracefs, which only root can
/// read. Parameters whose names the kernel does not have are called arg0, arg1, ... 'klogger
/// places' lists functions and other kinds of places too.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only tracepoints with this word in their name or group; or the path of a program, or the
    /// name of a library, whose functions and static probes are listed
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Only the tracepoint with exactly this name
    #[arg(long, requires = "word")]
    exact: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

pub fn run(args: Args) -> Outcome {
    let wanted = Wanted {
        kinds: &[ProbeKind::Tracepoint, ProbeKind::TraceEvent],
        word: args.word.as_deref().unwrap_or(""),
        exact: args.exact,
        noun: ProbeKind::Tracepoint.noun(),
        all: "'klogger tracepoints' lists all",
    };
    places::print(&wanted, args.format)
}
