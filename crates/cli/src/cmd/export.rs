// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger export`

use super::Outcome;
use crate::failure::Failure;
use crate::text::select::SelectArgs;
use crate::text::{self, open, progress_bar};
use klogger_export::ctf::Version;
use klogger_export::{perfetto, trace};
use klogger_log::reader::Reader;
use klogger_os::machine;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Convert a log for other programs: Perfetto, CTF, Parquet, JSON, CSV, Perl
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The log
    file: PathBuf,

    #[arg(long, value_enum, default_value_t = Target::Parquet)]
    to: Target,

    /// Where to: a directory for Parquet and CTF, else a file, '-' for the terminal
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Replace an earlier export
    #[arg(short, long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// A table for each event, for SQL and data frames
    Parquet,
    /// A trace for ui.perfetto.dev and trace_processor
    Perfetto,
    /// A trace in the Common Trace Format 1.8, for babeltrace2 and Trace Compass
    Ctf,
    /// The same in version 2
    Ctf2,
    /// CTF with the events of LTTng's kernel tracer, for the LTTng analyses and Trace Compass
    Lttng,
    /// A JSON object for each event and line
    Json,
    /// A table with all events
    Csv,
    /// An array of hashes, to be read with `do`
    Perl,
}

const NOTES: &str = "\
Without -o the export is written next to the log: x.klog-parquet/, x.klog.pftrace, x.klog-ctf/,
x.klog-ctf2/, x.klog-lttng/, x.klog.json, x.klog.csv, x.klog.pl. Parquet tables are written again
only if the log has changed. To select events, use SQL ('klogger sql') or 'klogger cat', which has
the same text formats.

Examples:
  klogger export boot.klog --to perfetto              then open boot.klog.pftrace at ui.perfetto.dev
  klogger export boot.klog --to ctf -o boot-ctf       then 'babeltrace2 boot-ctf'
  klogger export boot.klog --to lttng -o boot-lttng   then 'lttng-cputop boot-lttng'
  klogger export boot.klog --to json -o - | jq .pid   for programs
  klogger export boot.klog -o tables                  a directory of Parquet tables

What each format holds, and what it cannot: docs/exports.md";

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    machine::write_as_private_as(&args.file);
    match args.to {
        Target::Parquet => parquet(&args, &reader),
        Target::Perfetto => write_perfetto(&args, &reader),
        Target::Ctf => write_ctf(&args, &reader, Version::One),
        Target::Ctf2 => write_ctf(&args, &reader, Version::Two),
        Target::Lttng => write_ctf(&args, &reader, Version::Lttng),
        Target::Json => write_text(&args, &reader, text::Kind::Json, "json"),
        Target::Csv => write_text(&args, &reader, text::Kind::Csv, "csv"),
        Target::Perl => write_text(&args, &reader, text::Kind::Perl, "pl"),
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

fn write_ctf(args: &Args, reader: &Reader, version: Version) -> Outcome {
    let bar = progress_bar(reader.totals().0, "exporting");
    let mut progress = |done, _total| bar.set_position(done);
    let export = trace::export(
        &args.file,
        reader,
        args.output.as_deref(),
        version,
        args.force,
        &mut progress,
    )
    .map_err(|e| Failure::new(&e).help(e.remedy()))?;
    bar.finish_and_clear();
    open::warn(reader, &export.damage);
    println!("{}", export.dir.display());
    Ok(ExitCode::SUCCESS)
}

fn write_perfetto(args: &Args, reader: &Reader) -> Outcome {
    let bar = progress_bar(reader.totals().0, "exporting");
    let mut progress = |done, _total| bar.set_position(done);
    to_file(args, "pftrace", |sink| {
        let damage = perfetto::write(reader, sink, &mut progress).map_err(unwritten)?;
        bar.finish_and_clear();
        open::warn(reader, &damage);
        Ok(())
    })
}

fn write_text(args: &Args, reader: &Reader, kind: text::Kind, extension: &str) -> Outcome {
    let choice = SelectArgs::default().resolve(reader)?;
    let bar = progress_bar(choice.span_ns(), "exporting");
    to_file(args, extension, |sink| text::write(&choice, kind, sink, &bar))
}

fn unwritten(error: io::Error) -> Failure {
    Failure::new(format!("cannot write the output: {error}"))
}

/// Calls `write` with the file that `args` name, and says where it is.
fn to_file(
    args: &Args,
    extension: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Outcome {
    let output = args.output.clone().unwrap_or_else(|| beside(&args.file, extension));
    if output.as_os_str() == "-" {
        write(&mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let elsewhere = |e: Failure| e.help("free some space, or name another file with -o");
    let cannot = |e: io::Error| Failure::new(format!("cannot write {}: {e}", output.display()));
    match fs::metadata(&output).map(|m| m.file_type()) {
        Ok(there) if there.is_dir() => {
            let failure = Failure::new(format!("{} is a directory", output.display()));
            return Err(failure.help("name a file with -o"));
        }
        Ok(there) if there.is_file() && !args.force => {
            let failure = Failure::new(format!("{} exists", output.display()));
            return Err(failure.help("replace it with --force, or name another file with -o"));
        }
        // A pipe or a device cannot be put in its place when it is whole.
        Ok(there) if !there.is_file() => {
            let mut file = fs::OpenOptions::new().write(true).open(&output).map_err(cannot)?;
            write(&mut file).map_err(elsewhere)?;
        }
        _ => whole(&output, write).map_err(elsewhere)?,
    }
    println!("{}", output.display());
    Ok(ExitCode::SUCCESS)
}

/// A file gets its name when it is whole.
fn whole(
    output: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot = |e: io::Error| Failure::new(format!("cannot write {}: {e}", output.display()));
    let mut partial = output.to_path_buf().into_os_string();
    partial.push(".part");
    // Whatever is there was left by an export that was ended, or by somebody whose file this shall
    // not be.
    let _ = fs::remove_file(&partial);
    let mut file = BufWriter::new(
        fs::OpenOptions::new().write(true).create_new(true).open(&partial).map_err(cannot)?,
    );
    let written = write(&mut file).and_then(|()| file.flush().map_err(unwritten));
    if let Err(failure) = written {
        let _ = fs::remove_file(&partial);
        return Err(failure);
    }
    fs::rename(&partial, output).map_err(cannot)
}

fn beside(log: &Path, extension: &str) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(extension);
    log.with_file_name(name)
}
