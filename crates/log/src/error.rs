// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Why a file cannot be read as a log at all. Errors inside a log are [`crate::damage::Damage`]
//! instead.

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Error {
    Io(io::Error),
    /// The file has no bytes.
    Empty,
    /// It does not begin with the magic bytes of a log.
    NotALog,
    NewerVersion {
        found: u8,
        known: u8,
    },
    /// The file ends before its preamble does (bytes).
    PreambleCut {
        have: u64,
        need: u64,
    },
    /// The preamble is damaged, or contradicts itself.
    PreambleCorrupt(String),
    /// A folder without a segment of a recording.
    NoSegments,
    /// A folder whose files do not belong together, and which ones.
    Segments(String),
}

impl Error {
    /// What the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::Io(_) => "check the file's name and its permissions",
            Error::Empty => {
                "the recording failed before it began, or the file was emptied; record again"
            }
            Error::NotALog => "logs are made by 'klogger record', and their names end in .klog",
            Error::NewerVersion { .. } => "install the klogger that wrote it, or a newer one",
            Error::NoSegments => "name the folder of 'klogger record --segment', or a log",
            Error::Segments(_) => {
                "each recording needs a folder of its own, with the files under the names that \
                 they were recorded with"
            }
            Error::PreambleCut { .. } | Error::PreambleCorrupt(_) => {
                "a log cannot be read without its preamble; if this is a copy, copy it again"
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::Empty => write!(f, "the file is empty"),
            Error::NotALog => write!(f, "this is not a klogger log"),
            Error::NewerVersion { found, known } => {
                write!(
                    f,
                    "the log was written by a newer klogger (format {found}; this one reads up to \
                     {known})"
                )
            }
            Error::PreambleCut { have, need } => {
                write!(
                    f,
                    "the log is cut off in its preamble ({have} bytes; the preamble alone has \
                     {need})"
                )
            }
            Error::NoSegments => write!(f, "there are no segments of a recording here"),
            Error::Segments(how) => write!(f, "{how}"),
            Error::PreambleCorrupt(how) => write!(f, "the log's preamble is damaged: {how}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
