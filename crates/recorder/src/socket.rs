// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The control socket of a running recording: a request is one line of JSON, and so is the answer.
//! It is in the abstract namespace, so that a killed recorder leaves no file behind.

use crate::snapshots::Made;
use klogger_log::stacks;
use klogger_log::text::escaped;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::recorders::{self, Recording, name, recordings};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a peer may keep the recorder waiting.
const PATIENCE: Duration = Duration::from_millis(200);
const LINE_MAX: u64 = 4096;
/// An answer may have the 127 frames of a stack, and the functions that were inlined into each.
const ANSWER_MAX: u64 = 1 << 20;
/// How long an answer may take: for a stack, large programs are read.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The same for a snapshot, which a slow disk may delay.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Without a number, it is one more than that of the mark before.
    Mark {
        number: Option<i64>,
        text: String,
    },
    Enable {
        event: String,
        on: bool,
    },
    /// The functions of a user stack, while the recording runs.
    Stack {
        number: u64,
    },
    /// Somebody reads the log while it is written: for [`FOLLOWED`] from now on, events are to come
    /// into it soon, and it is to say how far it is complete.
    Follow,
    /// What is recorded, and how far.
    Status,
    /// A snapshot of the time until now.
    Snapshot {
        text: String,
        /// How much of it (ns), and where to, if not as the recording has it.
        last_ns: Option<u64>,
        file: Option<PathBuf>,
    },
}

/// How long a [`Request::Follow`] lasts.
pub const FOLLOWED: Duration = Duration::from_secs(6);

/// A recording that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    pub pid: u32,
    /// Version of klogger.
    pub klogger: String,
    pub engine: String,
    pub schemata: Vec<String>,
    /// Without built-in ones. Those of programs are not known beforehand.
    pub events: Vec<String>,
    /// `all`, `processes` or `threads`.
    pub scope: String,
    /// The processes of `-p`.
    pub pids: Vec<u32>,
    pub command: Vec<String>,
    /// An absolute path; `-`: standard output.
    pub file: String,
    pub overwrite: bool,
    pub elapsed_ns: u64,
    /// What has been taken out of the rings.
    pub logged: u64,
    pub lost: u64,
    /// Of the log.
    pub bytes: u64,
    /// Events a second in the last seconds; `None` at the very beginning.
    pub per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The error, if there is one.
    pub error: Option<String>,
    pub help: Option<String>,
    /// What a [`Request::Stack`] asked for, the innermost frame first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// What a [`Request::Status`] asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Status>>,
    /// What a [`Request::Snapshot`] asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Made>,
}

/// The answer to a request, at once or when there is one.
pub enum Reply {
    Now(Answer),
    Later(Box<dyn FnOnce(Peer)>),
}

/// Whoever waits for an answer.
pub struct Peer(UnixStream);

impl Peer {
    pub fn tell(self, answer: &Answer) {
        // An error means that the peer has disconnected.
        let _ = say(self.0, answer);
    }
}

/// A function on a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Without a name, it is the file or the address.
    pub function: String,
    pub offset: Option<u64>,
    /// It was inlined into the next one.
    pub inlined: bool,
    /// Its caller is missing.
    pub gap: bool,
    pub file: String,
    /// `FILE:LINE`; empty if it is unknown.
    pub source: String,
}

impl Frame {
    pub fn of(frame: &stacks::Frame) -> Frame {
        Frame {
            function: String::from_utf8_lossy(&frame.function).into_owned(),
            offset: frame.offset,
            inlined: frame.inlined,
            gap: frame.gap,
            file: frame.file.clone(),
            source: frame.source.clone(),
        }
    }
}

impl Answer {
    pub fn refuse(error: impl Into<String>, help: Option<String>) -> Answer {
        Answer { error: Some(error.into()), help, ..Answer::default() }
    }
}

/// Root and our own user may control a recording.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == os::files::effective_uid()
}

fn stranger(uid: u32) -> Answer {
    let (who, help) = match os::files::effective_uid() {
        0 => ("root".into(), "sudo klogger ...".into()),
        own => (format!("user {own} and root"), format!("run this as user {own}")),
    };
    let message =
        format!("permission denied: only {who} may control this recording, not user {uid}");
    Answer::refuse(message, Some(help))
}

/// The recorder's side.
pub struct Listener(UnixListener);

impl Listener {
    pub fn new() -> io::Result<Listener> {
        let listener = recorders::listen()?;
        listener.set_nonblocking(true)?;
        Ok(Listener(listener))
    }

    /// Answers one peer that is waiting. A peer that is too slow, not trusted, or sends no valid
    /// request is disconnected.
    pub fn serve(&self, answer: impl FnOnce(Request) -> Reply) {
        let Ok((stream, _)) = self.0.accept() else { return };
        let Ok(uid) = os::peer_uid(stream.as_fd()) else { return };
        // An error means that the peer has disconnected.
        let _ = match is_trusted(uid) {
            true => talk(stream, answer),
            false => say(stream, &stranger(uid)),
        };
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn talk(stream: UnixStream, answer: impl FnOnce(Request) -> Reply) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let line = hear(&stream)?;
    let request = serde_json::from_str(&line);
    if let Ok(Request::Snapshot { file: Some(_), .. }) = &request
        && !os::peer_has_our_files(stream.as_fd())
    {
        // Root of a container is root for the socket, but must not write files outside.
        let refused = "a process in another mount namespace cannot choose the file of a snapshot";
        let help = "without -o, it is written beside the recording's log".into();
        return say(stream, &Answer::refuse(refused, Some(help)));
    }
    match request.map(answer) {
        Ok(Reply::Now(answer)) => say(stream, &answer),
        Ok(Reply::Later(wait)) => {
            wait(Peer(stream));
            Ok(())
        }
        Err(e) => {
            let unknown = format!("this recorder does not know the request: {e}");
            say(stream, &Answer::refuse(unknown, None))
        }
    }
}

fn say(mut stream: UnixStream, answer: &Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = serde_json::to_string(answer)?;
    writeln!(stream, "{text}")
}

/// Reads a line, all of which must arrive in time: sending it byte by byte does not extend the
/// limit.
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

/// Sends a request to the recording of process `pid`, or to the only one there is.
pub fn send(pid: Option<u32>, request: &Request) -> Result<Answer, Error> {
    let (pid, stream) = match pid {
        Some(pid) => (pid, connect(pid)?),
        None => find()?,
    };
    if serde_json::to_string(request).is_ok_and(|text| text.len() >= LINE_MAX as usize) {
        return Err(Error::new("the request has more than 4096 bytes").help("use shorter words"));
    }
    let patience = match request {
        Request::Snapshot { .. } => SNAPSHOT_PATIENCE,
        _ => ANSWER_PATIENCE,
    };
    checked(ask(stream, request, patience).map_err(|e| no_answer(pid, &e))?)
}

/// An error that the recorder answered.
fn checked(answer: Answer) -> Result<Answer, Error> {
    match answer.error {
        None => Ok(answer),
        Some(message) => {
            Err(Error { message: escaped(&message), help: answer.help.map(|h| escaped(&h)) })
        }
    }
}

/// Sends a request to the recording of process `pid`, which may be stopped: the answer must come in
/// this time.
pub fn send_within(pid: u32, request: &Request, patience: Duration) -> Result<Answer, Error> {
    let stream = connect(pid)?;
    let answer = ask(stream, request, patience).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(format!("the recording of process {pid} does not answer"))
        }
        _ => no_answer(pid, &e),
    })?;
    checked(answer)
}

/// What is behind the name of a recording.
pub enum Found {
    Recording(Box<Status>),
    /// It does not answer in time: its process is stopped, or hangs.
    Silent,
    /// It has answered this error.
    Refused(String),
    /// A program of this user, which is not asked, and would not answer.
    OfUser(u32),
    /// It has ended.
    Ended,
}

/// Asks a recording what it is.
pub fn look(recording: &Recording, patience: Duration) -> Found {
    let silent = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Found::Silent,
        _ => Found::Ended,
    };
    let stream = match os::connect_abstract(&recording.name) {
        Ok(stream) => stream,
        Err(e) => return silent(e),
    };
    match os::peer_uid(stream.as_fd()) {
        // Root's recorder answers no other user.
        Ok(uid) if uid != os::files::effective_uid() => return Found::OfUser(uid),
        Ok(_) => {}
        Err(e) => return silent(e),
    }
    match ask(stream, &Request::Status, patience) {
        Ok(Answer { status: Some(status), .. }) => Found::Recording(status),
        Ok(answer) => Found::Refused(answer.error.unwrap_or_default()),
        Err(e) => silent(e),
    }
}

/// Whether process `pid` is recording, also if it does not answer in time.
pub fn runs(pid: u32, patience: Duration) -> bool {
    let first = Recording { pid, name: name(pid) };
    let others = list().unwrap_or_default().into_iter().filter(|other| other.pid == pid);
    let mut names = std::iter::once(first).chain(others);
    names.any(|name| matches!(look(&name, patience), Found::Recording(_) | Found::Silent))
}

fn no_answer(pid: u32, error: &io::Error) -> Error {
    Error::new(format!("no answer from the recording of process {pid}: {error}"))
}

/// Connects to the recording of process `pid`, under whichever of its names it listens.
fn connect(pid: u32) -> Result<UnixStream, Error> {
    let first = Recording { pid, name: name(pid) };
    let mut found = connect_to(&first);
    if found.is_err() {
        let others = list()?.into_iter().filter(|other| other.pid == pid && *other != first);
        let connected = others.map(|other| connect_to(&other)).find(Result::is_ok);
        found = connected.unwrap_or(found);
    }
    found
}

/// Connects to a recording of our own user or of root. A program of another user that listens under
/// the name is untrusted.
fn connect_to(recording: &Recording) -> Result<UnixStream, Error> {
    let Recording { pid, name } = recording;
    let stream = os::connect_abstract(name).map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => Error::new(format!("process {pid} records nothing"))
            .help("without --recorder, the recording that runs is found"),
        _ => no_answer(*pid, &e),
    })?;
    match os::peer_uid(stream.as_fd()).map_err(|e| no_answer(*pid, &e))? {
        uid if is_trusted(uid) => Ok(stream),
        uid => Err(Error::new(format!(
            "permission denied: the recording of process {pid} belongs to user {uid}"
        ))
        .help(format!("run this as user {uid}"))),
    }
}

/// The names of all recordings.
pub fn list() -> Result<Vec<Recording>, Error> {
    recordings().map_err(|e| {
        Error::new(format!("cannot see which recordings run: /proc/net/unix: {e}"))
            .help("mount /proc: 'mount -t proc proc /proc'")
    })
}

/// The only recording there is of our own user or of root. Those of other users count only for the
/// message if there is none: they may be names that a program has taken.
fn find() -> Result<(u32, UnixStream), Error> {
    let mut found: Vec<(u32, UnixStream)> = Vec::new();
    let mut refused = Vec::new();
    for recording in list()? {
        match connect_to(&recording) {
            Ok(stream) => found.push((recording.pid, stream)),
            Err(error) => refused.push(error),
        }
    }
    match found.len() {
        0 => Err(refused.into_iter().next().unwrap_or_else(|| {
            Error::new("no recording is running").help("start one with 'klogger record'")
        })),
        1 => Ok(found.remove(0)),
        _ => {
            let list: Vec<_> = found.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(Error::new("several recordings are running")
                .help(format!("choose one by its process id: --recorder {}", list.join(" or "))))
        }
    }
}

fn ask(mut stream: UnixStream, request: &Request, patience: Duration) -> io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    let text = serde_json::to_string(request)?;
    // A peer that refuses the request answers without reading it. Its answer arrives even if
    // writing fails.
    let asked = writeln!(stream, "{text}");
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        asked?;
        return Err(io::Error::other("it closed the connection"));
    }
    serde_json::from_str(&line)
        .map_err(|_| io::Error::other("the answer is not that of a recorder"))
}
