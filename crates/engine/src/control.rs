// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Words to a recording that runs: one JSON line there, one back, over a socket in the abstract namespace, so that a
//! recorder that is killed leaves no file behind.

use crate::error::Error;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

const PREFIX: &str = "klogger-recording-";
/// No peer may hold up the recorder for longer.
const PATIENCE: Duration = Duration::from_millis(200);
const LINE_MAX: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Mark { number: i64, text: String },
    Enable { event: String, on: bool },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What is wrong, if something is.
    pub error: Option<String>,
    pub help: Option<String>,
}

impl Answer {
    pub fn refuse(error: impl Into<String>, help: Option<String>) -> Answer {
        Answer { error: Some(error.into()), help }
    }
}

/// The recorder's end.
pub struct Listener(UnixListener);

impl Listener {
    pub fn new() -> io::Result<Listener> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        Ok(Listener(listener))
    }

    /// Answers one peer that is waiting. A peer that is slow, foreign or talks nonsense is dropped.
    pub fn serve(&self, answer: impl FnOnce(Request) -> Answer) {
        let Ok((stream, _)) = self.0.accept() else { return };
        if !sys::peer_may_command(stream.as_fd()) {
            return;
        }
        // A peer that goes away has no use for an error.
        let _ = talk(stream, answer);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn talk(mut stream: UnixStream, answer: impl FnOnce(Request) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = hear(&stream)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(e) => Answer::refuse(format!("not a request that this recorder knows: {e}"), None),
    };
    let text = serde_json::to_string(&answer)?;
    writeln!(stream, "{text}")
}

/// A line, all of which must come in time: a peer that sends it byte by byte wins nothing.
fn hear(mut stream: &UnixStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut part = [0; 512];
    while !line.contains(&b'\n') && line.len() < LINE_MAX as usize {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => line.extend_from_slice(&part[..n]),
        }
    }
    String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{pid}"))
}

/// Process ids of the recorders that run on this machine.
pub fn recordings() -> Vec<u32> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = text.lines().filter_map(|l| l.split_once('@')?.1.strip_prefix(PREFIX)?.trim().parse().ok());
    let mut pids: Vec<u32> = names.collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Sends a request to the recording of process `pid`, or to the only one there is.
pub fn send(pid: Option<u32>, request: &Request) -> Result<(), Error> {
    let pid = match (pid, recordings().as_slice()) {
        (Some(pid), _) => pid,
        (None, [one]) => *one,
        (None, []) => return Err(Error::new("no recording is running").help("start one with 'klogger record'")),
        (None, many) => {
            let list: Vec<_> = many.iter().map(u32::to_string).collect();
            return Err(Error::new("several recordings are running")
                .help(format!("choose one by its process id: --recorder {}", list.join(" or "))));
        }
    };
    let cannot = |e: io::Error| Error::new(format!("no answer from the recording of process {pid}: {e}"));
    let stream = address(pid).and_then(|a| UnixStream::connect_addr(&a)).map_err(cannot)?;
    let answer = ask(stream, request).map_err(cannot)?;
    match answer.error {
        None => Ok(()),
        Some(message) => Err(Error { message, help: answer.help }),
    }
}

fn ask(mut stream: UnixStream, request: &Request) -> io::Result<Answer> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let text = serde_json::to_string(request)?;
    writeln!(stream, "{text}")?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::other("it hung up; another user's recording takes no orders"));
    }
    Ok(serde_json::from_str(&line)?)
}
