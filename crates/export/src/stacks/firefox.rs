// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to firefox`: the "processed profile" of the Firefox Profiler, in its version 60, which later
//! ones read. Tables of frames and stacks are common to all threads. Times are ms since the log's
//! start; weights are ms, or numbers of samples.

use super::frames::{Of, Paths, Shown};
use super::kinds::Kind;
use super::runs::{Joining, Run, runs};
use super::walk::{ThreadName, Walked};
use crate::exporter::Report;
use klogger_log::reader::Reader;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};

/// The version of the format.
const VERSION: u32 = 60;
/// Indexes of [`categories`].
const USER: usize = 0;
const KERNEL: usize = 1;
const MISSING: usize = 2;

pub fn write(
    reader: &Reader,
    kind: &Kind,
    sink: &mut dyn Write,
    report: Report,
) -> io::Result<Walked> {
    let (walked, threads) = runs(reader, kind, Joining::Never, report);
    let mut strings = Strings::default();
    let tree = Tree::new(&walked.paths);
    let mut shared = shared(&walked.paths, &tree, &mut strings);
    let (marks, none) = (marks(&walked, &mut strings), no_markers());
    write!(sink, "{{\"meta\":{},\"libs\":[],\"threads\":[", meta(reader, &walked))?;
    let mut first = true;
    for (thread, runs) in &threads {
        sink.write_all(if first { b"\n" } else { b",\n" })?;
        // Marks belong to no thread: the first one shows them.
        let head = thread_head(thread, &walked, if first { &marks } else { &none })?;
        first = false;
        write!(sink, "{},\"samples\":", head.trim_end_matches('}'))?;
        samples(runs, &walked, &tree, sink)?;
        write!(sink, "}}")?;
    }
    shared["stringArray"] = json!(strings.texts);
    writeln!(sink, "],\"shared\":{shared}}}")?;
    Ok(walked)
}

/// Texts by their numbers.
#[derive(Default)]
struct Strings {
    texts: Vec<String>,
    known: HashMap<String, usize>,
}

impl Strings {
    fn of(&mut self, text: &str) -> usize {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        self.texts.push(text.into());
        self.known.insert(text.into(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// The stacks as a tree: each node is a frame below another node.
struct Tree {
    frame: Vec<u32>,
    prefix: Vec<Option<usize>>,
    /// By stack: its innermost node.
    ends: Vec<Option<usize>>,
}

impl Tree {
    fn new(paths: &Paths) -> Tree {
        let mut tree = Tree { frame: Vec::new(), prefix: Vec::new(), ends: Vec::new() };
        let mut known: HashMap<(Option<usize>, u32), usize> = HashMap::new();
        for path in &paths.paths {
            let mut node = None;
            for frame in path {
                let next = tree.frame.len();
                let index = *known.entry((node, *frame)).or_insert(next);
                if index == next {
                    tree.frame.push(*frame);
                    tree.prefix.push(node);
                }
                node = Some(index);
            }
            tree.ends.push(node);
        }
        tree
    }
}

fn categories() -> Value {
    // The first grey one is the default.
    json!([
        { "name": "User", "color": "yellow", "subcategories": ["Other"] },
        { "name": "Kernel", "color": "orange", "subcategories": ["Other"] },
        { "name": "Other", "color": "grey", "subcategories": ["Other"] },
    ])
}

fn meta(reader: &Reader, walked: &Walked) -> Value {
    let preamble = reader.preamble();
    let ms = |ns: u64| ns as f64 / 1e6;
    let notes: Vec<Value> = walked
        .notes()
        .iter()
        .map(|note| json!({ "label": "Note", "format": "string", "value": note }))
        .collect();
    json!({
        "interval": 1,
        "startTime": ms(preamble.clock.start_realtime_ns),
        "profilingStartTime": 0,
        // What is at the end itself would not be shown.
        "profilingEndTime": ms(walked.length_ns + 1),
        "processType": 0,
        "categories": categories(),
        "product": format!("klogger: {}", walked.kind.name),
        "importedFrom": "klogger",
        "stackwalk": 1,
        "version": 32,
        "preprocessedProfileVersion": VERSION,
        "platform": "Linux",
        "oscpu": format!("Linux {} {}", preamble.host.kernel, preamble.host.machine),
        "logicalCPUs": preamble.host.cpus.len(),
        "symbolicated": true,
        "symbolicationNotSupported": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "keepProfileThreadOrder": true,
        "markerSchema": [{
            "name": "Mark",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "fields": [],
        }],
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        "extra": if notes.is_empty() { json!([]) } else {
            json!([{ "label": "klogger", "entries": notes }])
        },
    })
}

/// The tables that all threads use; without the texts.
fn shared(paths: &Paths, tree: &Tree, strings: &mut Strings) -> Value {
    let functions = Functions::new(paths, strings);
    let frames = &paths.frames;
    let (n, m) = (frames.len(), functions.name.len());
    let nothing = |length| vec![Value::Null; length];
    let category = |f: &Shown| match f.of {
        Of::Kernel => KERNEL,
        Of::User => USER,
        Of::Nothing => MISSING,
    };
    let line = |f: &Shown| f.source.rsplit_once(':').and_then(|s| s.1.parse::<u64>().ok());
    json!({
        "stackTable": {
            "frame": tree.frame, "prefix": tree.prefix, "length": tree.frame.len(),
        },
        "frameTable": {
            "address": vec![-1; n],
            "inlineDepth": vec![0; n],
            "category": frames.iter().map(category).collect::<Vec<_>>(),
            "subcategory": vec![0; n],
            "func": functions.of_frame,
            "nativeSymbol": nothing(n),
            "innerWindowID": nothing(n),
            "line": frames.iter().map(line).collect::<Vec<_>>(),
            "column": nothing(n),
            "length": n,
        },
        "funcTable": {
            "name": functions.name,
            "isJS": vec![false; m],
            "relevantForJS": vec![false; m],
            "resource": vec![-1; m],
            "source": functions.source,
            "lineNumber": nothing(m),
            "columnNumber": nothing(m),
            "length": m,
        },
        "resourceTable": { "lib": [], "name": [], "host": [], "type": [], "length": 0 },
        "nativeSymbols": {
            "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0,
        },
        "sources": {
            "id": nothing(functions.filename.len()),
            "filename": functions.filename,
            "length": functions.filename.len(),
        },
    })
}

/// Frames of one function in one file are one function.
#[derive(Default)]
struct Functions {
    of_frame: Vec<usize>,
    /// Numbers of texts.
    name: Vec<usize>,
    source: Vec<Option<usize>>,
    filename: Vec<usize>,
}

impl Functions {
    fn new(paths: &Paths, strings: &mut Strings) -> Functions {
        let mut made = Functions::default();
        let mut functions: HashMap<(&str, &str, Of), usize> = HashMap::new();
        let mut sources: HashMap<&str, usize> = HashMap::new();
        for frame in &paths.frames {
            // Without debug information, the program or library.
            let file = frame.source.rsplit_once(':').map_or(frame.file.as_str(), |s| s.0);
            let next = made.name.len();
            let index = *functions.entry((&frame.name, file, frame.of)).or_insert(next);
            made.of_frame.push(index);
            if index < next {
                continue;
            }
            made.name.push(strings.of(&frame.name));
            let source = (!file.is_empty()).then(|| {
                *sources.entry(file).or_insert_with(|| {
                    made.filename.push(strings.of(file));
                    made.filename.len() - 1
                })
            });
            made.source.push(source);
        }
        made
    }
}

fn no_markers() -> Value {
    json!({
        "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [],
        "length": 0,
    })
}

/// Marks are instants (phase 0).
fn marks(walked: &Walked, strings: &mut Strings) -> Value {
    let marks = &walked.marks;
    let n = marks.len();
    json!({
        "data": vec![json!({ "type": "Mark" }); n],
        "name": marks.iter().map(|m| strings.of(&m.text)).collect::<Vec<_>>(),
        "startTime": marks.iter().map(|m| m.time_ns as f64 / 1e6).collect::<Vec<_>>(),
        "endTime": vec![Value::Null; n],
        "phase": vec![0; n],
        "category": vec![MISSING; n],
        "length": n,
    })
}

/// All of a thread but its samples.
fn thread_head(thread: &ThreadName, walked: &Walked, markers: &Value) -> io::Result<String> {
    // Threads of one process have one name for it: its last.
    let program = walked.programs.get(&thread.tgid).filter(|program| !program.comm.is_empty());
    let process = program.map(|program| String::from_utf8_lossy(&program.comm).into_owned());
    let head = json!({
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "showMarkersInTimeline": true,
        "name": thread.program(),
        "isMainThread": thread.tid == thread.tgid,
        "processName": process.unwrap_or_else(|| thread.program()),
        "pid": thread.tgid.to_string(),
        "tid": thread.tid,
        "markers": markers,
    });
    Ok(serde_json::to_string(&head)?)
}

fn samples(runs: &[Run], walked: &Walked, tree: &Tree, sink: &mut dyn Write) -> io::Result<()> {
    let timed = walked.kind.weight.is_time();
    let kind = if timed { "tracing-ms" } else { "samples" };
    write!(sink, "{{\"length\":{},\"weightType\":\"{kind}\",\"stack\":", runs.len())?;
    list(sink, runs, |sink, run| Ok(serde_json::to_writer(sink, &tree.ends[run.stack as usize])?))?;
    write!(sink, ",\"time\":")?;
    list(sink, runs, |sink, run| ms(sink, run.time_ns))?;
    write!(sink, ",\"weight\":")?;
    list(sink, runs, |sink, run| match timed {
        true => ms(sink, run.weight),
        false => write!(sink, "{}", run.weight),
    })?;
    write!(sink, "}}")
}

fn list(
    sink: &mut dyn Write,
    runs: &[Run],
    one: impl Fn(&mut dyn Write, &Run) -> io::Result<()>,
) -> io::Result<()> {
    for (n, run) in runs.iter().enumerate() {
        sink.write_all(if n > 0 { b"," } else { b"[" })?;
        one(sink, run)?;
    }
    sink.write_all(if runs.is_empty() { b"[]" } else { b"]" })
}

/// ms with all digits of the ns.
fn ms(sink: &mut dyn Write, ns: u64) -> io::Result<()> {
    write!(sink, "{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}
