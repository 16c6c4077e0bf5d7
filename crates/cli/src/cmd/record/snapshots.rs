// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The options that say which snapshots are made of a recording.

use super::values::{bytes, duration, time};
use crate::failure::Failure;
use klogger_os::files::discards;
use klogger_recorder::destination::is_stdout;
use klogger_recorder::snapshots::Options;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_millis(100);
const MEMORY: u64 = 64 << 20;
const KEEP: u32 = 100;

#[derive(clap::Args)]
#[command(next_help_heading = "Snapshots")]
pub struct Snapshots {
    /// Keep the last seconds in memory, so that 'klogger snapshot' can write them as a log of their
    /// own while the recording goes on. Each of the options below does so as well
    #[arg(long)]
    snapshots: bool,
    /// What a snapshot has before it was asked for, or before the hit of a trigger [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    snapshot_before: Option<Duration>,
    /// What it has after the hit [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time)]
    snapshot_after: Option<Duration>,
    /// Memory for the last seconds. If there are more events, a snapshot says from when on it has
    /// all [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    snapshot_memory: Option<u64>,
    /// Keep the last N snapshots of a recording, and remove older ones [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    snapshot_keep: Option<u32>,
    /// Folder for snapshots [default: that of the log; with -o /dev/null the current one]
    #[arg(long, value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
}

impl Snapshots {
    /// `name`: of the files, if the log has none. `wanted`: something else asks for snapshots.
    pub fn options(
        &self,
        output: &Path,
        name: &str,
        wanted: bool,
    ) -> Result<Option<Options>, Failure> {
        let Snapshots { snapshot_before, snapshot_after, snapshot_memory, snapshot_keep, .. } =
            self;
        let chosen = [
            self.snapshots,
            wanted,
            snapshot_before.is_some(),
            snapshot_after.is_some(),
            snapshot_memory.is_some(),
            snapshot_keep.is_some(),
            self.snapshot_dir.is_some(),
        ];
        if !chosen.contains(&true) {
            return Ok(None);
        }
        Ok(Some(Options {
            before: snapshot_before.unwrap_or(BEFORE),
            after: snapshot_after.unwrap_or(AFTER),
            memory: snapshot_memory.unwrap_or(MEMORY),
            keep: snapshot_keep.unwrap_or(KEEP),
            base: self.base(output, name)?,
        }))
    }

    /// Folder and name of the files.
    fn base(&self, output: &Path, name: &str) -> Result<PathBuf, Failure> {
        let is_log = !is_stdout(output) && !output.metadata().is_ok_and(|found| discards(&found));
        let stem = if is_log { output.file_stem() } else { None };
        let stem = stem.unwrap_or(name.as_ref());
        let Some(folder) = &self.snapshot_dir else {
            return Ok(if is_log { output.with_file_name(stem) } else { stem.into() });
        };
        if folder.is_dir() {
            return Ok(folder.join(stem));
        }
        Err(Failure::new(format!("--snapshot-dir {} is not a directory", folder.display()))
            .help("create it first, or choose another one"))
    }
}
