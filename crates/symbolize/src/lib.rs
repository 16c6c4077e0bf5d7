// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names for the code addresses of programs: from their files, from debug information by build id,
//! and from the maps of programs that make code.
//!
//! The files are those of other users, so a child process reads them, which is confined and limited
//! ([`worker`]). If it fails at a file, the next one goes on with the files after it.

mod callers;
mod elf;
mod files;
mod perf_map;
mod unwind;
mod worker;

pub use files::Search;
pub use worker::{WORKER, work};

use klogger_log::code::{Code, Function, Place, UserStack};
use perf_map::ALL_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long all files together may take.
const TIME: Duration = Duration::from_secs(60);

/// A file whose code has no names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
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
}

/// A file whose code is to be named, and what is said of it if that fails.
struct Job {
    number: u32,
    path: PathBuf,
    offsets: BTreeSet<u64>,
    is_map: bool,
    lost: Missing,
}

/// Names what can be named, in place of the names that are there; those of places that cannot be
/// named now are kept. Adds the callers of functions without a frame. Returns what is missing.
pub fn symbolize(code: &mut Code, search: &Search) -> Vec<Missing> {
    let deadline = Instant::now() + TIME;
    let mut missing = Vec::new();
    let mut jobs = Vec::new();
    let mut identified = Vec::new();
    // Copies and descriptors exist until they have been read.
    let mut held = Vec::new();
    let mut maps_left = ALL_MAX;
    for (number, offsets) in places(code) {
        let Some(file) = code.files.get(number as usize) else { continue };
        let found = search.find(number, file);
        let lost = |why: String| Missing {
            path: file.path.clone(),
            build_id: file.build_id.clone(),
            why,
            looked: found.looked.clone(),
            places: offsets.len(),
            refused: false,
        };
        let mut job = |path: &Path, is_map| {
            jobs.push(Job {
                number,
                path: path.into(),
                offsets: offsets.clone(),
                is_map,
                lost: lost(String::new()),
            })
        };
        match &found.what {
            files::Found::Map(_, path, size) if *size <= maps_left => {
                maps_left -= size;
                job(path, true);
                held.push(found.what);
            }
            files::Found::Map(..) => {
                let why = format!("all maps together are larger than {} MiB", ALL_MAX >> 20);
                missing.push(Missing { refused: true, ..lost(why) });
            }
            files::Found::File(path, facts) | files::Found::Held(_, path, facts) => {
                job(path, false);
                // Debug information has the segments of the file, but not their places in it.
                if file.loads.is_empty() {
                    identified.push((number, facts.build_id.clone(), facts.loads.clone()));
                }
                held.push(found.what);
            }
            files::Found::Vdso(copy) => {
                job(copy.path(), false);
                held.push(found.what);
            }
            files::Found::Refused(why) => {
                missing.push(Missing { refused: true, ..lost(why.clone()) });
            }
            files::Found::Nothing(why) => missing.push(lost(why.clone())),
        }
    }
    for (number, build_id, loads) in identified {
        let file = &mut code.files[number as usize];
        file.build_id = build_id;
        file.loads = loads;
    }
    // Maps are at the end: their sizes are chosen by programs, and the time is for all.
    jobs.sort_by_key(|job| job.is_map);
    let requests: Vec<worker::Request> = jobs
        .iter()
        .map(|job| worker::Request {
            path: job.path.clone(),
            loads: code.files[job.number as usize].loads.clone(),
            offsets: job.offsets.iter().copied().collect(),
            is_map: job.is_map,
        })
        .collect();
    let answers = worker::ask(&requests, &search.debug, deadline);
    let mut rules = BTreeMap::new();
    for (Job { number, offsets, lost, .. }, answer) in jobs.into_iter().zip(answers) {
        match answer {
            Ok(names) => {
                for (at, (names, rule)) in offsets.iter().zip(names) {
                    rules.insert(Place::File(number, *at), rule);
                    if !names.is_empty() {
                        code.names.insert((number, *at), names);
                    }
                }
            }
            Err(why) => {
                let named = |at: &&u64| code.names.contains_key(&(number, **at));
                let places = offsets.len() - offsets.iter().filter(named).count();
                missing.push(Missing { why, places, refused: true, ..lost });
            }
        }
    }
    missing.retain(|m| m.places > 0);
    callers::settle(code, &rules);
    missing
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

/// One function without more than a name.
fn plain(name: &str, offset: u64) -> Function {
    Function { name: name.into(), offset, source: String::new() }
}
