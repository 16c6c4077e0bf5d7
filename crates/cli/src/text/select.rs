// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The options that select events: `--from`, `--to`, `--event`, `--cpu`, `--where`.

use super::times::{Moment, moment};
use crate::failure::Failure;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::filter::{Filter, FilterError, unknown_event};
use klogger_log::format::{CPU_MAX, Kind, RECORDER_CPU};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use std::ops::RangeInclusive;

#[derive(clap::Args, Default)]
pub struct SelectArgs {
    /// Omit earlier events: time since the start (1.5, 200ms), before the end (-1s), or UTC
    /// (12:34:56)
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    from: Option<Moment>,

    /// Omit later events
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    to: Option<Moment>,

    /// Only these events
    #[arg(short, long = "event", value_name = "EVENT,...", value_delimiter = ',')]
    events: Vec<String>,

    /// Only these CPUs: 0,2-3; '-' is the recorder. Events of programs are omitted
    #[arg(short, long = "cpu", value_name = "CPU,...", value_delimiter = ',', value_parser = cpus,
          allow_hyphen_values = true)]
    cpus: Vec<RangeInclusive<u16>>,

    /// Only events that match: 'pid == 42 && (prio < 120 || comm =~ "^k")'
    #[arg(short = 'w', long = "where", value_name = "EXPRESSION", long_help = WHERE_HELP)]
    filter: Option<String>,
}

const WHERE_HELP: &str = "\
Only events that match. Fields, and time, cpu (-1: the recorder), serial and event, are \
compared with \
==, !=, <, <=, >, >= and =~ (regular expression), and joined with &&, || and !. A number may be \
hexadecimal (0x1f), octal (0644) or \
have a unit of time (1.5ms). A value that is displayed with a name can be compared with it: \
pid == \"bash\"; a device is 7:1. \
Events of programs \
have no cpu, but tid and tgid: their thread and process. An event without the \
field does not match.";

/// Reads `3`, `2-5` or `-`.
fn cpus(text: &str) -> Result<RangeInclusive<u16>, String> {
    let cpu = |word: &str| word.parse().ok().filter(|n| *n <= CPU_MAX);
    let range = match text.split_once('-') {
        Some(("", "")) => Some(RECORDER_CPU..=RECORDER_CPU),
        Some((from, to)) => {
            cpu(from).zip(cpu(to)).map(|(from, to)| from..=to).filter(|r| !r.is_empty())
        }
        None => cpu(text).map(|n| n..=n),
    };
    range.ok_or_else(|| {
        "write CPU numbers and ranges, such as 0,2-3, or '-' for the recorder".into()
    })
}

/// What the options are resolved for.
pub struct Log<'a> {
    pub preamble: &'a Preamble,
    /// Origin of the times that are shown, and the last event, full ns of the log clock.
    pub start_ns: u64,
    pub end_ns: u64,
    pub extent: Extent,
}

/// How wide columns have to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// From the log's start to its end, ns.
    pub span_ns: u64,
    /// The highest id of a thread that logs.
    pub tid: Option<u32>,
}

/// The options, resolved for one log.
pub struct Choice {
    pub start_ns: u64,
    pub selection: Selection,
    /// By event of the preamble.
    pub events: Vec<bool>,
    from_ns: u64,
    cpus: Vec<RangeInclusive<u16>>,
    filter: Option<Filter>,
    pub extent: Extent,
}

impl SelectArgs {
    /// For a log that can be read in any order.
    pub fn resolve(&self, reader: &Reader) -> Result<Choice, Failure> {
        let start_ns = reader.span().0;
        let end_ns = reader.times().map_or(start_ns, |t| t.1);
        let events_of = reader.blocks().iter().filter(|b| b.header.kind == Kind::Events);
        let tid = events_of.filter_map(|b| b.header.origin.thread()).map(|t| t.tid).max();
        let extent = Extent { span_ns: end_ns.saturating_sub(start_ns), tid };
        self.resolve_for(&Log { preamble: reader.preamble(), start_ns, end_ns, extent })
    }

    pub fn resolve_for(&self, log: &Log) -> Result<Choice, Failure> {
        let Log { preamble, start_ns, end_ns, extent } = *log;
        let resolve = |m: Moment| m.resolve(start_ns, end_ns, preamble.clock.start_realtime_ns);
        let mut events = vec![self.events.is_empty(); preamble.events.len()];
        for name in &self.events {
            let found = preamble.events.iter().position(|e| e.name.eq_ignore_ascii_case(name));
            events[found.ok_or_else(|| failure(unknown_event(name, preamble)))?] = true;
        }
        let filter = self.filter.as_ref().map(|text| Filter::new(text, preamble, start_ns));
        let from_ns = self.from.map_or(0, resolve);
        if self.to.is_some_and(|to| resolve(to) < from_ns) {
            return Err(Failure::new("--to is before --from").help("exchange them"));
        }
        // Events before `from` are still read, because they contain the names of threads.
        let selection = Selection { origins: None, from_ns: None, to_ns: self.to.map(resolve) };
        Ok(Choice {
            start_ns,
            selection,
            events,
            from_ns,
            cpus: self.cpus.clone(),
            filter: filter.transpose().map_err(failure)?,
            extent,
        })
    }
}

fn failure(error: FilterError) -> Failure {
    Failure::new(error.message).help(error.help)
}

impl Choice {
    #[inline]
    pub fn includes(&self, event: &EventRef, decoder: &Decoder, processes: &Processes) -> bool {
        self.events[event.index]
            && event.time_ns >= self.from_ns
            && (self.cpus.is_empty()
                || event.origin.cpu().is_some_and(|cpu| self.cpus.iter().any(|r| r.contains(&cpu))))
            && self.filter.as_ref().is_none_or(|f| f.matches(event, decoder, processes))
    }
}
