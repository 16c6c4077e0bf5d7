// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger snapshot`: asks a running recording for a log of its last seconds.

use super::record::values::duration;
use super::{Format, Outcome};
use crate::failure::Failure;
use crate::terminal;
use crate::text::info_text::size;
use indicatif::HumanCount;
use klogger_log::text::escaped;
use klogger_recorder::snapshots::Made;
use klogger_recorder::socket::{Request, send};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Write the last seconds of a running recording as a log of their own
///
/// The recording goes on. It must have been started with --snapshots, or with a trigger that makes
/// snapshots. The recorder writes the file, with its own rights.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  klogger snapshot                   the last seconds, beside \
                  the log\n  klogger snapshot --last 2s -o slow.klog --text 'it is slow now'\n  \
                  klogger report $(klogger snapshot --format json | jq -r .file)")]
pub struct Args {
    /// How much of the time until now: 500ms, 5s [default: --snapshot-before of the recording]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    last: Option<Duration>,
    /// The log [default: beside that of the recording, NAME.snapshot-001.klog]. An existing file is
    /// renamed to FILE.old
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Why, for 'klogger info'
    #[arg(long, value_name = "TEXT", default_value = "")]
    text: String,
    /// Process id of the recorder, if several are running
    #[arg(long, visible_alias = "pid", value_name = "PID")]
    recorder: Option<u32>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let absolute = |file: PathBuf| {
        let cannot = |e| Failure::new(format!("cannot write {}: {e}", file.display()));
        std::path::absolute(&file).map_err(cannot)
    };
    let request = Request::Snapshot {
        text: args.text,
        last_ns: args.last.map(|last| u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)),
        file: args.output.map(absolute).transpose()?,
    };
    let made = send(args.recorder, &request)?.snapshot;
    let made = made.ok_or_else(|| Failure::new("the recorder did not say what it has written"))?;
    match args.format {
        Format::Json => say!("{}", json_of(&made)),
        Format::Text => say!("{}", escaped(&line(&made))),
    }
    Ok(ExitCode::SUCCESS)
}

fn json_of(made: &Made) -> String {
    let Made { file, number, events, bytes, from_ns, to_ns, short } = made;
    let text = json!({
        "file": file,
        "number": number,
        "events": events,
        "bytes": bytes,
        "from_ns": from_ns,
        "to_ns": to_ns,
        "short": short,
    });
    let text = text.to_string();
    if terminal::is_terminal() { escaped(&text) } else { text }
}

fn line(made: &Made) -> String {
    let seconds = made.to_ns.saturating_sub(made.from_ns) as f64 / 1e9;
    let short = if made.short { " (the history does not reach back farther)" } else { "" };
    let (events, bytes) = (HumanCount(made.events), size(made.bytes));
    let file = made.file.display();
    format!("{file}: {events} events of the last {seconds:.3} s{short}, {bytes}")
}
