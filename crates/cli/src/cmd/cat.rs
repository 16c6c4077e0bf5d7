// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger cat`

use super::Outcome;
use crate::terminal;
use crate::text::select::SelectArgs;
use crate::text::{self, Format, Harmless, open};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a log as text
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The log
    file: PathBuf,

    #[arg(short, long, value_parser = text::parser(), default_value = text::FORMATS[0].name())]
    format: &'static dyn Format,

    #[command(flatten)]
    select: SelectArgs,
}

const EXAMPLES: &str = "\
Examples:
  klogger cat boot.klog --from 1.5s --to 1.6s      a tenth of a second
  klogger cat boot.klog -e SCHEDIN,SCHEDOUT -c 0   switches of CPU 0
  klogger cat boot.klog --where 'pid == \"cc1\"'     threads of that name
  klogger cat boot.klog --format json | jq .pid    for programs";

impl Args {
    pub fn is_text(&self) -> bool {
        self.format.name() == text::FORMATS[0].name()
    }
}

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    let choice = args.select.resolve(&reader)?;
    let mut stdout = std::io::stdout().lock();
    // In a pipe, a program gets texts unchanged.
    match terminal::is_terminal() {
        true => text::write(&choice, args.format, &mut Harmless(stdout), &ProgressBar::hidden())?,
        false => text::write(&choice, args.format, &mut stdout, &ProgressBar::hidden())?,
    }
    Ok(ExitCode::SUCCESS)
}
