// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names that threads had until some time.

use super::Row;
use std::collections::HashMap;

/// The names that threads had, by id.
#[derive(Clone, Default)]
pub struct Past {
    /// In the order of [`Row::to_ns`].
    rows: HashMap<i64, Vec<Row>>,
    count: usize,
}

impl Past {
    pub fn push(&mut self, row: Row) {
        let rows = self.rows.entry(row.pid).or_default();
        let at = rows.partition_point(|other| other.to_ns <= row.to_ns);
        rows.insert(at, row);
        self.count += 1;
    }

    /// How many names there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The names of this id that ended until then, and those that ended later: the first of these
    /// is that of the time, if its thread was there already.
    pub fn around(&self, pid: i64, time_ns: u64) -> (&[Row], &[Row]) {
        let rows = self.rows.get(&pid).map_or(&[][..], Vec::as_slice);
        rows.split_at(rows.partition_point(|row| row.to_ns <= time_ns))
    }

    /// Forgets names that ended until then.
    pub fn forget(&mut self, time_ns: u64) {
        self.rows.values_mut().for_each(|rows| rows.retain(|row| row.to_ns > time_ns));
        self.rows.retain(|_, rows| !rows.is_empty());
        self.count = self.rows.values().map(Vec::len).sum();
    }

    pub(super) fn into_rows(self) -> impl Iterator<Item = Row> {
        self.rows.into_values().flatten()
    }
}
