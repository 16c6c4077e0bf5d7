// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger info`

use super::{Format, Outcome};
use crate::out;
use crate::text::{info_json, info_text, open};
use klogger_log::stats::Stats;
use std::path::PathBuf;
use std::process::ExitCode;

/// Summarise a log, and check all of it
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The log: a file, or the folder of its segments
    file: PathBuf,

    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Also list the fields of each event
    #[arg(long)]
    fields: bool,
}

const NOTES: &str = "\
Every block is read and its checksum is checked. Damage is reported; the exit
code is 0 if the preamble of the log can be read.";

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    let stats = Stats::new(&reader);
    let ledger = reader.ledger(&stats.damage);
    let about =
        info_text::LogInfo { file: &args.file, reader: &reader, stats: &stats, ledger: &ledger };
    match args.format {
        Format::Text => say_part!("{}", info_text::page(&about, args.fields)),
        Format::Json => {
            out::json_text(&info_json::page(&about).to_string());
        }
    }
    Ok(ExitCode::SUCCESS)
}
