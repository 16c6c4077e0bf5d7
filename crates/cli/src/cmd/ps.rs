// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger ps`

use super::{Format, Outcome};
use crate::messages;
use crate::terminal;
use crate::text::layout::{command, grouped, table};
use klogger_log::text::escaped_lines;
use klogger_os::Error;
use klogger_os::recorders::Recording;
use klogger_os::threads;
use klogger_recorder::rescue::killed_recorders;
use klogger_recorder::socket::{Found, Status, list, look};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

/// List running recordings
///
/// Those of other users are not shown; nor are those in other network namespaces, such as those of
/// containers and guests. The socket on which a recorder answers is in such a namespace.
#[derive(clap::Args)]
pub struct Args {
    /// json: an array of objects
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// How long a recorder may take to answer. All are asked at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Recorders that are asked at once: any process can take their names.
const ASKED_MAX: usize = 64;

/// A running recording; `None` if it does not answer.
struct Row {
    pid: u32,
    status: Option<Status>,
    why: &'static str,
}

pub fn run(args: Args) -> Outcome {
    let (rows, others) = find()?;
    match args.format {
        Format::Json => {
            let rows: Vec<Value> = rows.iter().map(Row::json).collect();
            say_json!(Value::Array(rows));
        }
        Format::Text if rows.is_empty() => say!("No recording is running."),
        Format::Text => say_part!("{}", escaped_lines(&text(&rows))),
    }
    if others > 0 {
        let names = if others == 1 { "name of a recording" } else { "names of recordings" };
        messages::note(&format!(
            "{others} {names} not asked, which programs of other users listen under"
        ));
    }
    killed_recorders().iter().for_each(|killed| messages::note(killed));
    Ok(ExitCode::SUCCESS)
}

/// The recordings that may be seen, and how many others there are.
fn find() -> Result<(Vec<Row>, usize), Error> {
    let (mut rows, mut others) = (Vec::new(), 0);
    for found in list()?.chunks(ASKED_MAX) {
        let ask = |recording: &Recording| {
            let theirs = recording.clone();
            threads::start("klogger/ask", move || look(&theirs, PATIENCE))
        };
        let asked: Vec<_> = found.iter().map(ask).collect();
        for (recording, thread) in found.iter().zip(asked) {
            let pid = recording.pid;
            // Without threads, one after the other.
            match thread.map_or_else(|_| Ok(look(recording, PATIENCE)), JoinHandle::join) {
                Ok(Found::Recording(status)) => {
                    rows.push(Row { pid, status: Some(*status), why: "" });
                }
                Ok(Found::Silent) => rows.push(Row { pid, status: None, why: "does not answer" }),
                Ok(Found::Refused(_)) => {
                    rows.push(Row { pid, status: None, why: "of another version of klogger" });
                }
                Ok(Found::OfUser(_)) => others += 1,
                Ok(Found::Ended) | Err(_) => {}
            }
        }
    }
    // Another program may have taken one of the names of a recorder that answers under another.
    let answering: Vec<u32> =
        rows.iter().filter(|row| row.status.is_some()).map(|row| row.pid).collect();
    rows.retain(|row| row.status.is_some() || !answering.contains(&row.pid));
    Ok((rows, others))
}

impl Row {
    fn json(&self) -> Value {
        match &self.status {
            None => json!({ "pid": self.pid, "answers": false, "why": self.why }),
            Some(status) => {
                let mut value = json!(status);
                value["pid"] = self.pid.into();
                value["answers"] = true.into();
                value
            }
        }
    }

    fn cells(&self) -> [String; 7] {
        let Some(status) = &self.status else {
            let unknown = || "?".to_string();
            return [
                self.pid.to_string(),
                unknown(),
                format!("({})", self.why),
                unknown(),
                unknown(),
                unknown(),
                unknown(),
            ];
        };
        // The events of a flight recorder stay in its rings.
        let rate = match status.per_second.filter(|_| !status.overwrite) {
            Some(rate) => grouped(rate.round() as u64),
            None => "-".into(),
        };
        [
            self.pid.to_string(),
            elapsed(status.elapsed_ns),
            what(status),
            status.file.clone(),
            grouped(status.lost),
            rate,
            grouped(status.logged),
        ]
    }
}

fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let titles = ["PID", "TIME", "WHAT", "FILE", "LOST", "EVENTS/S", "EVENTS"];
    // The last words of a file say most; what is recorded gives way.
    table(&mut out, titles, &cells, 2, terminal::width());
    out
}

/// `12 s`, `3:04`, `1:02:03`
fn elapsed(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// What is recorded, and of whom.
fn what(status: &Status) -> String {
    /// The schema of `record -e`.
    const TRACE_EVENTS: &str = "events";
    let schemata: Vec<String> = status
        .schemata
        .iter()
        .map(|name| match name == TRACE_EVENTS {
            true => format!("-e {}", status.events.join(",")),
            false => name.clone(),
        })
        .collect();
    let pids = || status.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let whom = match (status.scope.as_str(), status.pids.is_empty(), status.command.is_empty()) {
        ("all", _, true) => "-a".into(),
        ("all", _, false) => format!("-a -- {}", command(&status.command)),
        (_, false, _) => format!("-p {}", pids()),
        (_, true, false) => format!("-- {}", command(&status.command)),
        _ => status.scope.clone(),
    };
    format!("{} {whom}", schemata.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let of = |seconds: u64| elapsed(seconds * 1_000_000_000);
        assert_eq!([of(0), of(59), of(60), of(3723)], ["0 s", "59 s", "1:00", "1:02:03"]);
    }

    #[test]
    fn what_is_recorded_reads_like_its_options() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let status = Status {
            schemata: words(&["io", "events"]),
            events: words(&["sched_switch"]),
            scope: "processes".into(),
            command: words(&["make", "-j 4"]),
            ..Status::default()
        };
        assert_eq!(what(&status), "io,-e sched_switch -- make '-j 4'");
        let all = Status { scope: "all".into(), ..status.clone() };
        assert_eq!(what(&all), "io,-e sched_switch -a -- make '-j 4'");
        let some = Status { pids: vec![1, 2], ..status };
        assert_eq!(what(&some), "io,-e sched_switch -p 1,2");
    }
}
