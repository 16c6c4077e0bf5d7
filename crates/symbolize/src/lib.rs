// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names for the code addresses of programs: from their files, from debug information by build id,
//! and from the maps of programs that make code.
//!
//! The files are those of other users, so a child process reads them, which is confined and limited
//! ([`worker`]). If it fails at a file, the next one goes on with the files after it. The server of
//! their file system may not answer, so a child process looks for them as well ([`finder`]), and
//! may be given up. Servers with debug information are asked by a third one ([`fetcher`]).

mod callers;
mod debuginfod;
mod elf;
mod fetched;
mod fetcher;
mod files;
mod finder;
mod perf_map;
mod trusted;
mod unwind;
mod worker;

pub use fetcher::work as fetch;
pub use fetcher::{FETCHER, Fetching, Tell};
pub use files::Search;
pub use finder::FINDER;
pub use finder::work as find;
pub use worker::{WORKER, work};

use debuginfod::Servers;
use elf::Facts;
use finder::{Named, Wanted};
use klogger_log::code::{Code, DataPlace, File, Function, Place, UserStack, Variable};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use unwind::Rule;

/// How long all files together may take.
const TIME: Duration = Duration::from_secs(60);

/// A file whose code has no names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Missing {
    /// Its number among the files; that of no file, if it is not one of them.
    pub file: u32,
    pub path: String,
    pub build_id: String,
    /// In half a line.
    pub why: String,
    /// Where it was looked for.
    pub looked: Vec<String>,
    /// Places in it that have no name.
    pub places: usize,
    /// The file is there, but was refused, or could not be read.
    pub refused: bool,
    /// Nothing of it was read. Otherwise it was, and has no names for these places.
    pub unread: bool,
}

/// By the number of a file, its places without a name that stacks show and events have. The others
/// are words of stacks that may be return addresses.
pub fn nameless(code: &Code) -> BTreeMap<u32, usize> {
    let frames = code.stacks.iter().flat_map(|stack| &stack.frames);
    let of_code = frames.filter_map(|place| match place {
        Place::File(file, at) => Some((*file, *at)),
        _ => None,
    });
    let of_data = code.data.iter().filter(|datum| datum.name.is_none());
    let of_data = of_data.filter_map(|datum| match datum.at {
        DataPlace::Image { file, segment, distance } => Some((file, segment, distance)),
        _ => None,
    });
    let of_code: BTreeSet<_> = of_code.filter(|at| !code.names.contains_key(at)).collect();
    let of_data: BTreeSet<_> = of_data.collect();
    let files = of_code.iter().map(|(file, _)| file).chain(of_data.iter().map(|(file, ..)| file));
    files.fold(BTreeMap::new(), |mut all, file| {
        *all.entry(*file).or_default() += 1;
        all
    })
}

/// Names what can be named, in place of the names that are there; those of places that cannot be
/// named now are kept. Adds the callers of functions without a frame. Returns what is missing.
pub fn symbolize(code: &mut Code, search: &Search) -> Vec<Missing> {
    let wanted = wanted(code);
    if wanted.is_empty() {
        return Vec::new();
    }
    let answers = finder::ask(&wanted, search, Instant::now() + TIME);
    let mut missing = Vec::new();
    let mut rules = BTreeMap::new();
    for (file, answer) in wanted.iter().zip(answers) {
        match answer {
            Ok(named) => {
                let found = take(code, file, named);
                let at = file.offsets.iter().map(|at| Place::File(file.number, *at));
                rules.extend(at.zip(found));
            }
            Err(lost) if lost.refused => {
                let places = unnamed(code, file);
                missing.push(Missing { file: file.number, places, ..lost });
            }
            Err(lost) => missing.push(Missing { file: file.number, ..lost }),
        }
    }
    if let Some(servers) = Servers::of_environment() {
        fetched::add(code, &wanted, search, &servers, &mut missing);
    }
    missing.retain(|m| m.places > 0);
    callers::settle(code, &rules);
    missing
}

/// All places and data in files.
fn wanted(code: &Code) -> Vec<Wanted> {
    let mut data = data_in(code);
    let mut all = places(code);
    for number in data.keys() {
        all.entry(*number).or_default();
    }
    let wanted = |(number, offsets): (u32, BTreeSet<u64>)| {
        let File { path, build_id, loads } = code.files.get(number as usize)?.clone();
        let data = data.remove(&number).unwrap_or_default().into_iter().collect();
        let offsets = offsets.into_iter().collect();
        Some(Wanted { number, path, build_id, loads, offsets, data })
    };
    all.into_iter().filter_map(wanted).collect()
}

/// Takes the names of a file's places over. Returns the rules for their callers.
fn take(code: &mut Code, file: &Wanted, named: Named) -> Vec<Rule> {
    let Named { identified, names } = named;
    if let Some(Facts { build_id, loads }) = identified {
        let file = &mut code.files[file.number as usize];
        (file.build_id, file.loads) = (build_id, loads);
    }
    let found = file.data.iter().zip(names.data).filter_map(|(at, found)| Some((*at, found?)));
    let found: BTreeMap<(u64, u64), worker::Data> = found.collect();
    for datum in &mut code.data {
        if let DataPlace::Image { file: number, segment, distance } = datum.at
            && number == file.number
            && let Some(found) = found.get(&(segment, distance))
        {
            datum.name = Some(variable(found.clone(), &file.path));
        }
    }
    let mut rules = Vec::new();
    for (at, (names, rule)) in file.offsets.iter().zip(names.code) {
        rules.push(rule);
        if !names.is_empty() {
            code.names.insert((file.number, *at), names);
        }
    }
    rules
}

/// How many places of a file have no name of their own.
fn unnamed(code: &Code, file: &Wanted) -> usize {
    let named = |at: &&u64| code.names.contains_key(&(file.number, **at));
    let data = code.data.iter().filter_map(|datum| match datum.at {
        DataPlace::Image { file: number, segment, distance } if number == file.number => {
            let name = datum.name.as_ref()?;
            (name.name != base(&file.path)).then_some((segment, distance))
        }
        _ => None,
    });
    let data: BTreeSet<(u64, u64)> = data.collect();
    let named = file.offsets.iter().filter(named).count() + data.len();
    (file.offsets.len() + file.data.len()).saturating_sub(named)
}

/// The places in each file.
fn places(code: &Code) -> BTreeMap<u32, BTreeSet<u64>> {
    let mut all: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for place in code.stacks.iter().flat_map(UserStack::places) {
        if let Place::File(file, offset) = place {
            all.entry(*file).or_default().insert(*offset);
        }
    }
    all
}

/// The data in each file: where the code begins that was mapped with them, and their distance.
fn data_in(code: &Code) -> BTreeMap<u32, BTreeSet<(u64, u64)>> {
    let mut all: BTreeMap<u32, BTreeSet<(u64, u64)>> = BTreeMap::new();
    for datum in &code.data {
        if let DataPlace::Image { file, segment, distance } = datum.at {
            all.entry(file).or_default().insert((segment, distance));
        }
    }
    all
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where the file names no variable, it is a place in the file.
fn variable(found: worker::Data, path: &str) -> Variable {
    let file = || (base(path).into(), found.address);
    let (name, offset) = found.variable.unwrap_or_else(file);
    Variable { name, offset }
}

/// One function without more than a name.
fn plain(name: &str, offset: u64) -> Function {
    Function { name: name.into(), offset, source: String::new() }
}
