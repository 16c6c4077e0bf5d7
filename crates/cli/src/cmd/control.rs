// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger mark`, `enable` and `disable`: send a request to a running recording.

use super::Outcome;
use crate::failure::Failure;
use klogger_recorder::socket::{Request, send};
use std::process::ExitCode;

/// Write a MARK event (a number and a text) into a running recording
///
/// In the log, it is between the events before and after it, and so separates the phases of a
/// measurement.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  klogger mark                       1, then 2, ...\n  \
                  klogger mark caches are warm       the next number, and a text\n  \
                  klogger mark 7 'second phase' --recorder 4711")]
pub struct MarkArgs {
    /// Any number [default: one more than that of the mark before, from 1 on]
    #[arg(allow_negative_numbers = true)]
    number: Option<String>,
    /// Any text, cut at 255 bytes
    text: Vec<String>,
    /// Process id of the recorder, if several are running
    #[arg(long, value_name = "PID")]
    recorder: Option<u32>,
}

/// Enable events in a running recording
#[derive(clap::Args)]
pub struct EnableArgs {
    #[command(flatten)]
    events: Events,
}

/// Disable events in a running recording
#[derive(clap::Args)]
pub struct DisableArgs {
    #[command(flatten)]
    events: Events,
}

#[derive(clap::Args)]
struct Events {
    /// Names of events
    #[arg(required = true, value_name = "EVENT")]
    events: Vec<String>,
    /// Process id of the recorder, if several are running
    #[arg(long, value_name = "PID")]
    recorder: Option<u32>,
}

pub fn mark(args: MarkArgs) -> Outcome {
    let words: Vec<String> = args.number.into_iter().chain(args.text).collect();
    let (number, text) = number_and_text(&words)?;
    send(args.recorder, &Request::Mark { number, text })?;
    Ok(ExitCode::SUCCESS)
}

/// The first word is a number if it looks like one.
fn number_and_text(words: &[String]) -> Result<(Option<i64>, String), Failure> {
    let is_number = |word: &String| {
        let digits = word.strip_prefix('-').unwrap_or(word);
        !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit())
    };
    let Some(first) = words.first().filter(|word| is_number(word)) else {
        return Ok((None, words.join(" ")));
    };
    let number = first.parse().map_err(|_| {
        Failure::new(format!("the number {first} of a mark is too large")).help(format!(
            "choose one from {} to {}",
            i64::MIN,
            i64::MAX
        ))
    })?;
    Ok((Some(number), words[1..].join(" ")))
}

pub fn enable(args: EnableArgs) -> Outcome {
    switch(args.events, true)
}

pub fn disable(args: DisableArgs) -> Outcome {
    switch(args.events, false)
}

fn switch(events: Events, on: bool) -> Outcome {
    for event in events.events {
        send(events.recorder, &Request::Enable { event, on })?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_a_number_or_a_text_or_both() {
        let mark = |line: &[&str]| {
            let words: Vec<String> = line.iter().map(|word| word.to_string()).collect();
            number_and_text(&words).map_err(|e| e.message)
        };
        assert_eq!(mark(&[]), Ok((None, "".into())));
        assert_eq!(mark(&["caches are warm"]), Ok((None, "caches are warm".into())));
        assert_eq!(mark(&["caches", "are", "warm"]), Ok((None, "caches are warm".into())));
        assert_eq!(mark(&["-7"]), Ok((Some(-7), "".into())));
        assert_eq!(mark(&["7", "2nd", "phase"]), Ok((Some(7), "2nd phase".into())));
        assert_eq!(mark(&["2nd", "phase"]), Ok((None, "2nd phase".into())));
        let large = "99999999999999999999";
        assert_eq!(mark(&[large]), Err(format!("the number {large} of a mark is too large")));
    }
}
