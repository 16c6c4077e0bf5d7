// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger export`

use super::Outcome;
use crate::failure::Failure;
use crate::messages;
use crate::text::select::SelectArgs;
use crate::text::{self, open, progress_bar};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use klogger_export::Exporter;
use klogger_export::exporter::{DirectoryExporter, Refused};
use klogger_log::reader::Reader;
use klogger_os::files::cannot_write;
use klogger_os::outputs::{Folder, Old, Partial};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Convert a log for other programs: Perfetto, CTF, pprof, flame graphs, Parquet, JSON, CSV, Perl
#[derive(clap::Args)]
#[command(after_help = notes())]
pub struct Args {
    /// The log: a file, or the folder of its segments
    file: PathBuf,

    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = parser(),
        default_value = targets()[0].name(),
    )]
    to: Target,

    /// Directory for Parquet and CTF, otherwise file; '-' for standard output
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// The event whose stacks are exported, if several have some
    #[arg(short, long, value_name = "EVENT")]
    event: Option<String>,

    /// Replace an earlier export
    #[arg(short, long)]
    force: bool,
}

/// A value of `--to`: a format of exports, or one of `klogger cat` that has a suffix.
#[derive(Clone, Copy)]
enum Target {
    Export(Exporter),
    Text(&'static dyn text::Format),
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Export(exporter) => exporter.format().name(),
            Target::Text(format) => format.name(),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Target::Export(exporter) => exporter.format().description(),
            Target::Text(format) => format.description(),
        }
    }

    /// What is appended to the log's name; with a slash if it is a directory.
    fn ending(self) -> String {
        match self {
            Target::Export(Exporter::Directory(made)) => format!("{}/", made.suffix()),
            Target::Export(Exporter::File(made)) => made.suffix().into(),
            Target::Text(format) => format.suffix().unwrap_or_default().into(),
        }
    }
}

/// From both registries; the first one is the default.
fn targets() -> Vec<Target> {
    let texts = text::FORMATS.iter().copied().filter(|f| f.suffix().is_some()).map(Target::Text);
    klogger_export::EXPORTERS.iter().copied().map(Target::Export).chain(texts).collect()
}

fn parser() -> impl TypedValueParser<Value = Target> {
    let values = targets().into_iter().map(|t| PossibleValue::new(t.name()).help(t.description()));
    PossibleValuesParser::new(values)
        .try_map(|name| targets().into_iter().find(|t| t.name() == name).ok_or("unknown format"))
}

fn notes() -> String {
    let names: Vec<_> = targets().iter().map(|t| format!("x.klog{}", t.ending())).collect();
    format!("Without -o, the export is written beside the log: {}.\n\n{NOTES}", names.join(", "))
}

const NOTES: &str = "\
Parquet tables are only rewritten if the log has changed. To select events,
use 'klogger sql', or 'klogger cat', which has the same text formats.

Examples:
  klogger export boot.klog --to perfetto         for ui.perfetto.dev
  klogger export boot.klog --to ctf -o boot      then: babeltrace2 boot
  klogger export boot.klog --to lttng -o boot    then: lttng-cputop boot
  klogger export boot.klog --to json -o - | jq .pid
  klogger export boot.klog -o tables             Parquet tables
  klogger export x.klog --to folded -o - | flamegraph.pl > x.svg

docs/exports.md describes what each format contains.";

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    open::write_as_private_as(&args.file);
    check(&args, &reader)?;
    match args.to {
        Target::Export(Exporter::Directory(exporter)) => to_directory(&args, &reader, exporter),
        Target::Export(Exporter::File(exporter)) => {
            let bar = progress_bar(reader.totals().0, "exporting");
            let mut report = |done, _total| bar.set_position(done);
            let event = args.event.as_deref();
            to_file(&args, exporter.suffix(), |sink| {
                let made = exporter.write(&reader, event, sink, &mut report).map_err(unwritten)?;
                bar.finish_and_clear();
                open::warn_of(&reader, &made.damage);
                made.notes.iter().for_each(|note| messages::note(&format!("note: {note}")));
                Ok(())
            })
        }
        Target::Text(format) => {
            let choice = SelectArgs::default().resolve(&reader)?;
            let bar = progress_bar(choice.extent.span_ns, "exporting");
            to_file(&args, &args.to.ending(), |sink| {
                text::write(&reader, &choice, format, sink, &bar)
            })
        }
    }
}

/// Whether the log has what the format is made of, before anything is written.
fn check(args: &Args, reader: &Reader) -> Result<(), Failure> {
    let event = args.event.as_deref();
    let refused = |e: Refused| Failure::new(e.message).help(e.help);
    match args.to {
        Target::Export(Exporter::File(exporter)) => exporter.check(reader, event).map_err(refused),
        Target::Export(Exporter::Directory(_)) | Target::Text(_) => match event {
            None => Ok(()),
            Some(_) => Err(refused(Refused::no_event(args.to.name()))),
        },
    }
}

fn to_directory(args: &Args, reader: &Reader, exporter: &dyn DirectoryExporter) -> Outcome {
    let bar = progress_bar(reader.totals().0, "exporting");
    let mut report = |done, _total| bar.set_position(done);
    let export = exporter
        .export(&args.file, reader, args.output.as_deref(), args.force, &mut report)
        .map_err(|e| Failure::new(&e).help(e.remedy()))?;
    bar.finish_and_clear();
    // For tables that existed already these warnings were printed before.
    if !export.fresh {
        open::warn_of(reader, &export.damage);
    }
    say!("{}", export.dir.display());
    Ok(ExitCode::SUCCESS)
}

fn unwritten(error: io::Error) -> Failure {
    Failure::new(format!("cannot write the output: {error}"))
}

/// Calls `write` with the file named by `args`, and prints its path.
fn to_file(
    args: &Args,
    suffix: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Outcome {
    let output = args.output.clone().unwrap_or_else(|| beside(&args.file, suffix));
    if output.as_os_str() == "-" {
        write(&mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let elsewhere = |e: Failure| match e.help {
        Some(_) => e,
        None => e.help("free some space, or name another file with -o"),
    };
    let cannot = |e| Failure::from(cannot_write(&output, e));
    let (folder, name) = Folder::of(&output).map_err(cannot)?;
    match folder.look(&name).map_err(cannot)?.map(|there| there.file_type()) {
        Some(there) if there.is_dir() => {
            let failure = Failure::new(format!("{} is a directory", output.display()));
            return Err(failure.help("name a file with -o"));
        }
        Some(there) if there.is_file() && !args.force => {
            let failure = Failure::new(format!("{} exists", output.display()));
            return Err(failure.help("replace it with --force, or name another file with -o"));
        }
        // A pipe or a device cannot be replaced by a complete file.
        Some(there) if !there.is_file() => {
            let mut file = folder.open_special(&name).map_err(cannot)?;
            write(&mut file).map_err(elsewhere)?;
        }
        _ => {
            // The file gets its name when it is complete.
            let mut partial = Partial::begin(&folder, &name, 0o666).map_err(cannot)?;
            let mut file = BufWriter::new(partial.file());
            write(&mut file).and_then(|()| file.flush().map_err(unwritten)).map_err(elsewhere)?;
            drop(file);
            partial.complete(Old::Replace).map_err(cannot)?;
        }
    }
    say!("{}", output.display());
    Ok(ExitCode::SUCCESS)
}

fn beside(log: &Path, suffix: &str) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    log.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_each_format_and_its_suffix() {
        let docs = include_str!("../../../../docs/exports.md");
        for target in targets() {
            let named = if target.name() == targets()[0].name() {
                String::new()
            } else {
                format!(" --to {}", target.name())
            };
            let command = format!("klogger export x.klog{named} ");
            let result = format!(" x.klog{} ", target.ending());
            let is_it =
                |line: &&str| line.trim_start().starts_with(&command) && line.contains(&result);
            assert_eq!(docs.lines().filter(is_it).count(), 1, "{}", target.name());
        }
    }
}
