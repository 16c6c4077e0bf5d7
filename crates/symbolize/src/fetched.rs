// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names from the debug information that servers have, for files that have too few themselves.

use crate::debuginfod::{Fetched, Servers, is_build_id, public};
use crate::fetcher;
use crate::finder::{self, Wanted};
use crate::{Missing, Search, TIME, take, unnamed};
use klogger_log::code::Code;
use klogger_programs::variables::debug_file;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Adds the names of places that have none. What is missing then is told: of a server that cannot
/// be asked, once.
pub fn add(
    code: &mut Code,
    wanted: &[Wanted],
    search: &Search,
    servers: &Result<Servers, String>,
    missing: &mut Vec<Missing>,
) {
    let lacking = lacking(code, wanted, search);
    if lacking.is_empty() {
        return;
    }
    let servers = match servers {
        Ok(servers) => servers,
        Err(why) => {
            let places = lacking.iter().map(|file| unnamed(code, file)).sum();
            return missing.push(failed("DEBUGINFOD_URLS", "", why, places));
        }
    };
    let mut kept = Vec::new();
    let mut failures: BTreeMap<String, Missing> = BTreeMap::new();
    let build_ids: BTreeSet<&String> = lacking.iter().map(|file| &file.build_id).collect();
    let came = what_came(&build_ids, servers, search);
    for file in &lacking {
        match &came[&file.build_id] {
            Fetched::Kept => kept.push(file.clone()),
            Fetched::Absent => absent(code, file, servers, missing),
            Fetched::Failed(url, why) => {
                let none = || failed(&public(url), &file.build_id, why, 0);
                failures.entry(url.clone()).or_insert_with(none).places += unnamed(code, file);
            }
        }
    }
    missing.extend(failures.into_values());
    name(code, &kept, servers, missing);
}

/// What came of each: of those that servers have been asked for before, what came then.
fn what_came(
    build_ids: &BTreeSet<&String>,
    servers: &Servers,
    search: &Search,
) -> BTreeMap<String, Fetched> {
    let known = |id: &&String| Some(((**id).clone(), servers.known(id)?));
    let mut came: BTreeMap<String, Fetched> = build_ids.iter().filter_map(known).collect();
    let unknown = build_ids.iter().filter(|id| !came.contains_key(**id));
    let unknown: Vec<String> = unknown.map(|id| (*id).clone()).collect();
    if !unknown.is_empty() {
        let answers = fetcher::fetch(servers, &unknown, search.tell);
        came.extend(unknown.into_iter().zip(answers));
    }
    came
}

/// The files of which a place has no name, and whose debug information is not here.
fn lacking(code: &Code, wanted: &[Wanted], search: &Search) -> Vec<Wanted> {
    let known = |file: &Wanted| {
        let known = code.files[file.number as usize].clone();
        Wanted { build_id: known.build_id, loads: known.loads, ..file.clone() }
    };
    let lacks = |file: &Wanted| {
        is_build_id(&file.build_id)
            && !file.loads.is_empty()
            && unnamed(code, file) > 0
            && debug_file(&file.build_id, &search.debug).is_none()
    };
    wanted.iter().map(known).filter(lacks).collect()
}

/// Names the places by what was fetched. How callers are found is known from the files themselves.
fn name(code: &mut Code, kept: &[Wanted], servers: &Servers, missing: &mut Vec<Missing>) {
    if kept.is_empty() {
        return;
    }
    let debug = vec![servers.folder.clone()];
    let search = Search { debug, only_debug: true, ..Search::default() };
    for (file, answer) in kept.iter().zip(finder::ask(kept, &search, Instant::now() + TIME)) {
        match answer {
            Ok(named) => {
                take(code, file, named);
                missing.retain(|m| m.refused || m.build_id != file.build_id);
            }
            Err(lost) => {
                let (file, places) = (file.number, unnamed(code, file));
                missing.push(Missing { file, places, ..lost });
            }
        }
    }
}

/// No server has it: said of a file that is not here, or that is here and has no names.
fn absent(code: &Code, file: &Wanted, servers: &Servers, missing: &mut Vec<Missing>) {
    let looked = servers.addresses(&file.build_id);
    match missing.iter_mut().find(|m| m.build_id == file.build_id) {
        Some(known) => known.looked.extend(looked),
        None => missing.push(Missing {
            looked,
            places: unnamed(code, file),
            unread: false,
            ..file.lost("no server has its debug information", false)
        }),
    }
}

fn failed(what: &str, build_id: &str, why: &str, places: usize) -> Missing {
    Missing {
        file: u32::MAX,
        path: what.into(),
        build_id: build_id.into(),
        why: why.into(),
        looked: Vec::new(),
        places,
        refused: true,
        unread: true,
    }
}
