// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A ledger as one table, a row for each cause and event; below it the remedy of each cause, once.

use super::layout::{grouped, paragraph, table};
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::origin::Origin;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Events, CPUs, threads and details that are named.
const NAMES_MAX: usize = 6;
const TITLES: [&str; 5] = ["missing", "event", "where", "when", "count"];

/// The table, and the remedies. `start_ns`: times are since then. Nothing, if nothing is missing.
pub fn page(ledger: &Ledger, start_ns: u64, width: usize) -> String {
    let mut entries: Vec<&Entry> = ledger.entries.iter().collect();
    entries.sort_by_key(|e| std::cmp::Reverse(e.severity));
    let (mut out, mut rows) = (String::new(), Vec::new());
    for group in groups(&entries, |e| (&e.key, &e.event)) {
        rows.push(row(&group, start_ns));
    }
    if rows.is_empty() {
        return out;
    }
    table(&mut out, TITLES, &rows, 1, width);
    let _ = writeln!(out);
    for group in groups(&entries, |e| &e.key) {
        let label = format!("{} ({})", group[0].key, group[0].severity.word());
        paragraph(&mut out, "", &format!("{label}: {}", advice(&group)), 0, width);
    }
    out
}

/// A line for each cause, for the end of a recording: 'klogger info' has the table.
pub fn summary(ledger: &Ledger) -> String {
    let mut out = String::new();
    for group in groups(&ledger.entries.iter().collect::<Vec<_>>(), |e| &e.key) {
        let events = match sum(&group) {
            0 => String::new(),
            1 => ", 1 event".into(),
            more => format!(", {} events", grouped(more)),
        };
        let (key, severity) = (&group[0].key, group[0].severity.word());
        let (places, advice) = (places(&group), advice(&group));
        let at = if places.is_empty() { String::new() } else { format!(", {places}") };
        let _ = writeln!(out, "  {key} ({severity}){events}{at}: {advice}");
    }
    out
}

/// The entries with equal keys, in the order in which these are met.
fn groups<'e, K: PartialEq>(
    entries: &[&'e Entry],
    key: impl Fn(&'e Entry) -> K,
) -> Vec<Vec<&'e Entry>> {
    let mut found: Vec<Vec<&Entry>> = Vec::new();
    for entry in entries {
        match found.iter_mut().find(|group| key(group[0]) == key(entry)) {
            Some(group) => group.push(entry),
            None => found.push(vec![entry]),
        }
    }
    found
}

fn row(group: &[&Entry], start_ns: u64) -> [String; 5] {
    let count = sum(group);
    let from = group.iter().filter_map(|e| e.from_ns).min();
    let to = group.iter().filter_map(|e| e.to_ns).max();
    let when = from.zip(to).map(|(from, to)| span(from, to, start_ns)).unwrap_or_default();
    [
        group[0].key.clone(),
        group[0].event.clone().unwrap_or_default(),
        places(group),
        when,
        if count > 0 { grouped(count) } else { String::new() },
    ]
}

fn sum(group: &[&Entry]) -> u64 {
    group.iter().fold(0u64, |sum, e| sum.saturating_add(e.count))
}

/// `0.000012 s to 1.500000 s`, or one time if they are equal.
fn span(from: u64, to: u64, start_ns: u64) -> String {
    let seconds = |t: u64| format!("{:.6} s", (t as i128 - start_ns as i128) as f64 / 1e9);
    let (from, to) = (seconds(from), seconds(to));
    if from == to { from } else { format!("{from} to {to}") }
}

/// `CPU 0, 1`, `thread 31`, `the recorder`
fn places(group: &[&Entry]) -> String {
    let mut cpus = BTreeSet::new();
    let mut found = Vec::new();
    for cpu in group.iter().filter_map(|e| e.cpu) {
        match Origin::of_cpu(cpu) {
            Origin::Cpu(cpu) => _ = cpus.insert(u32::from(cpu)),
            other => found.push(other.to_string()),
        }
    }
    let threads: BTreeSet<u32> = group.iter().filter_map(|e| Some(e.thread?.tid)).collect();
    found.dedup();
    for (word, numbers) in [("CPU", cpus), ("thread", threads)] {
        if !numbers.is_empty() {
            found.push(format!("{word} {}", listed(numbers.iter().map(u32::to_string), ", ")));
        }
    }
    found.join(", ")
}

/// The first few, and how many others there are.
fn listed(all: impl Iterator<Item = String>, separator: &str) -> String {
    let all: Vec<String> = all.collect();
    let mut text = all.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(separator);
    if all.len() > NAMES_MAX {
        let _ = write!(text, " and {} more", all.len() - NAMES_MAX);
    }
    text
}

/// What happened, with the details of each entry, and what one can do about it.
fn advice(group: &[&Entry]) -> String {
    let remedy = group[0].parts().1;
    let mut causes: Vec<&str> = Vec::new();
    for (cause, _) in group.iter().map(|e| e.parts()) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    // Details stand before the explanation, which is the same for all.
    let end = causes[0].rsplit(": ").next().unwrap_or_default();
    let mut text = match causes.len() > 1 && causes.iter().all(|c| c.ends_with(end)) {
        true => {
            let details = causes.iter().filter_map(|c| c.strip_suffix(end)?.strip_suffix(": "));
            format!("{}: {end}", listed(details.map(String::from), "; "))
        }
        false => listed(causes.iter().map(|c| c.to_string()), "; "),
    };
    if let Some(first) = remedy.chars().next() {
        let rest = &remedy[first.len_utf8()..];
        let _ = write!(text, ". {}{rest}", first.to_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::ledger::Key;

    #[test]
    fn a_row_for_each_cause_and_event_and_a_remedy_for_each_cause() {
        let lost =
            |event: &str, cpu, count| Entry::new(Key::RingFull).event(event).cpu(cpu).count(count);
        let ledger = Ledger {
            entries: vec![
                Entry::new(Key::Excluded).detail("only events of CPU 0").between(5, 1_500_000_005),
                Entry::new(Key::Excluded).detail("only A with: b < 1").event("A"),
                lost("A", 0, 1000).between(1_000_005, 2_000_005),
                lost("A", 3, 7).between(9_000_005, 9_000_005),
                lost("B", 3, 1),
            ],
            ..Ledger::default()
        };
        let text = page(&ledger, 5, 80);
        let (table, remedies) = text.split_once("\n\n").unwrap();
        let expected = "\
missing    event  where     when                      count
ring_full  A      CPU 0, 3  0.001000 s to 0.009000 s  1,007
ring_full  B      CPU 3                                   1
excluded                    0.000000 s to 1.500000 s
excluded   A";
        assert_eq!(table, expected);
        assert_eq!(remedies.matches("the ring was full. Use a larger --max-memory").count(), 1);
        let both = "excluded (info): only events of CPU 0; only A with: b < 1: ";
        let remedies = remedies.replace('\n', " ");
        assert!(remedies.contains(both), "{remedies}");
        let said = summary(&ledger);
        assert!(
            said.contains("  ring_full (loss), 1,008 events, CPU 0, 3: the ring was full."),
            "{said}"
        );
        assert!(said.starts_with("  excluded (info): only events of CPU 0; only A"), "{said}");
        assert!(text.lines().all(|line| line.len() <= 80 && line == line.trim_end()), "{text}");
    }

    #[test]
    fn nothing_is_missing() {
        assert_eq!(page(&Ledger::default(), 0, 80), "");
    }
}
