// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger rescue`

use super::{Format, Outcome};
use crate::messages::{self, losses};
use crate::text::ledger_text;
use indicatif::{HumanBytes, HumanCount};
use klogger_log::ledger::Ledger;
use klogger_log::text::escaped;
use klogger_log::writer::Compression;
use klogger_os::Error;
use klogger_recorder::hung::{self, Writes};
use klogger_recorder::rescue::programs::{self, Remains, Saved};
use klogger_recorder::rescue::rings::{self, Remnant, Salvaged};
use klogger_recorder::rescue::vmcore::{self, Rescued};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Save events that are in rings and in no log
///
/// The rings of the bpf engine outlive a recorder that is killed: 'rescue' makes a complete log of
/// its log and the rings. The rings of a program outlive the program and its recorder: 'rescue'
/// saves those of programs whose recorder was killed, and of programs that run with
/// KLOGGER_FLIGHT=BYTES, which keep their newest events. Without arguments, it lists all recorders,
/// and all programs that can log.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  klogger rescue                  list what can be rescued\n  \
                  klogger rescue 4711             write x.rescue.klog beside x.klog\n  \
                  klogger rescue 4711 -o crash.klog --keep\n  \
                  klogger rescue --vmcore vmcore -o crash.klog\n\n\
                  The rings and files of dead processes are removed when the disk has \
                  what was saved.")]
pub struct Args {
    /// Process id of a killed recorder, or process ids or files of programs
    #[arg(value_name = "PID|FILE")]
    programs: Vec<String>,
    /// Memory image of a crashed machine (ELF: /proc/vmcore or a copy); writes a log for each
    /// recording in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["programs", "keep"])]
    vmcore: Option<PathBuf>,
    /// The log that the recorder was writing at the crash, if it was moved
    #[arg(long, value_name = "LOG", requires = "vmcore")]
    log: Option<PathBuf>,
    /// The log [default: beside the recorder's log, x.rescue.klog for x.klog; of a recording in
    /// segments, its last one; of programs and images, rescue.klog]. An existing file is renamed
    /// to FILE.old, or FILE.old2 and so on
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compress the log (zstd)
    #[arg(long)]
    compress: bool,
    /// Do not remove the files of programs that have ended (a recorder's rings are always freed)
    #[arg(long)]
    keep: bool,
    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
    /// Format of the list; for the summary of a log see --messages
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let _hung = hung::Watch::start(Writes::Rescue, messages::note);
    let compression = if args.compress { Compression::Zstd(1) } else { Compression::None };
    if let Some(image) = &args.vmcore {
        let rescued = vmcore::save(image, args.log.as_deref(), args.output(), compression)?;
        rescued.iter().filter(|_| !args.quiet).for_each(print_rescued);
        return Ok(ExitCode::SUCCESS);
    }
    if args.programs.is_empty() {
        match args.format {
            Format::Text => print_list(&rings::list(), &programs::list()),
            Format::Json => say_json!(list_json(&rings::list(), &programs::list())),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(recorder) = args.recorder()? {
        let saved = rings::save(recorder, args.output.as_deref(), compression)?;
        if !args.quiet {
            print_salvaged(&saved, &saved.output);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let command_line = crate::words();
    let output = args.output();
    let saved = programs::save(&args.programs, output, compression, args.keep, command_line)?;
    if !args.quiet {
        print_saved(&saved, output);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(rings::OUTPUT))
    }

    /// The recorder that is named, if it is one; its log is made separately.
    fn recorder(&self) -> Result<Option<Remnant>, Error> {
        let find = |word: &String| rings::find(word.parse().ok()?);
        match self.programs.iter().find_map(find) {
            Some(recorder) if self.programs.len() > 1 => Err(Error::new(format!(
                "{} is a recorder, whose log cannot be combined with others",
                recorder.pid
            ))
            .help(format!("rescue it separately: klogger rescue {}", recorder.pid))),
            found => Ok(found),
        }
    }
}

fn print_saved(saved: &Saved, output: &Path) {
    if messages::is_json() {
        let more = json!({ "programs": saved.programs, "removed": saved.removed });
        return messages::summary(output, &saved.summary, &saved.ledger, more);
    }
    messages::print(&format!(
        "klogger: {} events of {} in {}; {}.",
        HumanCount(saved.summary.events),
        programs(saved.programs),
        output.display(),
        losses(&saved.ledger)
    ));
    print_ledger(&saved.ledger);
    if saved.removed > 0 {
        let removed = programs(saved.removed);
        messages::print(&format!("  removed the files of {removed} that had ended"));
    }
}

fn print_rescued(r: &Rescued) {
    if r.has_log || messages::is_json() {
        return print_salvaged(&r.salvaged, &r.output);
    }
    messages::print(&format!(
        "klogger: {} events of recorder {} in {}, all from the rings; {}.",
        HumanCount(r.salvaged.summary.events),
        r.pid,
        r.output.display(),
        losses(&r.salvaged.ledger)
    ));
    print_ledger(&r.salvaged.ledger);
}

fn print_salvaged(saved: &Salvaged, output: &Path) {
    if messages::is_json() {
        let more = json!({ "written": saved.written, "rescued": saved.rescued });
        return messages::summary(output, &saved.summary, &saved.ledger, more);
    }
    messages::print(&format!(
        "klogger: {} events in {}: {} from {}, {} from the rings; {}.",
        HumanCount(saved.summary.events),
        output.display(),
        HumanCount(saved.written),
        saved.log.display(),
        HumanCount(saved.rescued),
        losses(&saved.ledger)
    ));
    print_ledger(&saved.ledger);
}

fn print_ledger(ledger: &Ledger) {
    for line in ledger_text::summary(ledger).lines() {
        messages::print(line);
    }
}

/// `1 program`, `2 programs`
fn programs(count: usize) -> String {
    format!("{count} program{}", if count == 1 { "" } else { "s" })
}

fn print_list(recorders: &[Remnant], all: &[Remains]) {
    if all.is_empty() && recorders.is_empty() {
        messages::note("found no recorder and no program that logs");
    }
    for r in recorders {
        let state = if r.alive { "recording" } else { "killed" };
        let log = r.log.as_ref().map_or("no log yet".into(), |log| log.display().to_string());
        say!(
            "{:24} {state:24} {:>25} to save  {log}",
            format!("recorder[{}]", r.pid),
            HumanBytes(r.bytes)
        );
    }
    for r in all {
        let mut state = vec![if r.alive { "running".to_string() } else { "dead".to_string() }];
        state.extend(r.flight.then(|| "flight recorder".to_string()));
        state.extend(r.orphan.then(|| "its recorder was killed".to_string()));
        state.extend(r.recorder.map(|pid| format!("recorded by process {pid}")));
        let (title, state, schemata, path) =
            (&r.title, state.join(", "), r.schemata.join(","), r.path.display());
        let bytes = HumanBytes(r.bytes);
        let rest = format!(
            "{:4} events on  {bytes:>10} to save  schemata {schemata}  {path}",
            r.events_on
        );
        say!("{}", escaped(&format!("{title:24} {state:24} {rest}")));
    }
}

/// `kind` says which of the two an entry is of.
fn list_json(recorders: &[Remnant], all: &[Remains]) -> Value {
    let recorders = recorders.iter().map(|r| {
        json!({
            "kind": "recorder", "pid": r.pid, "alive": r.alive, "log": r.log, "bytes": r.bytes,
        })
    });
    let programs = all.iter().map(|r| {
        json!({
            "kind": "program", "title": r.title, "alive": r.alive, "flight": r.flight,
            "orphan": r.orphan, "recorder": r.recorder, "schemata": r.schemata,
            "events_on": r.events_on, "bytes": r.bytes, "file": r.path,
        })
    });
    recorders.chain(programs).collect()
}
