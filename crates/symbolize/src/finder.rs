// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The process that looks for the files of programs. The server of a file system may not answer,
//! and whoever waits for it may not even be ended by a signal. So the caller only waits for this
//! process: if it hangs, it is given up, and another one does without what did not answer.

use crate::elf::Facts;
use crate::files::{Found, SILENT, Search};
use crate::perf_map::ALL_MAX;
use crate::{Missing, worker};
use klogger_log::code::File;
use klogger_os::asleep::{LOOK, Sleep, give_up};
use klogger_os::children::end_with_us;
use klogger_os::{confine, files::pass_on, mapped, roots};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The word with which klogger is started as this process.
pub const FINDER: &str = "find-code";

/// A process that reads for so much longer than it may has failed.
const LONGER: Duration = Duration::from_secs(10);
/// How often another process goes on after one that hung.
const TRIES: usize = 16;
/// How many of a kind may hang before no more are asked.
const OF_A_KIND: usize = 3;

/// A file, and the places in it whose names are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub number: u32,
    pub path: String,
    pub build_id: String,
    pub loads: Vec<(u64, u64, u64)>,
    /// In ascending order.
    pub offsets: Vec<u64>,
    /// Of data, in ascending order: where the code begins that was mapped with them, and their
    /// distance from it.
    pub data: Vec<(u64, u64)>,
}

impl Wanted {
    fn file(&self) -> File {
        let Wanted { path, build_id, loads, .. } = self.clone();
        File { path, build_id, loads }
    }

    pub fn lost(&self, why: &str, refused: bool) -> Missing {
        Missing {
            file: self.number,
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            why: why.into(),
            looked: Vec::new(),
            places: self.offsets.len() + self.data.len(),
            refused,
            unread: true,
        }
    }
}

/// The names of a file's places, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Named {
    /// Of a file of which this was not known: its build id and its segments.
    pub identified: Option<Facts>,
    pub names: worker::Names,
}

pub type Answer = Result<Named, Missing>;

#[derive(Serialize, Deserialize)]
struct Asked {
    wanted: Vec<Wanted>,
    debug: Vec<PathBuf>,
    sysroot: Option<PathBuf>,
    roots: Option<roots::Passed>,
    mapped: Vec<mapped::Passed>,
    silent: BTreeSet<String>,
    only_debug: bool,
    here: bool,
    /// In which all files are to be read.
    time: Duration,
}

/// What the process says.
#[derive(Serialize, Deserialize)]
enum Said {
    /// It asks this, and may hang.
    Asks(String),
    /// Another process reads what was found: waiting for it is no hanging.
    Reads,
    /// In the order of the files.
    Answers(Vec<Answer>),
}

/// An answer for each file.
pub fn ask(wanted: &[Wanted], search: &Search, deadline: Instant) -> Vec<Answer> {
    let mut asked = Asked {
        wanted: wanted.to_vec(),
        debug: search.debug.clone(),
        sysroot: search.sysroot.clone(),
        roots: search.roots.as_ref().map(roots::Passed::of),
        mapped: search.mapped.iter().map(mapped::Passed::of).collect(),
        silent: search.silent.clone(),
        only_debug: search.only_debug,
        here: search.here,
        time: Duration::ZERO,
    };
    let none = |why: &str| wanted.iter().map(|file| Err(file.lost(why, true))).collect();
    for _ in 0..TRIES {
        asked.time = deadline.saturating_duration_since(Instant::now());
        match one_process(&asked, deadline + LONGER) {
            Ok(End::Answers(answers)) if answers.len() == wanted.len() => return answers,
            Ok(End::Answers(_)) => break,
            Ok(End::Hung(what)) => {
                // Of many that do not answer, no more of the same kind is asked.
                let kind = kind_of(&what).to_string();
                let same = asked.silent.iter().filter(|silent| kind_of(silent) == kind).count();
                asked.silent.insert(if same < OF_A_KIND { what } else { kind });
            }
            Ok(End::TooLate) => return none("finding its names takes too long"),
            Err(e) => return none(&format!("it cannot be looked for: {e}")),
        }
    }
    none("it cannot be looked for")
}

/// The first word of what is asked: `folder`, `mount`, `root`, `process`, `map`, `read`.
pub fn kind_of(what: &str) -> &str {
    what.split_once(' ').map_or(what, |(kind, _)| kind)
}

enum End {
    Answers(Vec<Answer>),
    /// It asked this.
    Hung(String),
    TooLate,
}

fn one_process(asked: &Asked, deadline: Instant) -> io::Result<End> {
    let mut child = start(asked)?;
    let end = listen(&mut child, deadline);
    give_up(child);
    end
}

fn start(asked: &Asked) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(FINDER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let roots = asked.roots.iter().flat_map(roots::Passed::descriptors);
    let mapped = asked.mapped.iter().flat_map(mapped::Passed::descriptors);
    pass_on(&mut command, roots.chain(mapped).collect());
    end_with_us(&mut command);
    let mut child = command.spawn()?;
    if let Some(input) = child.stdin.take() {
        // One that has failed already does not read: then there are no answers.
        let _ = serde_json::to_writer(BufWriter::new(input), asked);
    }
    Ok(child)
}

fn listen(child: &mut Child, deadline: Instant) -> io::Result<End> {
    let lines = worker::lines_of(child)?;
    let mut asks: Option<String> = None;
    let mut sleep = Sleep::of(child);
    while Instant::now() < deadline {
        match lines.recv_timeout(LOOK) {
            Ok(line) => match serde_json::from_str(&line)? {
                Said::Asks(what) => (asks, sleep) = (Some(what), Sleep::of(child)),
                Said::Reads => asks = None,
                Said::Answers(answers) => return Ok(End::Answers(answers)),
            },
            Err(RecvTimeoutError::Timeout) => {
                if let Some(what) = asks.as_ref().filter(|_| sleep.is_too_long()) {
                    return Ok(End::Hung(what.clone()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the process that looks for it has failed"));
            }
        }
    }
    Ok(End::TooLate)
}

/// The whole work of the process.
pub fn work() -> io::Result<()> {
    let Asked { wanted, debug, sysroot, roots, mapped, silent, only_debug, here, time } =
        serde_json::from_reader(BufReader::new(io::stdin().lock()))?;
    let deadline = Instant::now() + time;
    confine::first_to_be_killed();
    let roots = roots.map(roots::Passed::received).transpose()?;
    let mapped = mapped.into_iter().map(mapped::Passed::received).collect();
    let search =
        Search { debug, sysroot, roots, mapped, silent, only_debug, here, ..Search::default() };
    // If this cannot be said, nobody listens.
    let asks = |what: &str| drop(say(&Said::Asks(what.into())));
    say(&Said::Answers(answers(&wanted, &search, deadline, &asks)))
}

fn say(said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_string(said)?;
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush())
}

/// A file that was found, and is to be read.
struct Job {
    /// Among those that are wanted.
    at: usize,
    request: worker::Request,
    identified: Option<Facts>,
    looked: Vec<String>,
}

fn answers(
    wanted: &[Wanted],
    search: &Search,
    deadline: Instant,
    asks: &dyn Fn(&str),
) -> Vec<Answer> {
    let mut jobs = Vec::new();
    // Copies and descriptors exist until they have been read.
    let mut held = Vec::new();
    let mut maps_left = ALL_MAX;
    let mut answers: Vec<Option<Answer>> = Vec::new();
    for (at, file) in wanted.iter().enumerate() {
        let found = search.find(file.number, &file.file(), asks);
        let looked = found.looked;
        let lost =
            |why: &str, refused| Missing { looked: looked.clone(), ..file.lost(why, refused) };
        let mut identified = None;
        let path: Result<&Path, Missing> = match &found.what {
            Found::Map(_, path, size) if *size <= maps_left => {
                maps_left -= size;
                Ok(path)
            }
            Found::Map(..) => {
                let why = format!("all maps together are larger than {} MiB", ALL_MAX >> 20);
                Err(lost(&why, true))
            }
            Found::File(path, facts) | Found::Held(_, path, facts) => {
                // Debug information has the segments of the file, but not their places in it.
                if file.loads.is_empty() {
                    identified = Some(facts.clone());
                }
                Ok(path)
            }
            Found::Vdso(copy) => Ok(copy.path()),
            Found::Refused(why) => Err(lost(why, true)),
            Found::Nothing(why) => Err(lost(why, false)),
        };
        match path {
            Ok(path) => {
                let is_map = matches!(found.what, Found::Map(..));
                let loads = identified.as_ref().map_or(&file.loads, |is| &is.loads).clone();
                let (path, offsets) = (path.to_path_buf(), file.offsets.clone());
                let data = file.data.clone();
                let request = worker::Request { path, loads, offsets, data, is_map };
                jobs.push(Job { at, request, identified, looked });
                held.push(found.what);
                answers.push(None);
            }
            Err(missing) => answers.push(Some(Err(missing))),
        }
    }
    // Maps are at the end: their sizes are chosen by programs, and the time is for all.
    jobs.sort_by_key(|job| job.request.is_map);
    let requests: Vec<worker::Request> = jobs.iter().map(|job| job.request.clone()).collect();
    let read = match search.silent.contains(worker::FILES) {
        true => vec![Err(SILENT.into()); requests.len()],
        false => worker::ask(&requests, &search.debug, deadline, asks),
    };
    for (job, found) in jobs.into_iter().zip(read) {
        let Job { at, identified, looked, .. } = job;
        answers[at] = Some(match found {
            Ok(names) => Ok(Named { identified, names }),
            Err(why) => Err(Missing { looked, ..wanted[at].lost(&why, true) }),
        });
    }
    let unread = |file: &Wanted| Err(file.lost("it was not read", true));
    answers.into_iter().zip(wanted).map(|(a, file)| a.unwrap_or_else(|| unread(file))).collect()
}

/// That another process reads now.
pub fn reads() {
    let _ = say(&Said::Reads);
}
