// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger rescue`

use super::Outcome;
use super::record::losses;
use indicatif::{HumanBytes, HumanCount};
use klogger_engine::recorder::rescue::{self, Remains};
use klogger_log::writer::Compression;
use std::path::PathBuf;
use std::process::ExitCode;

/// Save what programs have logged that nobody records any more
///
/// A program's events are in memory that outlives it, and its recorder as well. This is for programs whose recorder was
/// killed, and for those that run with KLOGGER_FLIGHT=BYTES, which keep their newest events at all times. Without
/// arguments, lists all programs that can log.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  klogger rescue                  what there is\n  klogger rescue 4711             to rescue.klog; \
                        files of dead programs are removed then\n  klogger rescue 4711 -o crash.klog --keep"
)]
pub struct Args {
    /// Process ids, or files of programs
    #[arg(value_name = "PID|FILE")]
    programs: Vec<String>,
    /// The log. One that exists becomes FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "rescue.klog")]
    output: PathBuf,
    /// Compress the log (zstd)
    #[arg(long)]
    compress: bool,
    /// Do not remove the files of dead programs
    #[arg(long)]
    keep: bool,
    /// No summary
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: Args) -> Outcome {
    if args.programs.is_empty() {
        print_list(&rescue::list());
        return Ok(ExitCode::SUCCESS);
    }
    let compression = if args.compress { Compression::Zstd(1) } else { Compression::None };
    let command_line = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let saved = rescue::save(&args.programs, &args.output, compression, args.keep, command_line)?;
    if args.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "klogger: {} events of {} in {}; {}.",
        HumanCount(saved.summary.events),
        programs(saved.programs),
        args.output.display(),
        losses(&saved.ledger)
    );
    for e in &saved.ledger.entries {
        eprintln!("  {}: {}", e.key, e.text);
    }
    if saved.removed > 0 {
        eprintln!("  removed the files of {} that had ended", programs(saved.removed));
    }
    Ok(ExitCode::SUCCESS)
}

/// `1 program`, `2 programs`
fn programs(count: usize) -> String {
    format!("{count} program{}", if count == 1 { "" } else { "s" })
}

fn print_list(all: &[Remains]) {
    if all.is_empty() {
        eprintln!("klogger: no program that can log was found");
    }
    for r in all {
        let mut state = vec![if r.alive { "running".to_string() } else { "dead".to_string() }];
        state.extend(r.flight.then(|| "flight recorder".to_string()));
        state.extend(r.recorder.map(|pid| format!("recorded by process {pid}")));
        let (title, state, schemata, path) = (&r.title, state.join(", "), r.schemata.join(","), r.path.display());
        let bytes = HumanBytes(r.bytes);
        println!("{title:24} {state:24} {:4} events on  {bytes:>10} to save  schemata {schemata}  {path}", r.events_on);
    }
}
