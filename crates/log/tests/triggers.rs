// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Sequences and silences in random recordings of two CPUs, whose blocks come as a recorder hands
//! them over: their hits are those of the definitions, written down once more in the most simple
//! way.

mod common;

use common::{START, of_pairs, record};
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::trigger::matcher::{Limits, Matcher};
use klogger_log::trigger::{Trigger, parse};
use proptest::prelude::*;

/// (ns after the start, CPU, event, x, y), in the order of time.
type Happened = (u64, u16, usize, i64, i64);
/// (ns after the start, event)
type Hit = (u64, usize);

const NAMES: [&str; 3] = ["A", "B", "C"];
const LIMITS: Limits = Limits { keys: 1 << 16, bytes: 1 << 20 };

fn preamble() -> Preamble {
    of_pairs(&NAMES)
}

fn trigger(text: &str) -> Trigger {
    parse(&format!("{text}: run 'true'")).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The hits in the order in which they are found, and what was forgotten.
fn found(happened: &[Happened], text: &str, limits: Limits, end: u64) -> (Vec<Hit>, u64) {
    let (preamble, trigger) = (preamble(), trigger(text));
    let mut matcher: Matcher<u16> = Matcher::new([(7, &trigger)], &preamble, limits).unwrap();
    (0..2).for_each(|cpu| matcher.until(cpu, 0));
    let mut hits = Vec::new();
    let mut reached = 0;
    for part in happened.chunks(5) {
        // The other CPU is a part behind.
        for cpu in 0..2 {
            let mut records = Vec::new();
            for (time, _, event, x, y) in part.iter().filter(|(_, of, ..)| *of == cpu) {
                let builder = record(&preamble, NAMES[*event]).int("x", *x).int("y", *y);
                builder.finish(START + time, &mut records);
            }
            matcher.block(Origin::Cpu(cpu), START, &records);
        }
        let (first, last) = (part[0].0, part[part.len() - 1].0);
        matcher.until(0, START + last);
        matcher.until(1, START + first);
        let now = reached;
        // No time of day has anything to do with it: all sources tell how far they are.
        reached = matcher.release(START + 500_000_000, &mut |hit| {
            assert_eq!(hit.trigger, 7);
            assert!(hit.time_ns >= now, "later than what was reached before");
            hits.push((hit.time_ns - START, usize::from(hit.id) - 1));
        });
        assert_eq!(reached, START + first);
    }
    matcher.finish(START + end, &mut |hit| {
        hits.push((hit.time_ns - START, usize::from(hit.id) - 1));
    });
    (hits, matcher.forgotten().first().map_or(0, |(_, count)| *count))
}

fn is_second(e: &Happened) -> bool {
    e.2 == 1 && e.4 == 1
}

fn sequence(all: &[Happened], within: u64, key: fn(&Happened) -> i64) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (i, b) in all.iter().enumerate().filter(|(_, e)| is_second(e)) {
        let is_first = |a: &&Happened| a.2 == 0 && key(a) == key(b) && b.0 - a.0 <= within;
        if all[..i].iter().any(|a| is_first(&a)) {
            hits.push((b.0, 1));
        }
    }
    hits
}

fn unanswered(all: &[Happened], within: u64, key: fn(&Happened) -> i64, end: u64) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (i, a) in all.iter().enumerate().filter(|(_, e)| e.2 == 0) {
        let answers = |b: &Happened| is_second(b) && key(a) == key(b) && b.0 - a.0 <= within;
        if a.0 + within <= end && !all[i + 1..].iter().any(answers) {
            hits.push((a.0 + within, 0));
        }
    }
    hits
}

fn silence(all: &[Happened], within: u64, keyed: bool, end: u64) -> Vec<Hit> {
    let mut hits = Vec::new();
    let heard: Vec<&Happened> = all.iter().filter(|e| is_second(e)).collect();
    let silent = |from: u64, next: Option<u64>| next.unwrap_or(end + 1) > from + within;
    if !keyed && silent(0, heard.first().map(|e| e.0)) && within <= end {
        hits.push((within, 1));
    }
    for (i, e) in heard.iter().enumerate() {
        let next = heard[i + 1..].iter().find(|later| !keyed || later.3 == e.3).map(|e| e.0);
        if silent(e.0, next) && e.0 + within <= end {
            hits.push((e.0 + within, 1));
        }
    }
    hits.sort_unstable();
    hits
}

fn sorted(mut hits: Vec<Hit>) -> Vec<Hit> {
    hits.sort_unstable();
    hits
}

fn happened() -> impl Strategy<Value = Vec<Happened>> {
    let event = (0_u64..40, 0_u16..2, 0_usize..3, 0_i64..4, 0_i64..2);
    prop::collection::vec(event, 1..60).prop_map(|mut all| {
        let mut now = 0;
        for e in &mut all {
            now += e.0;
            e.0 = now;
        }
        // As a merge has them.
        all.sort_by_key(|e| (e.0, e.1));
        all
    })
}

proptest! {
    #[test]
    fn hits_are_those_of_the_definitions(
        all in happened(),
        within in 1_u64..120,
        beyond in 0_u64..200,
    ) {
        let end = all[all.len() - 1].0 + beyond;
        let hits = |text: &str| {
            let (hits, forgotten) = found(&all, text, LIMITS, end);
            assert_eq!(forgotten, 0);
            assert!(hits.is_sorted_by_key(|hit| hit.0), "in the order of time: {hits:?}");
            sorted(hits)
        };
        let b = "B where y == 1";
        let text = format!("A -> {b} within {within}ns");
        prop_assert_eq!(hits(&text), sorted(sequence(&all, within, |_| 0)));
        prop_assert_eq!(hits(&format!("{text} by x")), sorted(sequence(&all, within, |e| e.3)));
        let text = format!("A -> no {b} within {within}ns");
        prop_assert_eq!(hits(&text), sorted(unanswered(&all, within, |_| 0, end)));
        let keyed = sorted(unanswered(&all, within, |e| e.3, end));
        prop_assert_eq!(hits(&format!("{text} by x")), keyed);
        let text = format!("no {b} within {within}ns");
        prop_assert_eq!(hits(&text), silence(&all, within, false, end));
        prop_assert_eq!(hits(&format!("{text} by x")), silence(&all, within, true, end));
        let events = all.iter().filter(|e| is_second(e)).map(|e| (e.0, 1)).collect();
        prop_assert_eq!(hits(b), sorted(events));
    }

    #[test]
    fn a_full_memory_loses_hits_and_counts_what_it_forgets(
        all in happened(),
        within in 1_u64..120,
    ) {
        let limits = Limits { keys: 2, bytes: 0 };
        let end = all[all.len() - 1].0 + 1000;
        for (text, right) in [
            ("A -> B where y == 1 within {}ns by x", sequence(&all, within, |e| e.3)),
            ("A -> no B where y == 1 within {}ns by x", unanswered(&all, within, |e| e.3, end)),
            ("no B where y == 1 within {}ns by x", silence(&all, within, true, end)),
        ] {
            let text = text.replace("{}", &within.to_string());
            let (hits, forgotten) = found(&all, &text, limits, end);
            prop_assert!(hits.iter().all(|hit| right.contains(hit)), "none else");
            prop_assert!(forgotten > 0 || sorted(hits) == sorted(right));
        }
    }
}

#[test]
fn keys_of_different_names_are_compared() {
    let all = [(10, 0, 0, 5, 9), (20, 1, 1, 9, 5), (30, 0, 1, 9, 1)];
    let hits = |text: &str| found(&all, text, LIMITS, 1000).0;
    assert_eq!(hits("A -> B within 100ns by x = y"), [(20, 1)]);
    assert_eq!(hits("A -> B within 100ns by y = x"), [(20, 1), (30, 1)]);
    assert_eq!(hits("A -> B within 15ns by y = x"), [(20, 1)]);
    assert_eq!(hits("A -> B within 9ns"), []);
}

#[test]
fn what_does_not_fit_is_said() {
    let preamble = preamble();
    for (text, message) in [
        ("A -> B within 1s by z", "event A has no field 'z'"),
        ("A -> B within 1s by x = z", "event B has no field 'z'"),
        ("no A where z == 1 within 1s", "no event of this log has a field 'z'"),
    ] {
        let error = Matcher::<u16>::new([(1, &trigger(text))], &preamble, LIMITS).err().unwrap();
        assert_eq!(error.message, message);
    }
}
