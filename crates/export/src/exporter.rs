// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a format of `klogger export` implements: [`FileExporter`] or [`DirectoryExporter`].

use crate::output::{Error, Export};
use klogger_log::damage::Damage;
use klogger_log::reader::Reader;
use std::io::{self, Write};
use std::path::Path;

/// The name and description of a format.
pub trait Format: Sync {
    /// The value of `--to`.
    fn name(&self) -> &'static str;
    /// For the help text: what it is, and what reads it.
    fn description(&self) -> &'static str;
    /// The default suffix that is appended to the log's name.
    fn suffix(&self) -> &'static str;
}

/// Called with how many events have been read, and of how many (0 if unknown).
pub type Report<'r> = &'r mut dyn FnMut(u64, u64);

/// What a user asked for that a format, or this log, does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub message: String,
    /// What to do instead.
    pub help: String,
}

impl Refused {
    /// The format has all events.
    pub fn no_event(format: &str) -> Refused {
        let help = "it is for formats made of stacks: folded, pprof, firefox and speedscope";
        let message = format!("--event cannot be used with --to {format}");
        Refused { message, help: help.into() }
    }
}

/// What was found while a format was written.
#[derive(Default)]
pub struct Written {
    /// Damage of the log.
    pub damage: Vec<Damage>,
    /// What the reader of the export must know, one sentence each.
    pub notes: Vec<String>,
}

/// A format that is one stream of bytes: a file or a pipe.
pub trait FileExporter: Format {
    /// Whether the log has what the format is made of. `event`: the event that is exported, if the
    /// user names one.
    fn check(&self, _: &Reader, event: Option<&str>) -> Result<(), Refused> {
        match event {
            None => Ok(()),
            Some(_) => Err(Refused::no_event(self.name())),
        }
    }

    /// Writes the log to `sink`: all of it, or the samples of `event`.
    fn write(
        &self,
        reader: &Reader,
        event: Option<&str>,
        sink: &mut dyn Write,
        report: Report,
    ) -> io::Result<Written>;
}

/// A format that is a directory, which is complete or does not exist.
pub trait DirectoryExporter: Format {
    /// Writes the whole log from `log` to `dir`, or to a directory beside the log. An earlier
    /// export is replaced only with `force`, or if it is known to be outdated; other contents are
    /// never replaced.
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
