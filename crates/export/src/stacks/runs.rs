// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The samples of each thread in the order of time: 24 bytes of memory for each that is left.

use super::kinds::Kind;
use super::walk::{Walked, walk};
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

/// By thread, as in [`Walked::threads`].
pub fn runs(
    reader: &Reader,
    kind: &Kind,
    join: Joining,
    report: Report,
) -> (Walked, Vec<Vec<Run>>) {
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
    threads.resize_with(walked.threads.len(), Vec::new);
    threads.iter_mut().for_each(|runs| runs.sort_by_key(|run| run.time_ns));
    (walked, threads)
}
