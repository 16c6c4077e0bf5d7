// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The samples of each thread in the order of time: 24 bytes of memory for each that is left.

use super::kinds::Kind;
use super::walk::{ThreadName, Walked, walk};
use crate::exporter::Report;
use klogger_log::reader::Reader;

/// A sample, or several that follow each other with the same stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Since the log's start.
    pub time_ns: u64,
    pub weight: u64,
    pub stack: u32,
}

/// Whether samples that follow each other with the same stack become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// The format has the time of each sample.
    Never,
    /// The format has only their order. Slices are never joined: they are known when they end, not
    /// in the order in which they have begun.
    Equal,
}

/// Those of one thread.
pub type OfThread = (ThreadName, Vec<Run>);

/// By thread: all that have samples. If there are none, a thread without samples, because programs
/// cannot show a file without threads.
pub fn runs(
    reader: &Reader,
    kind: &Kind,
    join: Joining,
    report: Report,
) -> (Walked, Vec<OfThread>) {
    let mut threads: Vec<Vec<Run>> = Vec::new();
    let joined = join == Joining::Equal && !kind.weight.is_of_slices();
    let walked = walk(reader, kind, report, &mut |sample| {
        let index = sample.thread as usize;
        if threads.len() <= index {
            threads.resize_with(index + 1, Vec::new);
        }
        let runs = &mut threads[index];
        match runs.last_mut().filter(|last| joined && last.stack == sample.stack) {
            Some(last) => last.weight = last.weight.saturating_add(sample.weight),
            None => runs.push(Run {
                time_ns: sample.time_ns,
                weight: sample.weight,
                stack: sample.stack,
            }),
        }
    });
    threads.iter_mut().for_each(|runs| runs.sort_by_key(|run| run.time_ns));
    let named = walked.threads.iter().cloned().zip(threads);
    let mut named: Vec<_> = named.filter(|(_, runs)| !runs.is_empty()).collect();
    if named.is_empty() {
        let none = ThreadName { tid: 0, tgid: 0, comm: b"no samples".to_vec() };
        named.push((none, Vec::new()));
    }
    (walked, named)
}
