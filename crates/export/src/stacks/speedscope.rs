// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to speedscope`: the file format of <https://www.speedscope.app/file-format-schema.json>, with
//! a `sampled` profile for each thread.

use super::frames::{Of, Shown};
use super::kinds::Kind;
use super::runs::{Joining, Run, runs};
use super::walk::{ThreadName, Walked};
use crate::exporter::Report;
use klogger_log::reader::Reader;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Frame<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

/// All of a profile but its samples, which are written one by one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
}

pub fn write(
    reader: &Reader,
    kind: &Kind,
    sink: &mut dyn Write,
    report: Report,
) -> io::Result<Walked> {
    let (walked, threads) = runs(reader, kind, Joining::Equal, report);
    let frames: Vec<Frame> = walked.paths.frames.iter().map(frame).collect();
    write!(sink, "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",")?;
    write!(sink, "\"exporter\":\"klogger\",\"name\":")?;
    serde_json::to_writer(&mut *sink, &title(&walked))?;
    write!(sink, ",\"shared\":{{\"frames\":")?;
    serde_json::to_writer(&mut *sink, &frames)?;
    write!(sink, "}},\"profiles\":[")?;
    for (n, (thread, runs)) in threads.iter().enumerate() {
        sink.write_all(if n > 0 { b",\n" } else { b"\n" })?;
        profile(thread, runs, &walked, sink)?;
    }
    writeln!(sink, "]}}")?;
    Ok(walked)
}

/// The notes have no other place in this format.
fn title(walked: &Walked) -> String {
    let mut parts = vec![walked.kind.name.clone()];
    parts.extend(walked.notes());
    parts.join("; ")
}

fn frame(frame: &Shown) -> Frame<'_> {
    let source = frame.source.rsplit_once(':');
    let line = source.and_then(|(_, line)| line.parse().ok());
    let file = source.map_or(frame.file.as_str(), |(file, _)| file);
    let name = match frame.of {
        Of::Kernel => format!("{}_[k]", frame.name),
        Of::User | Of::Nothing => frame.name.clone(),
    };
    Frame { name, file: Some(file).filter(|file| !file.is_empty()), line }
}

fn profile(
    thread: &ThreadName,
    runs: &[Run],
    walked: &Walked,
    sink: &mut dyn Write,
) -> io::Result<()> {
    let head = Head {
        r#type: "sampled",
        name: format!("{} ({})", thread.program(), thread.tid),
        unit: if walked.kind.weight.is_time() { "nanoseconds" } else { "none" },
        start_value: 0,
        end_value: runs.iter().fold(0, |sum, run| sum.saturating_add(run.weight)),
    };
    let head = serde_json::to_string(&head)?;
    write!(sink, "{},\"samples\":[", head.trim_end_matches('}'))?;
    for (n, run) in runs.iter().enumerate() {
        sink.write_all(if n > 0 { b"," } else { b"" })?;
        serde_json::to_writer(&mut *sink, &walked.paths.paths[run.stack as usize])?;
    }
    write!(sink, "],\"weights\":")?;
    serde_json::to_writer(&mut *sink, &runs.iter().map(|run| run.weight).collect::<Vec<_>>())?;
    write!(sink, "}}")
}
