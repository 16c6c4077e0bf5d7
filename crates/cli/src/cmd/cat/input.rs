// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where a log comes from that is not complete yet: a file that grows, or a pipe.

use super::segments::Segments;
use crate::failure::Failure;
use crate::messages;
use klogger_log::ledger::Key;
use klogger_log::lock::{Writing, writing};
use klogger_os as os;
use klogger_os::files::{FileId, open_regular};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;
/// How long to wait before a file is looked at again, and for a pipe.
const WAIT: Duration = Duration::from_millis(50);
/// How often it is checked whether the name still means the same file.
const LOOK: Duration = Duration::from_secs(1);

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    Bytes,
    /// Nothing, for a short time.
    Nothing,
    /// Nothing more will come. If the log is not complete, that is why.
    End(Key),
}

pub struct Input {
    from: From,
    buffer: Vec<u8>,
}

enum From {
    Pipe(File),
    File(Growing),
    Folder(Segments),
}

/// A file that is being written.
pub struct Growing {
    pub path: PathBuf,
    file: File,
    offset: u64,
    looked: Instant,
    /// Another file has its name now, which has been said.
    replaced: bool,
}

impl Input {
    pub fn stdin() -> Result<Input, Failure> {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let stdin = stdin.map_err(|e| Failure::new(format!("cannot read standard input: {e}")))?;
        Ok(Input::new(From::Pipe(stdin.into())))
    }

    pub fn file(path: &Path) -> Result<Input, Failure> {
        Ok(Input::new(From::File(Growing::open(path)?)))
    }

    /// The segments of a recording, from the first one that is there.
    pub fn folder(path: &Path) -> Result<Input, Failure> {
        Ok(Input::new(From::Folder(Segments::open(path)?)))
    }

    /// Goes on with the next log, where this one has ended; false if there is none.
    pub fn go_on(&mut self, recorder_runs: &dyn Fn() -> bool) -> Result<bool, Failure> {
        match &mut self.from {
            From::Folder(segments) => segments.go_on(recorder_runs),
            From::Pipe(_) | From::File(_) => Ok(false),
        }
    }

    fn new(from: From) -> Input {
        Input { from, buffer: vec![0; CHUNK] }
    }

    /// For messages.
    pub fn name(&self) -> String {
        match &self.from {
            From::Pipe(_) => "standard input".into(),
            From::File(growing) => growing.path.display().to_string(),
            From::Folder(segments) => segments.current.path.display().to_string(),
        }
    }

    /// Whether it is a file, whose recorder may be asked to hurry.
    pub fn is_file(&self) -> bool {
        !matches!(self.from, From::Pipe(_))
    }

    /// Passes what comes next to `take`; waits for a short time if there is nothing.
    pub fn read(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<Came> {
        let Input { from, buffer } = self;
        match from {
            From::Pipe(pipe) => read_pipe(pipe, buffer, take),
            From::File(growing) => growing.read(buffer, take),
            From::Folder(segments) => segments.current.read(buffer, take),
        }
    }
}

fn read_pipe(pipe: &mut File, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<Came> {
    if !os::poll_readable(&[pipe.as_fd()], WAIT)?[0] {
        return Ok(Came::Nothing);
    }
    match pipe.read(buffer) {
        Ok(0) => Ok(Came::End(Key::FileCut)),
        Ok(n) => {
            take(&buffer[..n]);
            Ok(Came::Bytes)
        }
        Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
            Ok(Came::Nothing)
        }
        Err(e) => Err(e),
    }
}

impl Growing {
    pub fn open(path: &Path) -> Result<Growing, Failure> {
        let cannot = |e| {
            Failure::new(format!("{}: {e}", path.display()))
                .help("check the file's name and its permissions")
        };
        let file = open_regular(path).map_err(cannot)?;
        let (path, looked) = (path.to_path_buf(), Instant::now());
        Ok(Growing { path, file, offset: 0, looked, replaced: false })
    }

    /// Whether a recorder is writing it.
    pub fn is_being_written(&self) -> bool {
        writing(&self.file) == Writing::Yes
    }

    fn read(&mut self, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<Came> {
        // Before the file is read: what was not being written then is complete.
        let writing = writing(&self.file);
        let n = self.file.read_at(buffer, self.offset)?;
        if n > 0 {
            self.offset += n as u64;
            take(&buffer[..n]);
            return Ok(Came::Bytes);
        }
        let length = self.file.metadata()?.len();
        if length < self.offset {
            let name = self.path.display();
            messages::note(&format!(
                "{name} has been cut to {length} bytes, of which {} had been read",
                self.offset
            ));
            return Ok(Came::End(Key::FileCut));
        }
        if writing != Writing::Yes {
            return Ok(Came::End(Key::RecorderKilled));
        }
        self.look();
        std::thread::sleep(WAIT);
        Ok(Came::Nothing)
    }

    fn look(&mut self) {
        if self.replaced || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let (Ok(ours), there) = (self.file.metadata(), self.path.metadata()) else { return };
        let same = |m: std::fs::Metadata| FileId::of(&m) == FileId::of(&ours);
        if !there.is_ok_and(same) {
            self.replaced = true;
            messages::note(&format!(
                "{} is not the file any more that is being followed: it was renamed, replaced or \
                 removed",
                self.path.display()
            ));
        }
    }
}
