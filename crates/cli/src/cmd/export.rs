// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger export`

use super::Outcome;
use crate::failure::Failure;
use crate::text::select::SelectArgs;
use crate::text::{self, open, progress_bar};
use klogger_log::reader::Reader;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Convert a log to Parquet tables, JSON, CSV or Perl
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The log
    file: PathBuf,

    #[arg(long, value_enum, default_value_t = Target::Parquet)]
    to: Target,

    /// Where to: a directory for Parquet, else a file, '-' for the terminal
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Parquet,
    Json,
    Csv,
    Perl,
}

const NOTES: &str = "\
Without -o the result stands beside the log: x.klog-parquet/, x.klog.json, x.klog.csv, x.klog.pl.
Parquet tables are made again only if the log has changed since. To choose events, ask in SQL ('klogger sql'), or use
'klogger cat', which knows the same text formats.";

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    match args.to {
        Target::Parquet => parquet(&args, &reader),
        Target::Json => write(&args, &reader, text::Kind::Json, "json"),
        Target::Csv => write(&args, &reader, text::Kind::Csv, "csv"),
        Target::Perl => write(&args, &reader, text::Kind::Perl, "pl"),
    }
}

fn parquet(args: &Args, reader: &Reader) -> Outcome {
    let bar = progress_bar(reader.totals().0, "exporting");
    let mut progress = |done, _total| bar.set_position(done);
    let export = klogger_export::export(&args.file, reader, args.output.as_deref(), &mut progress)
        .map_err(|e| Failure::new(&e).help(e.remedy()))?;
    bar.finish_and_clear();
    if !export.fresh {
        open::warn_of(reader, &export.damage);
    }
    println!("{}", export.dir.display());
    Ok(ExitCode::SUCCESS)
}

fn write(args: &Args, reader: &Reader, kind: text::Kind, extension: &str) -> Outcome {
    let choice = SelectArgs::default().resolve(reader)?;
    let output = args.output.clone().unwrap_or_else(|| beside(&args.file, extension));
    let bar = progress_bar(choice.span_ns(), "exporting");
    if output.as_os_str() == "-" {
        text::write(&choice, kind, &mut std::io::stdout().lock(), &bar)?;
        return Ok(ExitCode::SUCCESS);
    }
    let unwritable =
        |e| Failure::new(format!("cannot write {}: {e}", output.display())).help("name another file with -o");
    // It gets its name when it is whole.
    let mut partial = output.clone().into_os_string();
    partial.push(".part");
    let mut file = fs::File::create(&partial).map_err(unwritable)?;
    let written = text::write(&choice, kind, &mut file, &bar);
    if let Err(failure) = written {
        let _ = fs::remove_file(&partial);
        return Err(failure.help("free some space, or name another file with -o"));
    }
    fs::rename(&partial, &output).map_err(unwritable)?;
    println!("{}", output.display());
    Ok(ExitCode::SUCCESS)
}

fn beside(log: &Path, extension: &str) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(extension);
    log.with_file_name(name)
}
