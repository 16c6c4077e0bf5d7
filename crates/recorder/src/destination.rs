// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a log is written to: a file, or standard output, as it is or through a pipe.

use crate::hung::Watched;
use klogger_log::writer::Sink;
use klogger_os::{self as os, Error};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Names of the standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// How long to wait for a pipe that takes no more, before it is tried again.
const WAIT: Duration = Duration::from_secs(1);

/// Whether a log of this name is written to standard output.
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path.as_os_str() == *name)
}

/// Whether a log can be written to standard output.
pub fn check_stdout() -> Result<(), Error> {
    if io::stdout().is_terminal() {
        let what =
            "cannot write the log to standard output: it is a terminal, and a log is not text";
        return Err(Error::new(what).help(
            "name a file with -o FILE, or show the events as they come: klogger record -o - ... | \
             klogger cat -",
        ));
    }
    let found = os::stdout_file().and_then(|file| file.metadata());
    if found.is_ok_and(|found| found.is_file() && found.len() > 0) {
        let what = "cannot write the log to standard output: it is a file that is not empty";
        return Err(Error::new(what).help("write it to a file of its own: > FILE, or -o FILE"));
    }
    Ok(())
}

/// The destination of a log.
pub enum Destination {
    File(Watched<File>),
    /// What was written cannot be undone.
    Stream(File),
}

impl Destination {
    /// Standard output, which is standard error from here on: neither messages nor the output of
    /// the command come between the bytes of the log.
    pub fn stdout() -> Result<Destination, Error> {
        let cannot = |e| Error::new(format!("cannot write the log to standard output: {e}"));
        let file = os::take_stdout().map_err(cannot)?;
        Ok(match file.metadata().map_err(cannot)?.is_file() {
            true => {
                let _ = klogger_log::lock::lock(&file);
                Destination::File(Watched::new(Path::new("standard output"), file))
            }
            false => Destination::Stream(file),
        })
    }
}

impl Write for Destination {
    /// Another program may have made a pipe non-blocking, which it shares.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::File(file) => file.write(bytes),
            Destination::Stream(stream) => loop {
                match stream.write(bytes) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        os::poll_writable(stream.as_fd(), WAIT)?;
                    }
                    done => return done,
                }
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::File(file) => file.flush(),
            Destination::Stream(stream) => stream.flush(),
        }
    }
}

impl Sink for Destination {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        match self {
            Destination::File(file) => file.cut(length),
            Destination::Stream(_) => Err(ErrorKind::NotSeekable.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn names_of_standard_output() {
        assert!(STDOUT.iter().all(|name| is_stdout(Path::new(name))));
        assert!(!is_stdout(Path::new("./-")) && !is_stdout(Path::new("/dev/null")));
    }

    #[test]
    fn a_pipe_cannot_be_cut_and_says_when_its_reader_is_gone() {
        let (reader, writer) = io::pipe().unwrap();
        let mut out = Destination::Stream(File::from(OwnedFd::from(writer)));
        out.write_all(b"log").unwrap();
        assert!(out.cut(0).is_err());
        drop(reader);
        assert_eq!(out.write_all(b"log").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
