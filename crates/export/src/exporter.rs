// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The formats of `klogger export`. One more is one module that implements [`FileExporter`] or
//! [`DirectoryExporter`], and one line of [`EXPORTERS`]: the command's possible values and its help
//! are made from them.

use crate::cache::{Error, Export, Parquet};
use crate::ctf;
use crate::perfetto::Perfetto;
use klogger_log::damage::Damage;
use klogger_log::reader::Reader;
use std::io::{self, Write};
use std::path::Path;

/// All formats, the one that is meant if none is named first.
pub const EXPORTERS: &[Exporter] = &[
    Exporter::Directory(&Parquet),
    Exporter::File(&Perfetto),
    Exporter::Directory(&ctf::Version::One),
    Exporter::Directory(&ctf::Version::Two),
    Exporter::Directory(&ctf::Version::Lttng),
];

/// What a format is called.
pub trait Format: Sync {
    /// Behind `--to`.
    fn name(&self) -> &'static str;
    /// For the help text: what it is, and for whom.
    fn about(&self) -> &'static str;
    /// What the log's name gets if nothing else is said.
    fn suffix(&self) -> &'static str;
}

/// Told how many events have been read, and of how many, if that is known (else 0).
pub type Report<'r> = &'r mut dyn FnMut(u64, u64);

/// Makes one stream of bytes: a file, or what goes into a pipe.
pub trait FileExporter: Format {
    /// Writes the whole log to `sink`; returns all that of the log could not be
    /// read.
    fn write(
        &self,
        reader: &Reader,
        sink: &mut dyn Write,
        report: Report,
    ) -> io::Result<Vec<Damage>>;
}

/// Makes a directory, which is whole or not there.
pub trait DirectoryExporter: Format {
    /// Writes the whole log, which stands at `log`, to `dir`; beside the log if that is `None`. An
    /// earlier export is replaced only if `force` says so, or if it can be seen to be out of date;
    /// anything else never.
    fn export(
        &self,
        log: &Path,
        reader: &Reader,
        dir: Option<&Path>,
        force: bool,
        report: Report,
    ) -> Result<Export, Error>;
}

/// One of the formats.
#[derive(Clone, Copy)]
pub enum Exporter {
    File(&'static dyn FileExporter),
    Directory(&'static dyn DirectoryExporter),
}

impl Exporter {
    pub fn format(self) -> &'static dyn Format {
        match self {
            Exporter::File(exporter) => exporter,
            Exporter::Directory(exporter) => exporter,
        }
    }
}
