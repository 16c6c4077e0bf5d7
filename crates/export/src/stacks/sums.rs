// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The sums of samples of the same thread and stack: as much memory as there are different ones.

use super::kinds::Kind;
use super::walk::{Walked, walk};
use crate::exporter::Report;
use klogger_log::reader::Reader;
use std::collections::HashMap;

/// Samples of one thread with one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: u64,
    /// ns, or the same as `count`.
    pub weight: u64,
}

impl Sum {
    pub fn add(&mut self, count: u64, weight: u64) {
        self.count = self.count.saturating_add(count);
        self.weight = self.weight.saturating_add(weight);
    }
}

/// ((thread, stack), sum), in the order of threads, then stacks.
pub type Sums = Vec<((u32, u32), Sum)>;

pub fn sums(reader: &Reader, kind: &Kind, report: Report) -> (Walked, Sums) {
    let mut sums: HashMap<(u32, u32), Sum> = HashMap::new();
    let walked = walk(reader, kind, report, &mut |sample| {
        sums.entry((sample.thread, sample.stack)).or_default().add(1, sample.weight);
    });
    let mut sums: Sums = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    (walked, sums)
}
