// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The process that reads the files of programs: what it is asked, what it answers, and what it may
//! do.

use crate::files::{SILENT, Step};
use crate::unwind::{self, Rule};
use crate::{finder, perf_map};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use klogger_log::code::Function;
use klogger_os::asleep::{LOOK, Sleep, give_up};
use klogger_os::confine::{Limits, Permits, confine};
use klogger_os::files::open_regular;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

/// The word with which klogger is started as this process.
pub const WORKER: &str = "name-code";

/// What is asked before they are read: the rules of the process that reads name them.
pub const FILES: &str = "read files";
/// How often a new process goes on after one that failed.
const TRIES: usize = 16;
/// An answer of one file is no longer than this.
const LIMITS: Limits = Limits { cpu_seconds: 60, memory: 8 << 30, file_size: 0 };
/// What is said of a file that was not read in time.
const LATE: &str = "reading it takes too long";
/// Names that are longer are cut: those of templates can have many kB.
pub const NAME_MAX: usize = 512;

/// Names of the code of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub path: PathBuf,
    /// Segments with code: offset, size and address; without them, offsets are those in the file.
    pub loads: Vec<(u64, u64, u64)>,
    pub offsets: Vec<u64>,
    /// Of data: where the code begins that was mapped with them, and their distance from it.
    pub data: Vec<(u64, u64)>,
    /// It is the map of a program that has made code: offsets are addresses.
    pub is_map: bool,
}

#[derive(Serialize, Deserialize)]
struct Requests<'a> {
    debug: Vec<PathBuf>,
    requests: std::borrow::Cow<'a, [Request]>,
}

/// What a file tells; or in half a line why it cannot be read.
type Answer = Result<Names, String>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    /// Of each offset, in order: the functions there, and where the return address is.
    pub code: Vec<(Vec<Function>, Rule)>,
    /// Of the data, in order: `None` if the file has none there.
    pub data: Vec<Option<Data>>,
}

/// What is at an address of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Data {
    pub address: u64,
    /// A variable, and how far the address is behind its beginning.
    pub variable: Option<(String, u64)>,
}

/// An answer for each request. `asks`: says that a file is looked up, of which there may be no
/// answer.
pub fn ask(requests: &[Request], debug: &[PathBuf], deadline: Instant, asks: Step) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    for _ in 0..TRIES {
        let rest = &requests[answers.len()..];
        if rest.is_empty() {
            break;
        }
        match one_process(rest, debug, deadline, asks, &mut answers) {
            Ok(why) if answers.len() < requests.len() => answers.push(Err(why)),
            Ok(_) => {}
            Err(e) => {
                let why = format!("it cannot be read: {e}");
                answers.resize(requests.len(), Err(why));
            }
        }
    }
    answers.resize(requests.len(), Err(LATE.into()));
    answers
}

/// Collects answers until the process ends; returns why it did.
fn one_process(
    requests: &[Request],
    debug: &[PathBuf],
    deadline: Instant,
    asks: Step,
    answers: &mut Vec<Answer>,
) -> io::Result<String> {
    asks(FILES);
    let mut child = start(requests, debug)?;
    let wanted = answers.len() + requests.len();
    let lines = lines_of(&mut child)?;
    let mut sleep = Sleep::of(&child);
    let mut why = "the file is damaged: reading it failed";
    while answers.len() < wanted {
        match lines.recv_timeout(LOOK) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(answer) => answers.push(answer),
                Err(_) => break,
            },
            Err(RecvTimeoutError::Timeout) if sleep.is_too_long() => {
                why = SILENT;
                break;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                why = LATE;
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    give_up(child);
    Ok(why.into())
}

fn start(requests: &[Request], debug: &[PathBuf]) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let paths = requests.iter().map(|r| r.path.as_path()).chain(debug.iter().map(PathBuf::as_path));
    let read: Vec<&Path> = paths.chain([program.as_path()]).collect();
    // As root it reads files that only root can read; so it can read these, and change none.
    let permits =
        Permits { read: &read, write: &[], network: false, as_stranger: false, limits: LIMITS };
    confine(&mut command, &permits);
    // From here on no file is looked up. What is asked next waits for the process, which may wait
    // for a CPU.
    finder::reads();
    let mut child = command.spawn()?;
    let asked = Requests { debug: debug.to_vec(), requests: requests.into() };
    if let Some(input) = child.stdin.take() {
        // A process that has failed already does not read: then there are no answers.
        let _ = serde_json::to_writer(io::BufWriter::new(input), &asked);
    }
    Ok(child)
}

pub fn lines_of(child: &mut Child) -> io::Result<Receiver<String>> {
    let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    let (sender, lines) = channel();
    thread::Builder::new().name("klogger-names".into()).spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    })?;
    Ok(lines)
}

/// The whole work of the process.
pub fn work() -> io::Result<()> {
    let asked: Requests = serde_json::from_reader(io::stdin().lock())?;
    for request in asked.requests.iter() {
        let mut line = serde_json::to_string(&answer(request, &asked.debug))?;
        line.push('\n');
        io::stdout().lock().write_all(line.as_bytes())?;
        io::stdout().lock().flush()?;
    }
    Ok(())
}

/// A symbolizer for each file, so that one that takes much memory leaves none behind.
fn answer(request: &Request, debug: &[PathBuf]) -> Answer {
    if request.is_map {
        return of_map(request).map_err(|e| format!("it cannot be read: {e}"));
    }
    let data = variables(request, debug);
    if request.offsets.is_empty() {
        return Ok(Names { code: Vec::new(), data: data? });
    }
    let data = data.unwrap_or_default();
    let symbolizer =
        Symbolizer::builder().enable_auto_reload(false).set_debug_dirs(Some(debug)).build();
    let places = request.offsets.iter().map(|at| address(*at, &request.loads).unwrap_or(*at));
    let places: Vec<u64> = places.collect();
    let input = match request.loads.is_empty() {
        true => Input::FileOffset(places.as_slice()),
        false => Input::VirtOffset(places.as_slice()),
    };
    // Debug information that cannot be read, or is compressed in a way that is not known, does not
    // cost the names that the file itself has.
    let sources = [true, false].map(|debug_syms| {
        let mut elf = Elf::new(&request.path);
        elf.debug_syms = debug_syms;
        Source::Elf(elf)
    });
    let found = symbolizer.symbolize(&sources[0], input);
    let found = found.or_else(|e| symbolizer.symbolize(&sources[1], input).map_err(|_| e));
    let found = found.map_err(|e| format!("it cannot be read: {e}"))?;
    let mut rules = unwind::rules(&request.path, &request.loads, &request.offsets);
    let called: Vec<u64> = rules.pass_on.iter().map(|(_, to)| *to).collect();
    let called = symbolizer.symbolize(&sources[1], Input::VirtOffset(called.as_slice()));
    for ((index, _), found) in
        std::mem::take(&mut rules.pass_on).into_iter().zip(called.unwrap_or_default())
    {
        let is_exit = |name: &str| matches!(name, "exit" | "__GI_exit");
        if matches!(&found, Symbolized::Sym(symbol) if is_exit(&symbol.name) && symbol.offset == 0)
        {
            rules.begins(index);
        }
    }
    let code = found.iter().map(functions).zip(rules.rules).collect();
    Ok(Names { code, data })
}

/// The variables at the data that are wanted.
fn variables(request: &Request, debug: &[PathBuf]) -> Result<Vec<Option<Data>>, String> {
    if request.data.is_empty() {
        return Ok(Vec::new());
    }
    let cannot = |e: &dyn std::fmt::Display| format!("its variables cannot be read: {e}");
    let file = open_regular(&request.path).map_err(|e| cannot(&e))?;
    let address = |(segment, distance): &(u64, u64)| {
        Some(code_address(*segment, &request.loads)?.wrapping_add(*distance))
    };
    let addresses: Vec<Option<u64>> = request.data.iter().map(address).collect();
    let known: Vec<u64> = addresses.iter().flatten().copied().collect();
    let found = klogger_programs::variables::variables(file, debug, &known);
    let mut found = found.map_err(|e| cannot(&e.why()))?.into_iter();
    let data = addresses.into_iter().map(|address| {
        let address = address?;
        let variable = found.next()??.map(|v| (v.name.chars().take(NAME_MAX).collect(), v.offset));
        Some(Data { address, variable })
    });
    Ok(data.collect())
}

/// Pages of no system are larger.
const PAGE_MAX: u64 = 64 << 10;

/// The address of what was mapped as code from this offset of the file on, which is the beginning
/// of a segment, or of the page that it begins in.
fn code_address(offset: u64, loads: &[(u64, u64, u64)]) -> Option<u64> {
    let begins = |(at, ..): &&(u64, u64, u64)| at.wrapping_sub(offset) < PAGE_MAX;
    let within = |(at, size, _): &&(u64, u64, u64)| offset.wrapping_sub(*at) < *size;
    let (at, _, address) = loads.iter().find(within).or_else(|| loads.iter().find(begins))?;
    Some(address.wrapping_add(offset).wrapping_sub(*at))
}

fn of_map(request: &Request) -> io::Result<Names> {
    let map = BufReader::new(open_regular(&request.path)?.take(perf_map::BYTES_MAX));
    let found = perf_map::find(map, &request.offsets)?;
    let code = found.into_iter().map(|f| (f.into_iter().collect(), Rule::Unknown)).collect();
    Ok(Names { code, data: Vec::new() })
}

/// The address of an offset, if the segments are known.
pub fn address(offset: u64, loads: &[(u64, u64, u64)]) -> Option<u64> {
    let within = |(at, size, _): &&(u64, u64, u64)| offset.wrapping_sub(*at) < *size;
    let (at, _, address) = loads.iter().find(within)?;
    Some(address.wrapping_add(offset - at))
}

/// The outermost first.
fn functions(found: &Symbolized) -> Vec<Function> {
    let Symbolized::Sym(symbol) = found else { return Vec::new() };
    let function = |name: &str, offset, code: Option<&CodeInfo>| Function {
        name: name.chars().take(NAME_MAX).collect(),
        offset,
        source: code.map(source).unwrap_or_default(),
    };
    let own = function(&symbol.name, symbol.offset as u64, symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().map(|f| function(&f.name, 0, f.code_info.as_ref()));
    std::iter::once(own).chain(inlined).collect()
}

fn source(code: &CodeInfo) -> String {
    let path = code.to_path();
    match code.line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}
