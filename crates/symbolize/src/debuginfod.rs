// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Debug information from servers (debuginfod), by the build ids of files. Only if DEBUGINFOD_URLS
//! names servers. What they send is kept in klogger's cache, as a folder of debug information, and
//! is as untrusted as all files of programs: the confined process reads it.

use crate::elf::facts;
use crate::trusted::trusted;
use klogger_os::files::cache_folder;
use klogger_os::outputs::{Folder, Old, Partial};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Bytes of one file.
const FILE_MAX: u64 = 512 << 20;
/// Bytes of all that is kept.
const KEPT_MAX: u64 = 4 << 30;
/// How long a server may take to be reached, and to send a file.
const CONNECT: Duration = Duration::from_secs(5);
const FETCH: Duration = Duration::from_secs(20);
/// How long all files together may take.
const ALL: Duration = Duration::from_secs(45);
const REDIRECTS: u32 = 3;
/// Bytes of a build id: of all that linkers make.
const ID_BYTES: std::ops::RangeInclusive<usize> = 8..=32;

/// What servers have said to this process, and to those that it has started: segments and snapshots
/// of a recording ask for the same files.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Said {
    /// Build ids that no server has.
    absent: BTreeSet<String>,
    /// Servers that are not asked again, by their address, and why.
    failed: BTreeMap<String, String>,
}
static SAID: Mutex<Said> = Mutex::new(Said { absent: BTreeSet::new(), failed: BTreeMap::new() });

impl Said {
    pub fn so_far() -> Said {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers it as well.
    pub fn keep(self) {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.absent.extend(self.absent);
        said.failed.extend(self.failed);
    }
}

/// The servers of the environment.
#[derive(Clone, Serialize, Deserialize)]
pub struct Servers {
    urls: Vec<String>,
    /// What is kept: `.build-id/NN/REST.debug`.
    pub folder: PathBuf,
}

/// Asks them. `T`: is told which one.
pub struct Run<T> {
    servers: Servers,
    agent: Agent,
    until: Instant,
    /// Bytes of all that is kept, once they have been counted.
    kept: Cell<Option<u64>>,
    asks: T,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fetched {
    /// It is in the folder.
    Kept,
    /// No server has it.
    Absent,
    /// Why a server was not understood, or what it sent not kept; its address.
    Failed(String, String),
}

impl Servers {
    /// `None`: the environment names none.
    ///
    /// # Errors
    /// Why they cannot be asked.
    pub fn of_environment() -> Option<Result<Servers, String>> {
        let urls = std::env::var("DEBUGINFOD_URLS").ok().filter(|urls| !urls.trim().is_empty())?;
        let folder = cache_folder().map(|cache| cache.join("debuginfod"));
        Some(match folder {
            Some(folder) => Ok(Servers::new(&urls, folder)),
            None => Err("there is no folder in which to keep files: set HOME".into()),
        })
    }

    fn new(urls: &str, folder: PathBuf) -> Servers {
        let urls = urls.split_whitespace().map(|url| url.trim_end_matches('/').to_string());
        Servers { urls: urls.collect(), folder }
    }

    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The folder, which is made.
    pub fn prepare(&self) -> io::Result<PathBuf> {
        Folder::make_with(&self.folder, 0o700)?;
        Ok(self.folder.clone())
    }

    /// Where the file with this build id is asked for.
    pub fn addresses(&self, build_id: &str) -> Vec<String> {
        self.urls.iter().map(|url| address(&public(url), build_id)).collect()
    }

    /// What is known without asking.
    pub fn known(&self, build_id: &str) -> Option<Fetched> {
        if kept_path(&self.folder, build_id).is_file() {
            return Some(Fetched::Kept);
        }
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        if said.absent.contains(build_id) {
            return Some(Fetched::Absent);
        }
        let failed = |url: &String| Some((url.clone(), said.failed.get(url)?.clone()));
        let all: Option<Vec<(String, String)>> = self.urls.iter().map(failed).collect();
        all?.into_iter().next().map(|(url, why)| Fetched::Failed(url, why))
    }

    /// Begins to ask. `asks`: hears which server.
    pub fn run<T: Fn(&str) -> io::Result<()>>(self, asks: T) -> Run<T> {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(FETCH))
            .max_redirects(REDIRECTS)
            .user_agent("klogger");
        // Reading certificates takes longer than asking a server of this machine.
        let config = match self.urls.iter().any(|url| url.starts_with("https://")) {
            true => config.tls_config(trusted()),
            false => config,
        };
        let agent = config.build().into();
        Run { servers: self, agent, until: Instant::now() + ALL, kept: Cell::new(None), asks }
    }
}

impl<T: Fn(&str) -> io::Result<()>> Run<T> {
    /// Gets the debug information of a file, unless it is there already.
    pub fn fetch(&self, build_id: &str) -> Fetched {
        if let Some(known) = self.servers.known(build_id) {
            return known;
        }
        let path = kept_path(&self.servers.folder, build_id);
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = None;
        for url in &self.servers.urls {
            if let Some(why) = said.failed.get(url) {
                failed.get_or_insert((url.clone(), why.clone()));
                continue;
            }
            match self.fetch_from(url, build_id, &path) {
                Ok(true) => return Fetched::Kept,
                Ok(false) => {}
                Err(why) => {
                    said.failed.insert(url.clone(), why.clone());
                    failed.get_or_insert((url.clone(), why));
                }
            }
        }
        match failed {
            Some((url, why)) => Fetched::Failed(url, why),
            None => {
                said.absent.insert(build_id.into());
                Fetched::Absent
            }
        }
    }

    /// Whether the server has it.
    fn fetch_from(&self, url: &str, build_id: &str, path: &Path) -> Result<bool, String> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err("only servers of http and https are asked".into());
        }
        if Instant::now() >= self.until {
            return Err("fetching debug information takes too long".into());
        }
        let kept = self.kept.get().unwrap_or_else(|| size_of(&self.servers.folder));
        self.kept.set(Some(kept));
        if kept >= KEPT_MAX {
            let (folder, most) = (self.servers.folder.display(), KEPT_MAX >> 30);
            return Err(format!("{folder} has {most} GiB already: remove what is old"));
        }
        // Nobody may listen any more: then this process is ended.
        let _ = (self.asks)(url);
        let mut answer = match self.agent.get(address(url, build_id)).call() {
            Ok(answer) => answer,
            Err(ureq::Error::StatusCode(404)) => return Ok(false),
            Err(e) => return Err(e.to_string()),
        };
        let body = answer.body_mut().as_reader();
        let size = keep(body, build_id, path).map_err(|e| e.to_string())?;
        self.kept.set(Some(kept.saturating_add(size)));
        Ok(true)
    }
}

/// Writes what is the debug information of the file with this build id. Returns its size.
fn keep(body: impl Read, build_id: &str, path: &Path) -> io::Result<u64> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut partial = Partial::begin(&Folder::make_with(folder, 0o700)?, name, 0o600)?;
    let size = io::copy(&mut body.take(FILE_MAX + 1), partial.file())?;
    if size > FILE_MAX {
        return Err(io::Error::other(format!("a file is larger than {} MiB", FILE_MAX >> 20)));
    }
    if facts(partial.file()).is_none_or(|is| is.build_id != build_id) {
        return Err(io::Error::other("it has sent another file than the one that was asked for"));
    }
    partial.complete(Old::Replace)?;
    Ok(size)
}

/// An address without the user and the password that it may have.
pub fn public(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or(host);
    let between = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{between}{host}{path}")
}

fn address(url: &str, build_id: &str) -> String {
    format!("{url}/buildid/{build_id}/debuginfo")
}

fn kept_path(folder: &Path, build_id: &str) -> PathBuf {
    let (first, rest) = build_id.split_at(2);
    folder.join(format!(".build-id/{first}/{rest}.debug"))
}

/// Whether it can be a part of an address and of a path.
pub fn is_build_id(id: &str) -> bool {
    ID_BYTES.contains(&(id.len() / 2)) && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Bytes of the files that are kept.
fn size_of(folder: &Path) -> u64 {
    let entries = |path: &Path| path.read_dir().into_iter().flatten().flatten();
    let folders = entries(&folder.join(".build-id"));
    let files = folders.flat_map(|folder| entries(&folder.path()).collect::<Vec<_>>());
    files.filter_map(|file| file.metadata().ok()).map(|is| is.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    /// A server that sends these answers, one for each connection, and returns what it was asked.
    fn server(answers: Vec<Vec<u8>>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = move |answer: Vec<u8>| {
            let (mut peer, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(peer.try_clone().unwrap()).lines();
            let asked = lines.next().unwrap().unwrap();
            while !lines.next().unwrap().unwrap().is_empty() {}
            // Whoever has enough does not read on.
            let _ = peer.write_all(&answer);
            asked
        };
        (url, thread::spawn(move || answers.into_iter().map(serve).collect()))
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: ");
        let mut bytes = format!("{head}{}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// A file that has a build id and nothing else.
    fn file(byte: u8) -> (Vec<u8>, String) {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64 + 56, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        // A segment of notes.
        bytes[64] = 4;
        bytes[64 + 8] = 64 + 56;
        bytes[64 + 32] = 36;
        bytes.extend_from_slice(&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]);
        bytes.extend_from_slice(b"GNU\0");
        bytes.extend_from_slice(&[byte; 20]);
        (bytes, format!("{byte:02x}").repeat(20))
    }

    fn asking(urls: &str, folder: &Path) -> Run<impl Fn(&str) -> io::Result<()> + use<>> {
        Servers::new(urls, folder.into()).run(|_| Ok(()))
    }

    #[test]
    fn what_is_sent_is_kept_and_asked_for_once() {
        let (bytes, id) = file(0x5a);
        let folder = tempfile::tempdir().unwrap();
        let (empty, absent) = server(vec![answer("404 Not Found", b"no")]);
        let (has, served) = server(vec![answer("200 OK", &bytes)]);
        let servers = asking(&format!(" {empty}/ {has}"), &folder.path().join("kept"));
        assert_eq!(servers.fetch(&id), Fetched::Kept);
        assert_eq!(servers.fetch(&id), Fetched::Kept);
        assert_eq!(std::fs::read(kept_path(&folder.path().join("kept"), &id)).unwrap(), bytes);
        for asked in [absent, served] {
            let line = format!("GET /buildid/{id}/debuginfo HTTP/1.1");
            assert_eq!(asked.join().unwrap(), [line]);
        }
        assert_eq!(size_of(&folder.path().join("kept")), bytes.len() as u64);
    }

    #[test]
    fn the_folder_is_counted_once() {
        let (first, second) = (file(0x5c), file(0x5d));
        let folder = tempfile::tempdir().unwrap();
        let (url, asked) = server([&first, &second].map(|f| answer("200 OK", &f.0)).into());
        let servers = asking(&url, folder.path());
        assert_eq!(servers.fetch(&first.1), Fetched::Kept);
        let other = std::fs::File::create(kept_path(folder.path(), &"5c".repeat(21))).unwrap();
        other.set_len(KEPT_MAX).unwrap();
        assert_eq!(servers.fetch(&second.1), Fetched::Kept);
        assert_eq!(servers.kept.get(), Some((first.0.len() + second.0.len()) as u64));
        assert_eq!(asked.join().unwrap().len(), 2);
        // By whoever comes later, which asks nobody then.
        let (url, _) = server(Vec::new());
        let found = asking(&url, folder.path()).fetch(&"5e".repeat(20));
        assert!(matches!(found, Fetched::Failed(_, why) if why.contains("4 GiB already")));
    }

    #[test]
    fn what_no_server_has_is_not_asked_for_again() {
        let id = "ab".repeat(20);
        let folder = tempfile::tempdir().unwrap();
        let (url, asked) = server(vec![answer("404 Not Found", b"")]);
        let servers = asking(&url, folder.path());
        assert_eq!(servers.fetch(&id), Fetched::Absent);
        assert_eq!(servers.fetch(&id), Fetched::Absent);
        assert_eq!(asked.join().unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_the_file_is_not_kept() {
        let (bytes, _) = file(0x5b);
        let cut = {
            let mut cut = answer("200 OK", &bytes);
            cut.truncate(cut.len() / 2);
            cut
        };
        let answers = [answer("200 OK", &bytes), answer("200 OK", b"no file"), cut];
        for (n, sent) in answers.into_iter().enumerate() {
            let id = format!("c{n}").repeat(20);
            let folder = tempfile::tempdir().unwrap();
            let (url, _) = server(vec![sent]);
            let servers = asking(&url, folder.path());
            let Fetched::Failed(failed, why) = servers.fetch(&id) else { panic!("{n}") };
            assert!(failed == url && !why.is_empty(), "{n}");
            assert_eq!(size_of(folder.path()), 0);
            // It is not asked again: it would have no answer.
            assert_eq!(servers.fetch(&"cd".repeat(20)), Fetched::Failed(url, why));
        }
    }

    #[test]
    fn only_web_servers_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        for url in ["file:///srv/debug", "ftp://localhost", "/srv/debug"] {
            let servers = asking(url, folder.path());
            let why = "only servers of http and https are asked";
            let id = "ef".repeat(20);
            assert_eq!(servers.fetch(&id), Fetched::Failed(url.into(), why.into()));
        }
    }

    #[test]
    fn passwords_are_not_told() {
        for (url, told) in [
            ("https://debug.example.org", "https://debug.example.org"),
            ("http://me:secret@example.org:8002/path@x", "http://example.org:8002/path@x"),
            ("/srv/debug", "/srv/debug"),
        ] {
            assert_eq!(public(url), told);
        }
    }

    #[test]
    fn other_texts_are_no_build_ids() {
        assert!(is_build_id(&"0f".repeat(20)));
        for id in ["", "abc", "../../../../../../etc/passwd", &"0f".repeat(64)] {
            assert!(!is_build_id(id), "{id}");
        }
    }
}
