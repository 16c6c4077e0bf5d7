// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Formats of flame graphs: weighted stacks of one kind of events.
//!
//! An event with a field `as stack` is a sample: of the weight 1, or of the time in its field
//! `period in ns`. If it begins a slice, or has the role `switch_out`, the time until the end of
//! that is its weight.

mod firefox;
mod folded;
mod frames;
mod kinds;
mod omitted;
mod opened;
mod pprof;
mod runs;
mod speedscope;
mod sums;
mod walk;

use crate::exporter::{FileExporter, Format, Refused, Report, Written};
use kinds::{Kind, choose};
use klogger_log::reader::Reader;
use std::io::{self, Write};
use walk::Walked;

pub use frames::path;

/// Writes the samples of one kind.
type Writes = fn(&Reader, &Kind, &mut dyn Write, Report) -> io::Result<Walked>;

/// A format of weighted stacks.
pub struct OfStacks {
    name: &'static str,
    description: &'static str,
    suffix: &'static str,
    /// The format has a place for what its weights are.
    has_unit: bool,
    write: Writes,
}

pub static FOLDED: OfStacks = OfStacks {
    name: "folded",
    description: "Stacks as lines of text for flamegraph.pl, inferno and speedscope",
    suffix: ".folded",
    has_unit: false,
    write: folded::write,
};

pub static PPROF: OfStacks = OfStacks {
    name: "pprof",
    description: "Stacks for 'go tool pprof' and others that read profile.proto",
    suffix: ".pb.gz",
    has_unit: true,
    write: pprof::write,
};

pub static FIREFOX: OfStacks = OfStacks {
    name: "firefox",
    description: "Stacks over time for profiler.firefox.com",
    suffix: ".firefox.json",
    has_unit: true,
    write: firefox::write,
};

pub static SPEEDSCOPE: OfStacks = OfStacks {
    name: "speedscope",
    description: "Stacks over time for speedscope.app",
    suffix: ".speedscope.json",
    has_unit: true,
    write: speedscope::write,
};

impl Format for OfStacks {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn suffix(&self) -> &'static str {
        self.suffix
    }
}

impl FileExporter for OfStacks {
    fn check(&self, reader: &Reader, event: Option<&str>) -> Result<(), Refused> {
        choose(reader.preamble(), event).map(drop)
    }

    fn write(
        &self,
        reader: &Reader,
        event: Option<&str>,
        sink: &mut dyn Write,
        report: Report,
    ) -> io::Result<Written> {
        let kind = choose(reader.preamble(), event).map_err(|e| io::Error::other(e.message))?;
        let walked = (self.write)(reader, &kind, sink, report)?;
        sink.flush()?;
        // What was lost is said of each log that is read.
        let unit = format!("weights are {}", kind.weight.unit());
        let notes = (!self.has_unit).then_some(unit).into_iter().chain(walked.omitted());
        Ok(Written { notes: notes.collect(), damage: walked.damage })
    }
}
