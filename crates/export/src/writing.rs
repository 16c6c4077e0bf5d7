// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A thread that encodes and writes the rows of all tables while others read the log: each takes
//! about half of the time.

use crate::table::TableFile;
use arrow_array::RecordBatch;
use klogger_os::threads;
use parquet::errors::ParquetError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// Batches that may wait, which bounds the memory that they take.
const WAITING: usize = 8;

pub struct Writing<'scope> {
    batches: SyncSender<(usize, RecordBatch)>,
    thread: ScopedJoinHandle<'scope, Result<(), ParquetError>>,
}

impl<'scope> Writing<'scope> {
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        files: Vec<TableFile>,
    ) -> Result<Self, ParquetError> {
        let (batches, received) = sync_channel(WAITING);
        let thread = threads::start_in(scope, move || write(files, &received));
        let thread = thread.map_err(|e| ParquetError::External(Box::new(e)))?;
        Ok(Writing { batches, thread })
    }

    /// Hands over rows of a table; false if the thread has failed: `finish` says why.
    pub fn send(&self, table: usize, rows: RecordBatch) -> bool {
        rows.num_rows() == 0 || self.batches.send((table, rows)).is_ok()
    }

    /// Waits until all is written.
    pub fn finish(self) -> Result<(), ParquetError> {
        drop(self.batches);
        let done = self.thread.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn write(
    mut files: Vec<TableFile>,
    batches: &Receiver<(usize, RecordBatch)>,
) -> Result<(), ParquetError> {
    for (table, rows) in batches {
        files[table].write(&rows)?;
    }
    files.into_iter().try_for_each(TableFile::finish)
}
