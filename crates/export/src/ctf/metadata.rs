// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The metadata that both versions of CTF have, besides the fields of events.

use super::stream::Class;
use klogger_log::ledger::{Ledger, Severity};
use klogger_log::preamble::{Preamble, Recorder};
use klogger_log::reader::Reader;
use klogger_schema::layout::EventLayout;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The name of the clock: an identifier in both languages.
pub const CLOCK: &str = "monotonic";

/// Ledger entries at most; further ones are counted.
const LOSSES_MAX: usize = 100;

pub enum Setting {
    Number(i64),
    Text(String),
}

/// Names are C identifiers.
pub type Environment = Vec<(String, Setting)>;

pub struct Clock {
    pub name: &'static str,
    pub description: String,
    pub precision_ns: u64,
    /// From 1970 to the origin of the clock.
    pub offset_s: u64,
    pub offset_ns: u64,
}

pub struct Metadata<'r> {
    pub preamble: &'r Preamble,
    pub events: Cow<'r, [EventLayout]>,
    pub uuid: [u8; 16],
    pub clock: Clock,
    pub environment: Environment,
    /// Classes that have a stream.
    pub classes: BTreeSet<Class>,
}

impl<'r> Metadata<'r> {
    pub fn new(reader: &'r Reader, ledger: &Ledger, classes: BTreeSet<Class>) -> Metadata<'r> {
        let preamble = reader.preamble();
        Metadata {
            preamble,
            events: Cow::Borrowed(&preamble.events),
            uuid: uuid(reader),
            clock: clock(preamble),
            environment: environment(reader, ledger),
            classes,
        }
    }

    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|b| format!("{b:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

/// The same for the same log: computed from what identifies a recording. The version bits say 8, a
/// custom UUID.
pub fn uuid(reader: &Reader) -> [u8; 16] {
    let clock = &reader.preamble().clock;
    let words = [
        clock.start_realtime_ns ^ clock.start_ns.rotate_left(32),
        u64::from(reader.preamble_crc()) << 32 | reader.length(),
    ];
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&words[0].to_be_bytes());
    uuid[8..].copy_from_slice(&words[1].to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn clock(preamble: &Preamble) -> Clock {
    const SECOND: u64 = 1_000_000_000;
    let clock = &preamble.clock;
    let offset = clock.start_realtime_ns.saturating_sub(clock.start_ns);
    let source =
        if clock.source.is_empty() { String::new() } else { format!(" from {}", clock.source) };
    Clock {
        name: CLOCK,
        description: format!("{}{source}", clock.name),
        precision_ns: clock.uncertainty_ns,
        offset_s: offset / SECOND,
        offset_ns: offset % SECOND,
    }
}

/// Readers print some of these unchanged.
fn printable(text: &str) -> Setting {
    Setting::Text(text.replace(char::is_control, " "))
}

/// The threads that events may mention; the process events of a log of a workload do not include
/// them.
fn recorder_threads(recorder: &Recorder) -> String {
    let named = recorder.tids.iter().zip(&recorder.names);
    named.map(|(tid, name)| format!("{tid} {name}")).collect::<Vec<_>>().join(", ")
}

fn environment(reader: &Reader, ledger: &Ledger) -> Environment {
    let (preamble, host) = (reader.preamble(), &reader.preamble().host);
    let texts = [
        ("tracer_name", "klogger".to_string()),
        ("tracer_version", preamble.klogger.clone()),
        ("engine", preamble.engine.clone()),
        ("hostname", host.name.clone()),
        ("sysname", "Linux".into()),
        ("kernel_release", host.kernel.clone()),
        ("kernel_version", host.kernel_version.clone()),
        ("machine", host.machine.clone()),
        ("scope", preamble.scope.clone()),
        ("command_line", preamble.command_line.join(" ")),
        ("workload", preamble.workload.join(" ")),
        ("recorder_threads", recorder_threads(&preamble.recorder)),
    ];
    let mut all: Environment = texts
        .into_iter()
        .filter(|(_, t)| !t.is_empty())
        .map(|(n, t)| (n.to_string(), printable(&t)))
        .collect();
    let number = |n: u64| Setting::Number(i64::try_from(n).unwrap_or(i64::MAX));
    all.push(("start_ns".into(), number(preamble.clock.start_ns)));
    all.push(("complete".into(), number(reader.is_complete().into())));
    all.push(("lost_events".into(), number(ledger.lost())));
    let losses: Vec<_> = ledger.entries.iter().filter(|e| e.severity >= Severity::Loss).collect();
    for (i, entry) in losses.iter().take(LOSSES_MAX).enumerate() {
        let event = entry.event.as_ref().map(|e| format!(" of {e}")).unwrap_or_default();
        let text = format!("{}: {} events{event}. {}", entry.key, entry.count, entry.text);
        all.push((format!("loss_{i}"), printable(&text)));
    }
    if losses.len() > LOSSES_MAX {
        all.push(("more_losses".into(), number((losses.len() - LOSSES_MAX) as u64)));
    }
    all
}
