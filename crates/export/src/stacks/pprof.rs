// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to pprof`: a compressed `profile.proto`. Names and numbers of the messages are those of
//! pprof's own `.proto` file; the tests read the result with pprof.

use super::frames::{Of, Paths, Shown};
use super::kinds::Kind;
use super::sums::{Sums, sums};
use super::walk::{LastProgram, Walked};
use crate::exporter::Report;
use flate2::Compression;
use flate2::write::GzEncoder;
use klogger_log::reader::Reader;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    /// The innermost first: those before the last were inlined.
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The name of the kernel's code, as perf has it.
const KERNEL: &str = "[kernel.kallsyms]";

pub fn write(
    reader: &Reader,
    kind: &Kind,
    sink: &mut dyn Write,
    report: Report,
) -> io::Result<Walked> {
    let (walked, sums) = sums(reader, kind, report);
    let mut made = Made::new();
    // pprof calls the first file the program.
    if let Some(frame) = main_file(&walked, &sums) {
        made.mapping(frame);
    }
    let stacks: Vec<_> = walked.paths.paths.iter().map(|p| made.stack(p, &walked.paths)).collect();
    made.units(&walked);
    for ((thread, stack), sum) in &sums {
        let name = &walked.threads[*thread as usize];
        let mut value = vec![sum.count as i64];
        if walked.kind.weight.is_time() {
            value.push(sum.weight as i64);
        }
        let label = vec![
            made.label("thread", Some(&name.program()), 0),
            made.label("tid", None, name.tid),
            made.label("pid", None, name.tgid),
        ];
        let location_id = stacks[*stack as usize].clone();
        made.profile.sample.push(Sample { location_id, value, label });
    }
    let clock = &reader.preamble().clock;
    made.profile.time_nanos = clock.start_realtime_ns as i64;
    made.profile.duration_nanos = walked.length_ns as i64;
    let mut packed = GzEncoder::new(sink, Compression::default());
    packed.write_all(&made.profile.encode_to_vec())?;
    packed.finish()?;
    Ok(walked)
}

/// A frame in the file of the program with the greatest weight, if the log says which it is.
fn main_file<'w>(walked: &'w Walked, sums: &Sums) -> Option<&'w Shown> {
    let mut weights: BTreeMap<i64, u64> = BTreeMap::new();
    for ((thread, _), sum) in sums {
        let weight = weights.entry(walked.threads[*thread as usize].tgid).or_default();
        *weight = weight.saturating_add(sum.weight);
    }
    let (tgid, _) = weights.into_iter().max_by_key(|(_, weight)| *weight)?;
    let program = walked.programs.get(&tgid)?;
    walked.paths.frames.iter().find(|frame| is_of(frame, program))
}

/// The kernel keeps 15 bytes of a name.
const COMM_MAX: usize = 15;

/// Whether a frame is in the program's own file, by its name.
fn is_of(frame: &Shown, program: &LastProgram) -> bool {
    let base = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let file = base(frame.file.as_bytes());
    let command = program.command.split(|byte| *byte == b' ').next().map(base);
    let comm = &program.comm;
    let is_named = |name: &[u8]| !name.is_empty() && file == name;
    is_named(comm)
        || command.is_some_and(|command| is_named(&command))
        || comm.len() == COMM_MAX && file.starts_with(comm)
}

/// A profile, and the numbers of what is in its tables, which begin with 1.
struct Made {
    profile: Profile,
    strings: HashMap<String, i64>,
    mappings: HashMap<String, u64>,
    functions: HashMap<(String, String), u64>,
    locations: HashMap<Vec<u32>, u64>,
}

impl Made {
    fn new() -> Made {
        // The first text must be empty.
        let profile = Profile { string_table: vec![String::new()], ..Profile::default() };
        let strings = HashMap::from([(String::new(), 0)]);
        Made {
            profile,
            strings,
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    /// What the values of a sample are, and what is missing.
    fn units(&mut self, walked: &Walked) {
        let mut units = vec![("samples", "count")];
        if walked.kind.weight.is_time() {
            units.push((walked.kind.weight.word(), "nanoseconds"));
        }
        for (word, unit) in units {
            let (r#type, unit) = (self.text(word), self.text(unit));
            self.profile.sample_type.push(ValueType { r#type, unit });
            self.profile.default_sample_type = r#type;
        }
        self.profile.comment = walked.notes().iter().map(|note| self.text(note)).collect();
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.into());
        self.strings.insert(text.into(), index);
        index
    }

    fn label(&mut self, key: &str, text: Option<&str>, num: i64) -> Label {
        let key = self.text(key);
        Label { key, str: text.map_or(0, |text| self.text(text)), num }
    }

    /// The locations of a stack, the innermost first.
    fn stack(&mut self, path: &[u32], paths: &Paths) -> Vec<u64> {
        // A function and those that were inlined into it are one location.
        let inlined = |_: &u32, inner: &u32| paths.frames[*inner as usize].inlined;
        let locations = path.chunk_by(inlined).map(|frames| self.location(frames, paths));
        let mut locations: Vec<u64> = locations.collect();
        locations.reverse();
        locations
    }

    fn location(&mut self, frames: &[u32], paths: &Paths) -> u64 {
        if let Some(known) = self.locations.get(frames) {
            return *known;
        }
        let shown = |index: &u32| &paths.frames[*index as usize];
        let line = frames.iter().rev().map(|index| self.line(shown(index))).collect();
        let mapping_id = frames.first().map_or(0, |index| self.mapping(shown(index)));
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location { id, mapping_id, line });
        self.locations.insert(frames.to_vec(), id);
        id
    }

    fn line(&mut self, frame: &Shown) -> Line {
        let (file, line) = frame.source.rsplit_once(':').unwrap_or((&frame.source, "0"));
        let key = (frame.name.clone(), file.to_string());
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            let (name, filename) = (self.text(&frame.name), self.text(file));
            self.profile.function.push(Function { id, name, system_name: name, filename });
        }
        Line { function_id: id, line: line.parse().unwrap_or_default() }
    }

    /// The file of a frame; 0 if it is in none.
    fn mapping(&mut self, frame: &Shown) -> u64 {
        let file = match frame.of {
            Of::Kernel => KERNEL,
            Of::User => &frame.file,
            Of::Nothing => "",
        };
        if file.is_empty() {
            return 0;
        }
        let next = self.mappings.len() as u64 + 1;
        let id = *self.mappings.entry(file.into()).or_insert(next);
        if id == next {
            let filename = self.text(file);
            // Names are known: nothing is left to look up in the files.
            self.profile.mapping.push(Mapping {
                id,
                memory_start: 0,
                memory_limit: 0,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
        id
    }
}
