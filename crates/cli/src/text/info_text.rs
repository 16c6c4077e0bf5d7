// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger info` as text.

use super::info_snapshots;
use super::layout::{command, grouped, paragraph};
use super::ledger_text;
use super::segments_text;
use super::times::{date, duration};
use crate::terminal;
use klogger_log::damage::Damage;
use klogger_log::ledger::{Key, Ledger, TriggerCount};
use klogger_log::merge::Selection;
use klogger_log::names::{Processes, Row};
use klogger_log::preamble::{Cost, Costs, EventClock};
use klogger_log::reader::Reader;
use klogger_log::stats::{self, Count, Stats};
use klogger_log::text::{escaped, escaped_lines};
use klogger_os::machine::cpu_list;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;

/// What is shown.
pub struct LogInfo<'a> {
    pub file: &'a Path,
    pub reader: &'a Reader,
    pub stats: &'a Stats,
    pub ledger: &'a Ledger,
}

/// Width of the labels at the left.
const LABEL: usize = 11;

/// The whole page. Writing to a string cannot fail, so the results of `write!` are ignored.
pub fn page(about: &LogInfo, fields: bool) -> String {
    let mut out = String::new();
    head(about, &mut out);
    host(about, &mut out);
    probes(about, &mut out);
    events(about, fields, &mut out);
    cpus(about, &mut out);
    programs(about, &mut out);
    info_snapshots::taken(&about.ledger.snapshots, about.reader.span().0, &mut out);
    segments(about, &mut out);
    ledger(about, &mut out);
    escaped_lines(&out)
}

fn line(out: &mut String, label: &str, text: &str) {
    paragraph(out, label, text, LABEL, terminal::width());
}

/// Of a file: `1234 bytes`, `12.3 kB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Buffers are powers of two.
fn binary_size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// How long the recording lasted, ns.
fn span(about: &LogInfo) -> u64 {
    let (start, end) = about.reader.span();
    end - start
}

fn head(about: &LogInfo, out: &mut String) {
    let preamble = about.reader.preamble();
    let total = about.stats.total();
    let state = match (about.reader.is_complete(), about.reader.is_being_written()) {
        (true, _) => "complete",
        (false, true) => "being written",
        (false, false) => "without its end",
    };
    let is_damage = |d: &&Damage| d.key != Key::BeingWritten;
    let damaged = about.reader.damage().iter().chain(&about.stats.damage).filter(is_damage).count();
    let sound = if damaged == 0 {
        "all checksums correct".into()
    } else {
        format!("damaged in {damaged} places")
    };
    let bytes = size(about.reader.length());
    line(
        out,
        "log",
        &format!(
            "{}, {bytes}, {} blocks, {state}, {sound}",
            about.file.display(),
            about.reader.blocks().len()
        ),
    );
    line(out, "segments", &segments_text::line(about.reader.segments()));
    let ns = span(about);
    line(
        out,
        "recorded",
        &format!("{} for {}", date(preamble.clock.start_realtime_ns), duration(ns)),
    );
    let rate = if ns == 0 {
        String::new()
    } else {
        format!(", {} a second", grouped((total.events as f64 / (ns as f64 / 1e9)) as u64))
    };
    let each = if total.events == 0 {
        String::new()
    } else {
        format!(", {:.1} bytes each", total.bytes as f64 / total.events as f64)
    };
    line(
        out,
        "events",
        &format!("{}{rate}{each}; {} lost", grouped(total.events), grouped(about.ledger.lost())),
    );
    if let Some(snapshot) = &preamble.snapshot {
        line(out, "snapshot", &info_snapshots::of_log(snapshot));
    }
    line(out, "command", &command(&preamble.command_line));
    line(out, "workload", &command(&preamble.workload));
    let scope = match preamble.scope.as_str() {
        "" => String::new(),
        "all" => "the whole system".into(),
        "threads" => "threads of the whole system".into(),
        "processes" => "some processes and their descendants".into(),
        other => other.into(),
    };
    line(out, "scope", &scope);
    let recorder = &preamble.recorder;
    if !recorder.threads.are_all() {
        line(out, "threads", &format!("only those {}", recorder.threads.words()));
    }
    if !recorder.cpus.is_empty() {
        let cpus = cpu_list(&recorder.cpus);
        line(out, "CPUs", &format!("{cpus} only; klogger's own events are of all"));
    }
    for schema in &preamble.schemas {
        for p in &schema.parameters {
            let default = match p.value == p.default {
                true => String::new(),
                false => format!(" (default {})", p.shown(p.default)),
            };
            line(
                out,
                "parameter",
                &format!("{}.{} = {}{default}", schema.name, p.name, p.shown(p.value)),
            );
        }
    }
    for condition in &recorder.conditions {
        line(out, "where", &format!("{}: {}", condition.event, condition.expression));
    }
    for (number, trigger) in (1..).zip(&recorder.triggers) {
        line(out, "trigger", &format!("{number}: {trigger}"));
        let count = about.ledger.triggers.iter().find(|count| count.number == number);
        let start = preamble.clock.start_ns;
        line(out, "", &count.map(|count| hits(count, start)).unwrap_or_default());
    }
}

/// What became of the hits of a trigger.
fn hits(count: &TriggerCount, start_ns: u64) -> String {
    let hits = |n: u64| format!("{} {}", grouped(n), if n == 1 { "hit" } else { "hits" });
    let mut text = hits(count.hits);
    let at = |ns: u64| duration(ns.saturating_sub(start_ns));
    match (count.first_ns, count.last_ns) {
        (Some(first), Some(last)) if count.hits > 1 => {
            let _ = write!(text, ", from {} to {}", at(first), at(last));
        }
        (Some(first), _) => {
            let _ = write!(text, ", at {}", at(first));
        }
        (None, _) => return text,
    }
    let _ = write!(text, "; actions for {}", hits(count.acted));
    if count.suppressed > 0 {
        let _ = write!(text, ", none for {} above the limit", grouped(count.suppressed));
    }
    if count.lost > 0 {
        let _ = write!(text, "; {} lost from the log", hits(count.lost));
    }
    text
}

fn host(about: &LogInfo, out: &mut String) {
    let preamble = about.reader.preamble();
    let (host, clock, recorder) = (&preamble.host, &preamble.clock, &preamble.recorder);
    let parts = [&host.name, &host.kernel, &host.machine, &host.cpu_model];
    let mut parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).cloned().collect();
    if !host.cpus.is_empty() {
        parts.push(format!("{} CPUs", host.cpus.len()));
    }
    line(out, "host", &parts.join(", "));
    line(out, "kernel", &host.kernel_version);
    let bad = |state: &str| !state.starts_with("Not affected");
    let active = host
        .mitigations
        .iter()
        .filter(|(_, state)| bad(state))
        .map(|(name, state)| format!("{name} ({state})"));
    line(out, "mitigation", &active.collect::<Vec<_>>().join("; "));
    if !clock.name.is_empty() {
        let source =
            if clock.source.is_empty() { String::new() } else { format!(" from {}", clock.source) };
        line(
            out,
            "clock",
            &format!(
                "{}{source}, wall clock known to {}",
                clock.name,
                duration(clock.uncertainty_ns)
            ),
        );
    }
    if let Some(user) = about.ledger.user_clock.as_ref().or(clock.user.as_ref()) {
        line(out, "user clock", &event_clock(user));
    }
    if let Some(counter) = &about.ledger.kernel_clock {
        line(out, "counter", &event_clock(counter));
    }
    let overwrite = if recorder.overwrite { ", newest events kept" } else { "" };
    let ring = binary_size(recorder.buffer_size);
    let whose = if preamble.engine == "user" { "thread" } else { "CPU" };
    let buffer = format!("{ring} per {whose}, low-water mark {} %{overwrite}", recorder.lowwater);
    line(out, "engine", &format!("{} by klogger {}; {buffer}", preamble.engine, preamble.klogger));
    let limits = recorder.limits.iter().map(|l| format!("{} {}/s", l.event, grouped(l.per_second)));
    line(out, "limits", &limits.collect::<Vec<_>>().join(", "));
    line(out, "cost", &preamble.costs.as_ref().map(costs).unwrap_or_default());
    let schemas = preamble.schemas.iter().map(|s| s.name.as_str());
    line(out, "schemata", &schemas.collect::<Vec<_>>().join(", "));
}

fn event_clock(clock: &EventClock) -> String {
    let rate = if clock.khz == 0 {
        String::new()
    } else {
        format!(" at {:.3} MHz", clock.khz as f64 / 1e3)
    };
    format!("{}{rate}, within {} of the kernel's", clock.source, duration(clock.error_ns))
}

/// The costs: `58 ns SCHEDIN (57 to 59), ...; 17 ns for a probe, 51 ns with the clock`.
fn costs(costs: &Costs) -> String {
    let ns = |cost: &Option<Cost>| cost.map_or("unknown".into(), |c| format!("{:.0} ns", c.ns));
    let events = costs.events.iter().map(|e| format!("{} {}", e.event, ns(&e.cost)));
    let all = events.collect::<Vec<_>>().join(", ");
    let why = if costs.why.is_empty() { String::new() } else { format!(" ({})", costs.why) };
    if all.is_empty() {
        return format!("not measured{why}");
    }
    format!(
        "{all}; a probe alone {}, with the clock {}; measured {}before the recording{why}",
        ns(&costs.probe),
        ns(&costs.hit),
        age(costs.age_s)
    )
}

/// How long before the recording: `35 min `; nothing of less than a second.
fn age(seconds: u64) -> String {
    match seconds {
        0 => String::new(),
        1..120 => format!("{seconds} s "),
        120..7200 => format!("{} min ", seconds / 60),
        _ => format!("{} h ", seconds / 3600),
    }
}

fn probes(about: &LogInfo, out: &mut String) {
    let probes = &about.reader.preamble().probes;
    let attached = probes.iter().filter(|p| p.attached).count();
    if !probes.is_empty() {
        line(out, "probes", &format!("{attached} of {} attached", probes.len()));
    }
    for probe in probes.iter().filter(|p| !p.attached || !p.note.is_empty()) {
        let state = if probe.attached { "attached" } else { "not attached" };
        let events = probe.events.join(", ");
        line(
            out,
            "",
            &format!("{} ({}, for {events}) {state}: {}", probe.target, probe.schema, probe.note),
        );
    }
}

fn events(about: &LogInfo, fields: bool, out: &mut String) {
    let layouts = &about.reader.preamble().events;
    let width = layouts
        .iter()
        .map(|e| e.name.len())
        .max()
        .unwrap_or(5)
        .clamp(5, 40)
        .min(terminal::width().saturating_sub(56).max(5));
    let total = about.stats.total().events.max(1);
    let _ = writeln!(
        out,
        "\n{:width$} {:>14} {:>7} {:>14} {:>16}",
        "event", "logged", "%", "lost", "bytes"
    );
    let mut rows: Vec<_> = layouts.iter().zip(&about.stats.events).collect();
    rows.sort_by(|a, b| b.1.events.cmp(&a.1.events).then(a.0.id.cmp(&b.0.id)));
    let lost = |name: &str| stats::lost(about.ledger, name);
    let (shown, unseen): (Vec<_>, Vec<_>) =
        rows.iter().partition(|(e, n)| fields || n.events > 0 || lost(&e.name) > 0);
    for (layout, count) in shown {
        let share = 100.0 * count.events as f64 / total as f64;
        let (logged, lost) = (grouped(count.events), grouped(lost(&layout.name)));
        let _ = writeln!(
            out,
            "{:width$} {logged:>14} {share:>7.2} {lost:>14} {:>16}",
            layout.name,
            grouped(count.bytes)
        );
        for field in layout.fields.iter().filter(|_| fields) {
            let unit = field.unit.as_ref().map(|u| format!(" in {u}")).unwrap_or_default();
            let doc = field.doc.as_deref().map(|d| format!("  {d}")).unwrap_or_default();
            let line = format!("{} {}{unit}{doc}", field.type_name, field.name);
            let _ = writeln!(out, "    {}", escaped(&line));
        }
    }
    if !unseen.is_empty() {
        let names: Vec<_> = unseen.iter().map(|(e, _)| e.name.as_str()).collect();
        line(out, "none of", &names.join(", "));
    }
}

fn cpus(about: &LogInfo, out: &mut String) {
    let _ = writeln!(out, "\n{:12} {:>14} {:>16}", "CPU", "logged", "bytes");
    for (origin, count) in
        about.stats.origins.iter().filter(|(origin, _)| origin.thread().is_none())
    {
        let name = origin.to_string();
        let _ =
            writeln!(out, "{name:12} {:>14} {:>16}", grouped(count.events), grouped(count.bytes));
    }
}

/// Programs that are listed: those that logged most.
const PROGRAMS_MAX: usize = 20;

/// The processes that logged events themselves. There may be thousands of threads, so they are only
/// counted.
fn programs(about: &LogInfo, out: &mut String) {
    let mut processes: BTreeMap<u32, (u64, Count)> = BTreeMap::new();
    for (origin, count) in &about.stats.origins {
        if let Some(thread) = origin.thread() {
            let (streams, sum) = processes.entry(thread.tgid).or_default();
            *streams += 1;
            sum.events += count.events;
            sum.bytes += count.bytes;
        }
    }
    if processes.is_empty() {
        return;
    }
    let names = names(about.reader);
    let mut rows: Vec<_> = processes.into_iter().collect();
    rows.sort_by_key(|(tgid, (_, count))| (std::cmp::Reverse(count.events), *tgid));
    let _ = writeln!(out, "\n{:24} {:>14} {:>16} {:>9}", "program", "logged", "bytes", "threads");
    for (tgid, (streams, count)) in rows.iter().take(PROGRAMS_MAX) {
        let (logged, bytes) = (grouped(count.events), grouped(count.bytes));
        let _ = writeln!(
            out,
            "{:24} {logged:>14} {bytes:>16} {:>9}",
            names.get(tgid).map_or(format!("process {tgid}"), |name| format!("{name}[{tgid}]")),
            grouped(*streams)
        );
    }
    if rows.len() > PROGRAMS_MAX {
        let _ = writeln!(out, "and {} more", grouped((rows.len() - PROGRAMS_MAX) as u64));
    }
}

/// The names of processes: the last that each had.
fn names(reader: &Reader) -> HashMap<u32, String> {
    let mut table = Processes::with_history(reader);
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        table.apply(&event);
    }
    let rows = table.into_rows(reader.span().1).into_iter().filter(|row| !row.comm.is_empty());
    let named = |row: Row| {
        let name = escaped(&String::from_utf8_lossy(&row.comm));
        Some((u32::try_from(row.pid).ok()?, name))
    };
    rows.filter_map(named).collect()
}

fn segments(about: &LogInfo, out: &mut String) {
    out.push_str(&segments_text::table(about.reader.segments(), about.reader.span().0));
}

fn ledger(about: &LogInfo, out: &mut String) {
    let (start, _) = about.reader.span();
    match ledger_text::page(about.ledger, start, terminal::width()) {
        page if page.is_empty() => out.push_str("\nledger: nothing is missing\n"),
        page => _ = write!(out, "\nledger\n{page}"),
    }
}
