// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger stack`: the functions of a user stack, from a running recording.

use super::{Format, Outcome};
use crate::failure::Failure;
use crate::out;
use crate::text::open::open;
use klogger_log::text::escaped;
use klogger_os::Error;
use klogger_recorder::socket::{Frame, Request, send};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a user stack of a running recording, or of a log
///
/// A log gets the names of its user stacks when the recording ends. Until then, the recorder is
/// asked for those of one stack, by the number that events have.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  klogger stack 65540                the innermost function \
                  first\n  klogger stack 65540 --recorder 4711 --format json\n  \
                  klogger stack 65540 --log x.klog   of a recording that has ended")]
pub struct Args {
    /// Number of the stack, as events have it
    #[arg(value_name = "NUMBER")]
    number: u64,
    /// Process id of the recorder, if several are running
    #[arg(long, value_name = "PID")]
    recorder: Option<u32>,
    /// Of this log, instead of a running recording
    #[arg(long, value_name = "FILE", conflicts_with = "recorder")]
    log: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let frames = match &args.log {
        Some(log) => of_log(log, args.number)?,
        None => send(args.recorder, &Request::Stack { number: args.number })?.frames,
    };
    if args.format == Format::Json {
        let text = serde_json::to_string(&frames).map_err(|e| Error::new(e.to_string()))?;
        out::json_text(&text);
    } else {
        frames.iter().for_each(|frame| say!("{}", line(frame)));
    }
    Ok(ExitCode::SUCCESS)
}

fn of_log(log: &Path, number: u64) -> Result<Vec<Frame>, Failure> {
    let stacks = open(log)?.stacks();
    let found = stacks.find(number).ok_or_else(|| {
        Failure::new(format!("{} has no stack {number}", log.display()))
            .help("'klogger cat' prints the numbers of stacks with the events")
    })?;
    Ok(found.frames.iter().map(Frame::of).collect())
}

/// Names are those of another user's program.
fn line(frame: &Frame) -> String {
    let mut text = escaped(&frame.function);
    if let Some(offset) = frame.offset.filter(|_| !frame.inlined) {
        text += &format!("+{offset:#x}");
    }
    let place = if frame.source.is_empty() { &frame.file } else { &frame.source };
    if !place.is_empty() {
        text += &format!("  {}", escaped(place));
    }
    let gap = if frame.gap { "\n?" } else { "" };
    format!("{text}{gap}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_function_and_its_place() {
        let frame = Frame {
            function: "bo\x1bom".into(),
            offset: Some(18),
            file: "/bin/prog".into(),
            ..Frame::default()
        };
        assert_eq!(line(&frame), "bo\\x1bom+0x12  /bin/prog");
        let source = Frame { source: "prog.c:31".into(), inlined: true, gap: true, ..frame };
        assert_eq!(line(&source), "bo\\x1bom  prog.c:31\n?");
    }
}
