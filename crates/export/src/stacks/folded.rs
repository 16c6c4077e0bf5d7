// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to folded`: a line `program;outer;inner WEIGHT` for each stack, as flamegraph.pl reads them.
//! Frames of the kernel end in `_[k]`, inlined ones in `_[i]`. The format has no comments.

use super::frames::{Paths, Shown, plain};
use super::kinds::Kind;
use super::sums::{Sum, sums};
use super::walk::Walked;
use crate::exporter::Report;
use klogger_log::reader::Reader;
use std::collections::BTreeMap;
use std::io::{self, Write};

pub fn write(
    reader: &Reader,
    kind: &Kind,
    sink: &mut dyn Write,
    report: Report,
) -> io::Result<Walked> {
    let (walked, sums) = sums(reader, kind, report);
    let names: Vec<String> = walked.paths.frames.iter().map(Shown::text).collect();
    // Threads of one program are one line, and so are stacks that differ in places only.
    let mut lines: BTreeMap<String, Sum> = BTreeMap::new();
    for ((thread, stack), sum) in &sums {
        let program = plain(&walked.threads[*thread as usize].program());
        let line = line(&program, *stack, &walked.paths, &names);
        lines.entry(line).or_default().add(sum.count, sum.weight);
    }
    for (line, sum) in &lines {
        writeln!(sink, "{line} {}", sum.weight)?;
    }
    Ok(walked)
}

fn line(program: &str, stack: u32, paths: &Paths, names: &[String]) -> String {
    let mut line = program.to_string();
    for frame in &paths.paths[stack as usize] {
        line.push(';');
        line.push_str(&names[*frame as usize]);
    }
    line
}
