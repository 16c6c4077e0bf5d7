// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger cat`

mod clock;
mod follow;
mod input;
mod printer;
mod segments;

use self::input::Input;
use super::Outcome;
use crate::failure::Failure;
use crate::terminal;
use crate::text::select::SelectArgs;
use crate::text::{self, Format, Harmless, open};
use indicatif::ProgressBar;
use klogger_log::reader::Reader;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a log as text
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The log; '-' is standard input, whose events are printed as they come
    file: PathBuf,

    /// Go on printing while the log is being recorded, until the recording ends. FILE may be the
    /// folder of its segments
    #[arg(long)]
    follow: bool,

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
  klogger cat boot.klog --format json | jq .pid    for programs
  klogger cat --follow boot.klog                   while it is recorded
  ssh host klogger record -s io -a -o - | klogger cat -
                                                   of another machine";

impl Args {
    /// A pager would wait for the end of what comes.
    pub fn is_text(&self) -> bool {
        self.format.name() == text::FORMATS[0].name()
            && !self.follow
            && self.file.as_os_str() != open::STDIN
    }
}

pub fn run(args: Args) -> Outcome {
    if args.file.as_os_str() == open::STDIN && !open::is_stdin_a_file() {
        return live(&args, Input::stdin()?);
    }
    if args.follow && args.file.is_dir() {
        return live(&args, Input::folder(&args.file)?);
    }
    let reader = match args.follow {
        true => open::quietly(&args.file)?,
        false => open::open(&args.file)?,
    };
    if args.follow && reader.is_being_written() {
        check(&reader)?;
        return live(&args, Input::file(&args.file)?);
    }
    let choice = args.select.resolve(&reader)?;
    text::write(&reader, &choice, args.format, &mut *stdout(), &ProgressBar::hidden())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints events as they come.
fn live(args: &Args, input: Input) -> Outcome {
    let printer = printer::Printer::new(&args.select, args.format, stdout());
    follow::Follow::new(input, printer).run()
}

/// In a pipe, a program gets texts unchanged.
fn stdout() -> Box<dyn Write> {
    let stdout = std::io::stdout().lock();
    match terminal::is_terminal() {
        true => Box::new(Harmless(stdout)),
        false => Box::new(stdout),
    }
}

fn check(reader: &Reader) -> Result<(), Failure> {
    match reader.preamble().recorder.overwrite {
        true => Err(Failure::new("a flight recorder cannot be followed: it writes when it dumps")
            .help("wait for its end, or record without --overwrite")),
        false => Ok(()),
    }
}
