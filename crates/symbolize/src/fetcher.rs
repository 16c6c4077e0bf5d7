// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The process that asks servers for debug information. They may take long, and send anything: so
//! whoever waits for it can end it at any time, and it can write nothing but what it fetches.

use crate::debuginfod::{Fetched, Said, Servers, public};
use crate::trusted;
use crate::worker::lines_of;
use klogger_os::asleep::{LOOK, give_up};
use klogger_os::confine::{Limits, Permits, confine};
use klogger_os::times_asked_to_end;
use serde::{Deserialize, Serialize};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The word with which klogger is started as this process.
pub const FETCHER: &str = "fetch-code";

/// What takes less is not told.
const PATIENCE: Duration = Duration::from_secs(1);
/// The process has a deadline of its own, which is earlier; it may be stopped.
const DEADLINE: Duration = Duration::from_secs(120);
const LIMITS: Limits = Limits { cpu_seconds: 120, memory: 8 << 30, file_size: 1 << 30 };

/// How names of hosts are found, and who vouches for servers.
const HOSTS: [&str; 13] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/ca-certificates",
    "/run/systemd/resolve",
    "/run/nscd",
    "/dev/random",
];

/// Tells that a server is waited for; called again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching<'a> {
    /// Which server, and for how many seconds servers have been asked.
    Waits(&'a str, u64),
    /// It has ended. Only after the other.
    Ended,
}
pub type Tell = fn(Fetching<'_>);

#[derive(Serialize, Deserialize)]
struct Asked {
    servers: Servers,
    said: Said,
    build_ids: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum Line {
    /// This server is asked now.
    Asks(String),
    /// In the order of the build ids.
    Fetched(Fetched),
    /// What servers have said to all processes so far.
    Said(Said),
}

/// What came of each, in their order. A signal that asks klogger to end ends it: the log is worth
/// more.
pub fn fetch(servers: &Servers, build_ids: &[String], tell: Option<Tell>) -> Vec<Fetched> {
    let mut all = Vec::new();
    let mut asked = servers.urls().first().cloned().unwrap_or_default();
    let why = match one_process(servers, build_ids, tell, &mut all, &mut asked) {
        Ok(why) => why.to_string(),
        Err(e) => format!("it cannot be asked: {e}"),
    };
    all.resize(build_ids.len(), Fetched::Failed(asked, why));
    all
}

/// Returns why the answers that are missing did not come.
fn one_process(
    servers: &Servers,
    build_ids: &[String],
    tell: Option<Tell>,
    all: &mut Vec<Fetched>,
    asked: &mut String,
) -> io::Result<&'static str> {
    let since = Instant::now();
    // Where nobody is told of it, the recording may go on, and the first signal ends that.
    let signals = times_asked_to_end() + if tell.is_some() { 1 } else { 2 };
    let mut child = start(servers, build_ids)?;
    let lines = lines_of(&mut child)?;
    let mut told = false;
    let mut why = "the process that asks it has failed";
    while all.len() < build_ids.len() {
        match lines.recv_timeout(LOOK).map(|line| serde_json::from_str(&line)) {
            Ok(Ok(Line::Asks(server))) => *asked = server,
            Ok(Ok(Line::Fetched(fetched))) => all.push(fetched),
            Ok(Ok(Line::Said(said))) => said.keep(),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if times_asked_to_end() >= signals {
            why = "asking it was interrupted";
            break;
        }
        if since.elapsed() >= DEADLINE {
            why = "it has not answered in time";
            break;
        }
        if let Some(tell) = tell.filter(|_| since.elapsed() >= PATIENCE) {
            told = true;
            tell(Fetching::Waits(&public(asked), since.elapsed().as_secs()));
        }
    }
    give_up(child);
    if let Some(tell) = tell.filter(|_| told) {
        tell(Fetching::Ended);
    }
    Ok(why)
}

fn start(servers: &Servers, build_ids: &[String]) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    let folder = servers.prepare()?;
    let mut command = Command::new(&program);
    command.arg(FETCHER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // What is not there is not permitted.
    let named = trusted::named();
    let read = HOSTS.iter().map(Path::new).chain(named.iter().map(PathBuf::as_path));
    let read: Vec<&Path> = read.chain([program.as_path()]).collect();
    let permits = Permits {
        read: &read,
        write: &[&folder],
        network: true,
        as_stranger: false,
        limits: LIMITS,
    };
    klogger_os::children::end_with_us(&mut command);
    confine(&mut command, &permits);
    let mut child = command.spawn()?;
    let (servers, build_ids) = (servers.clone(), build_ids.to_vec());
    if let Some(input) = child.stdin.take() {
        // A process that has failed already does not read: then there are no answers.
        let asked = Asked { servers, said: Said::so_far(), build_ids };
        let _ = serde_json::to_writer(BufWriter::new(input), &asked);
    }
    Ok(child)
}

/// The whole work of the process.
pub fn work() -> io::Result<()> {
    let Asked { servers, said, build_ids } = serde_json::from_reader(io::stdin().lock())?;
    said.keep();
    let run = servers.run(|server| say(&Line::Asks(server.into())));
    for build_id in &build_ids {
        let fetched = run.fetch(build_id);
        say(&Line::Said(Said::so_far()))?;
        say(&Line::Fetched(fetched))?;
    }
    Ok(())
}

fn say(line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())
}
