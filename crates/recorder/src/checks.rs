// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks a request for errors that can be found before anything is attached.

use super::Options;
use klogger_engines::request::{FIRST_ID, Request};
use klogger_log::preamble::RateLimit;
use klogger_os::{self as os, Error};
use klogger_ring::EVENTS_MAX;
use klogger_schema::layout::EventLayout;
use klogger_schema::nearest::did_you_mean;
use klogger_schema::wildcard;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// The layouts of all events, built-in ones first.
pub fn layouts(request: &Request) -> Result<Vec<EventLayout>, Error> {
    let mut list: Vec<EventLayout> = Vec::new();
    for unit in std::iter::once(&request.builtin).chain(&request.units) {
        let base = FIRST_ID as usize + list.len();
        if base + unit.schema.events.len() > EVENTS_MAX {
            return Err(Error::new(format!(
                "more than {} events in one recording",
                EVENTS_MAX - 1
            ))
            .help("record with fewer schemata at a time"));
        }
        let new = unit.layouts(base as u16);
        if let Some(twice) =
            new.iter().find(|n| list.iter().any(|e| e.name.eq_ignore_ascii_case(&n.name)))
        {
            let other = list
                .iter()
                .find(|e| e.name.eq_ignore_ascii_case(&twice.name))
                .map_or("", |e| e.schema.as_str());
            if other == twice.schema {
                return Err(Error::new(format!("two schemata have the name '{other}'"))
                    .help("record with one of them at a time"));
            }
            return Err(Error::new(format!(
                "two schemata have an event '{}': {other} and {}",
                twice.name, twice.schema
            ))
            .help("record with one of them at a time, or rename the event"));
        }
        list.extend(new);
    }
    Ok(list)
}

/// A decoding is one function in SQL and one table in the log, whichever schema declares it.
pub fn check_decodings(request: &Request) -> Result<(), Error> {
    for (number, unit) in request.units.iter().enumerate() {
        let before = request.units[..number].iter().map(|known| &known.schema);
        let found = before.filter_map(|k| unit.schema.decoding_clash(&k.name, &k.decodings)).next();
        if let Some(message) = found {
            return Err(Error::new(message)
                .help("record with one of them at a time, or rename it in one of them"));
        }
    }
    Ok(())
}

/// The kernel logs its own times, and programs and the recorder those of their time namespace.
pub fn check_clocks() -> Result<(), Error> {
    let (monotonic, boot) = os::clocks::time_namespace();
    if (monotonic, boot) == (0, 0) {
        return Ok(());
    }
    let seconds = if monotonic == 0 { boot } else { monotonic } / 1_000_000_000;
    Err(Error::new(format!(
        "klogger runs in a time namespace (a container) whose clocks are {seconds} s off, and so \
         would be the times of events"
    ))
    .help("run klogger outside of it: it records what runs inside as well"))
}

/// `names` must be events of this recording.
pub fn check_events(names: &[String], layouts: &[EventLayout]) -> Result<(), Error> {
    for name in names {
        if !layouts.iter().any(|e| e.name == *name) {
            let error = Error::new(format!("no schema of this recording has an event '{name}'"));
            return Err(match did_you_mean(name, layouts.iter().map(|e| e.name.as_str())) {
                Some(help) => error.help(help),
                None => error.help("see 'klogger show SCHEMA' for its events"),
            });
        }
    }
    Ok(())
}

/// The rate limits of `options`, one for each event that matches; if several do, the last one
/// counts. Only events of probes can have one, except klogger's own, which must be complete.
pub fn check_limits(options: &Options, layouts: &[EventLayout]) -> Result<Vec<RateLimit>, Error> {
    let probed = |e: &&EventLayout| {
        let unit = options.request.units.iter().find(|u| u.schema.name == e.schema);
        let is_called = |u: &&CompiledSchema| {
            u.schema.probes.iter().flat_map(|p| &p.calls).any(|c| c.event == e.name)
        };
        unit.filter(|u| options.choice.is_probed(&options.request, u)).filter(is_called).is_some()
    };
    let possible: Vec<&EventLayout> = layouts.iter().filter(probed).collect();
    let mut limits: Vec<RateLimit> = Vec::new();
    for limit in &options.limits {
        let meant = possible.iter().filter(|e| wildcard::matches(&limit.event, &e.name));
        let before = limits.len();
        limits.extend(
            meant.map(|e| RateLimit { event: e.name.clone(), per_second: limit.per_second }),
        );
        if limits.len() == before {
            return Err(no_limit(&limit.event, &possible, layouts));
        }
    }
    limits.reverse();
    limits.sort_by(|a, b| a.event.cmp(&b.event));
    limits.dedup_by(|a, b| a.event == b.event);
    Ok(limits)
}

fn no_limit(name: &str, possible: &[&EventLayout], layouts: &[EventLayout]) -> Error {
    if layouts.iter().any(|e| e.name == name) {
        return Error::new(format!("--rate-limit: no probe of this recording logs '{name}'")).help(
            "the rate of klogger's own events, and of events of programs, cannot be limited",
        );
    }
    let error =
        Error::new(format!("--rate-limit: no schema of this recording has an event '{name}'"));
    match did_you_mean(name, possible.iter().map(|e| e.name.as_str())) {
        Some(help) => error.help(help),
        None => error.help("see 'klogger show SCHEMA' for its events"),
    }
}
