// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rules of the order of events: planted violations are found, and none else; random logs are
//! compared with the definitions of the rules, written down once more in the most simple way.

mod common;

use common::{START, log_of, of_pairs, record};
use klogger_log::decode::Decoder;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Preamble, Snapshot};
use klogger_log::reader::Reader;
use klogger_log::rules::gaps::{Missing, missing};
use klogger_log::rules::tally::{Tally, Why};
use klogger_log::rules::{Checker, Limits, Log, Source};
use klogger_schema::Options;
use proptest::prelude::*;

const SCHEMA: &str = "schema test event A { int x int y } event B { int x int y } event C { int x \
                      int y } event D { int x int y } ";

/// (ns after the start, event, x, y); y is a condition's, or a thing that x holds.
type Happened = (u64, usize, i64, i64);

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

fn preamble() -> Preamble {
    of_pairs(&NAMES)
}

fn log(happened: &[Happened]) -> Reader {
    let preamble = preamble();
    let mut records = Vec::new();
    for (time, event, x, y) in happened {
        let builder = record(&preamble, NAMES[*event]).int("x", *x).int("y", *y);
        builder.finish(START + time, &mut records);
    }
    Reader::from_bytes(log_of(&preamble, &[(Origin::Cpu(0), records)])).unwrap()
}

fn checked(reader: &Reader, rule: &str, missing: &[Missing], limits: Limits, end: u64) -> Tally {
    let options = Options::default();
    let parsed = klogger_schema::parse("t", &format!("{SCHEMA} rule r: {rule}"), &options);
    let schema = parsed.unwrap_or_else(|found| panic!("{rule}: {found:?}")).schema;
    let preamble = reader.preamble();
    let log = Log { preamble, start: START, missing };
    let sources = [Source { schema: Some("test"), rule: &schema.rules[0] }];
    let mut checker = Checker::with_limits(&sources, &log, 1000, limits).unwrap();
    let (decoder, processes) = (Decoder::new(reader), Processes::new(reader));
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        checker.see(&event, &decoder, &processes);
    }
    checker.finish(START + end).remove(0)
}

const LIMITS: Limits = Limits { keys: 1 << 16 };

/// (how, times of its events after the start) of each violation, and how often it was undecided.
fn found(happened: &[Happened], rule: &str, end: u64) -> (Vec<(Why, Vec<u64>)>, u64) {
    shown(&checked(&log(happened), rule, &[], LIMITS, end))
}

fn shown(tally: &Tally) -> (Vec<(Why, Vec<u64>)>, u64) {
    assert_eq!(tally.violations, tally.first.len() as u64);
    let times = |v: &klogger_log::rules::tally::Violation| {
        (v.why, v.events.iter().map(|id| id.time - START).collect())
    };
    (tally.first.iter().map(times).collect(), tally.undecided.total())
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

#[test]
fn what_is_followed_in_time() {
    let rule = "every A(x) is followed by B(x) unless C(x) within 10 ns";
    let log =
        [(1, A, 1, 0), (2, A, 2, 0), (3, A, 3, 0), (4, C, 3, 0), (11, B, 1, 0), (13, B, 2, 0)];
    assert_eq!(found(&log, rule, 50), (vec![(Why::NotFollowed, vec![2])], 0));
    // The log ends before the time is over.
    assert_eq!(found(&[(45, A, 1, 0)], rule, 50), (vec![], 1));
    let by_end = format!("{rule} by the end");
    assert_eq!(found(&[(45, A, 1, 0)], &by_end, 50), (vec![(Why::NotFollowed, vec![45])], 0));
}

#[test]
fn what_is_preceded_in_time() {
    let rule = "every B(x) is preceded by A(x) within 10 ns";
    let log = [(5, B, 1, 0), (20, A, 1, 0), (30, B, 1, 0), (31, B, 1, 0), (32, B, 2, 0)];
    // The first one may have had one before the log.
    let expected = vec![(Why::NotPreceded, vec![31]), (Why::NotPreceded, vec![32])];
    assert_eq!(found(&log, rule, 50), (expected, 1));
    let always = "every B(x) is preceded by A(x) from the start";
    let expected = vec![(Why::NotPreceded, vec![5]), (Why::NotPreceded, vec![32])];
    assert_eq!(found(&log, always, 50), (expected, 0));
}

#[test]
fn steps_and_their_repetition() {
    let rule = "A(x) -> B(x)* -> (C(x) | D(x))";
    let right =
        [(1, A, 1, 0), (2, B, 1, 0), (3, B, 1, 0), (4, D, 1, 0), (5, A, 1, 0), (6, C, 1, 0)];
    assert_eq!(found(&right, rule, 50), (vec![], 0));
    let wrong = [(1, A, 1, 0), (2, A, 1, 0), (3, C, 1, 0), (4, B, 1, 0), (5, B, 2, 0)];
    let expected = vec![(Why::WrongStep, vec![1, 2]), (Why::WrongStep, vec![3, 4])];
    // Both are not at their end, and 2 may have begun before.
    assert_eq!(found(&wrong, rule, 50), (expected.clone(), 3));
    let whole = format!("{rule} from the start by the end");
    let more = [(Why::WrongFirst, vec![5]), (Why::Incomplete, vec![4]), (Why::Incomplete, vec![5])];
    assert_eq!(found(&wrong, &whole, 50), (expected.into_iter().chain(more).collect(), 0));
    let conditions = "A(x) where (y == 1) -> A(x) where (y == 2)";
    let log = [(1, A, 1, 1), (2, A, 1, 2), (3, A, 1, 7), (4, A, 1, 2)];
    assert_eq!(found(&log, conditions, 50), (vec![(Why::WrongStep, vec![2, 4])], 0));
}

#[test]
fn what_must_not_be_between() {
    let rule = "no C(x) between A(x) and B(x)";
    let log = [(1, C, 1, 0), (2, A, 1, 0), (3, C, 2, 0), (4, C, 1, 0), (5, B, 1, 0), (6, C, 1, 0)];
    assert_eq!(found(&log, rule, 50), (vec![(Why::Between, vec![2, 4])], 2));
}

#[test]
fn what_nests_does_not_cross() {
    let rule = "A(x, y) to B(x, y) nest";
    let log = [(1, A, 1, 1), (2, A, 1, 2), (3, A, 2, 1), (4, B, 1, 1), (5, B, 1, 2), (6, B, 2, 1)];
    assert_eq!(found(&log, rule, 50), (vec![(Why::Crossed, vec![1, 2, 4])], 0));
    let whole = format!("{rule} from the start by the end");
    let log = [(1, B, 1, 1), (2, A, 1, 1)];
    let expected = vec![(Why::NotBegun, vec![1]), (Why::Incomplete, vec![2])];
    assert_eq!(found(&log, &whole, 50), (expected, 0));
}

#[test]
fn locks_that_are_taken_in_a_circle() {
    let rule = "A(x, y) to B(x, y) keep one order";
    let pair = |time, thread, first, second| {
        [
            (time, A, thread, first),
            (time + 1, A, thread, second),
            (time + 2, B, thread, second),
            (time + 3, B, thread, first),
        ]
    };
    let log = [pair(1, 1, 1, 2), pair(5, 2, 2, 3), pair(9, 3, 3, 1), pair(13, 4, 1, 2)].concat();
    let circle = (Why::Circle, vec![9, 10, 1, 2, 5, 6]);
    assert_eq!(found(&log, rule, 50), (vec![circle], 0));
}

#[test]
fn what_depends_on_a_gap_is_not_decided() {
    let reader = log(&[(1, A, 1, 0), (30, A, 2, 0), (60, A, 3, 0), (61, A, 3, 0)]);
    let gap = |event: Option<&str>| {
        [Missing { event: event.map(Into::into), span: (START + 35, START + 35) }]
    };
    let rule = "every A(x) is followed by B(x) within 10 ns";
    let all = checked(&reader, rule, &gap(None), LIMITS, 90);
    assert_eq!(shown(&all).0.iter().map(|v| v.1[0]).collect::<Vec<_>>(), [1, 60, 61]);
    assert_eq!(all.undecided.lost, 1);
    let of_b = checked(&reader, rule, &gap(Some("B")), LIMITS, 90);
    assert_eq!((of_b.violations, of_b.undecided.lost), (3, 1));
    let of_c = checked(&reader, rule, &gap(Some("C")), LIMITS, 90);
    assert_eq!((of_c.violations, of_c.undecided.lost), (4, 0));
}

#[test]
fn gaps_are_in_the_ledger_and_in_the_log() {
    let preamble = preamble();
    let mut records = Vec::new();
    record(&preamble, "A").finish(START + 1, &mut records);
    let lost = record(&preamble, "LOST").int("count", 3).int("since", (START + 5) as i64);
    lost.finish(START + 9, &mut records);
    let reader = Reader::from_bytes(log_of(&preamble, &[(Origin::Cpu(0), records)])).unwrap();
    let spans: Vec<_> = missing(&reader).iter().map(|m| m.span).collect();
    assert!(spans.contains(&(START + 5, START + 9)), "{spans:?}");
    let entry = Entry::new(Key::EventsDisabled).event("A").between(3, 4);
    let ledger = Ledger { entries: vec![entry], ..Ledger::default() };
    let mut bytes = Vec::new();
    use klogger_log::writer::{Compression, Writer};
    Writer::new(&mut bytes, &preamble, Compression::None).unwrap().finish(&ledger).unwrap();
    let found = missing(&Reader::from_bytes(bytes).unwrap());
    assert_eq!(found[0].span, (3, 4));
}

/// Each A on one CPU is followed by a B on the other. A log of this that ends after any block has
/// no violation, though the blocks of the two do not end at the same time.
#[test]
fn a_log_that_ends_between_two_blocks() {
    const MS: u64 = 1_000_000;
    let preamble = preamble();
    let mut blocks = Vec::new();
    for second in 0..5 {
        for (cpu, name, late) in [(0, "A", 0), (1, "B", 1)] {
            let mut records = Vec::new();
            for n in (second * 100)..(second * 100 + 100) {
                let time = START + (n * 10 + late) * MS;
                record(&preamble, name).int("x", n as i64).finish(time, &mut records);
            }
            blocks.push((Origin::Cpu(cpu), records));
        }
    }
    let bytes = log_of(&preamble, &blocks);
    let ends: Vec<usize> = Reader::from_bytes(bytes.clone())
        .unwrap()
        .blocks()
        .iter()
        .map(|block| block.end() as usize)
        .collect();
    let rule = "every A(x) is followed by B(x) within 5 ms";
    let mut kept = 0;
    for &end in &ends[..10] {
        let reader = Reader::from_bytes(bytes[..end].to_vec()).unwrap();
        let last = reader.span().1 - START;
        let tally = checked(&reader, rule, &missing(&reader), LIMITS, last);
        assert_eq!(tally.violations, 0, "cut at {end}");
        kept = tally.checked.max(kept);
    }
    assert!(kept >= 390, "{kept}");
}

/// What is not in a snapshot may have been before it or after it.
#[test]
fn the_ends_of_a_snapshot_are_not_those_of_its_recording() {
    let whole = log(&[(1, B, 1, 0), (2, A, 2, 0)]);
    let mut preamble = preamble();
    preamble.snapshot = Some(Snapshot::default());
    let mut records = Vec::new();
    for (time, event, x) in [(1, "B", 1), (2, "A", 2)] {
        record(&preamble, event).int("x", x).finish(START + time, &mut records);
    }
    let part = Reader::from_bytes(log_of(&preamble, &[(Origin::Cpu(0), records)])).unwrap();
    for rule in [
        "every B(x) is preceded by A(x) from the start",
        "every A(x) is followed by B(x) by the end",
    ] {
        assert_eq!(checked(&whole, rule, &[], LIMITS, 90).violations, 1, "{rule}");
        let tally = checked(&part, rule, &[], LIMITS, 90);
        let undecided = tally.undecided.start + tally.undecided.end;
        assert_eq!((tally.violations, undecided), (0, 1), "{rule}");
    }
}

#[test]
fn the_memory_is_limited() {
    let many: Vec<Happened> = (0..10_000).map(|i| (i, A, i as i64, 0)).collect();
    let reader = log(&many);
    let limits = Limits { keys: 100 };
    let rule = "every A(x) is followed by B(x) within 1 s";
    let tally = checked(&reader, rule, &[], limits, 20_000);
    assert_eq!(tally.violations, 0);
    assert_eq!(tally.undecided.given_up + tally.undecided.end, 10_000);
    assert!(tally.undecided.end <= 100);
}

/// Random events, with times in order.
fn happened() -> impl Strategy<Value = Vec<Happened>> {
    let one = (0..8u64, 0..4usize, 0..3i64, 0..3i64);
    prop::collection::vec(one, 0..60).prop_map(|all| {
        let mut time = 0;
        let next = |(step, event, x, y)| {
            time += step;
            (time, event, x, y)
        };
        all.into_iter().map(next).collect()
    })
}

fn last_time(all: &[Happened]) -> u64 {
    all.last().map_or(0, |one| one.0)
}

proptest! {
    #[test]
    fn followed_as_defined(all in happened(), more in 0..20u64) {
        let end = last_time(&all) + more;
        let (mut wrong, mut unknown) = (Vec::new(), 0);
        for (i, a) in all.iter().enumerate().filter(|(_, e)| e.1 == A) {
            let follows = |e: &&Happened| e.2 == a.2 && (e.1 == B || e.1 == C) && e.0 <= a.0 + 10;
            if all[i + 1..].iter().find(follows).is_some() {
                continue;
            }
            if a.0 + 10 < end { wrong.push(a.0) } else { unknown += 1 }
        }
        let rule = "every A(x) is followed by B(x) unless C(x) within 10 ns";
        let (found, undecided) = found(&all, rule, end);
        prop_assert_eq!(found.iter().map(|v| v.1[0]).collect::<Vec<_>>(), wrong);
        prop_assert_eq!(undecided, unknown);
    }

    #[test]
    fn preceded_as_defined(all in happened()) {
        let (mut wrong, mut unknown) = (Vec::new(), 0);
        for (i, b) in all.iter().enumerate().filter(|(_, e)| e.1 == B) {
            if all[..i].iter().any(|e| e.1 == A && e.2 == b.2 && e.0 + 10 >= b.0) {
                continue;
            }
            if b.0 < 10 { unknown += 1 } else { wrong.push(b.0) }
        }
        let rule = "every B(x) is preceded by A(x) within 10 ns";
        let (found, undecided) = found(&all, rule, last_time(&all));
        prop_assert_eq!(found.iter().map(|v| v.1[0]).collect::<Vec<_>>(), wrong);
        prop_assert_eq!(undecided, unknown);
    }

    #[test]
    fn alternate_as_defined(all in happened()) {
        let mut wrong = Vec::new();
        for (i, e) in all.iter().enumerate().filter(|(_, e)| e.1 <= B) {
            let before = all[..i].iter().rev().find(|o| o.1 <= B && o.2 == e.2);
            match before {
                Some(o) if o.1 == e.1 => wrong.push(vec![o.0, e.0]),
                None if e.1 == B => wrong.push(vec![e.0]),
                Some(_) | None => {}
            }
        }
        let rule = "A(x) and B(x) alternate from the start";
        let (found, _) = found(&all, rule, last_time(&all));
        prop_assert_eq!(found.into_iter().map(|v| v.1).collect::<Vec<_>>(), wrong);
    }

    #[test]
    fn between_as_defined(all in happened()) {
        let (mut wrong, mut unknown) = (Vec::new(), 0);
        for (i, c) in all.iter().enumerate().filter(|(_, e)| e.1 == C) {
            match all[..i].iter().rev().find(|e| e.2 == c.2 && e.1 <= B) {
                Some(a) if a.1 == A => wrong.push(vec![a.0, c.0]),
                Some(_) => {}
                None => unknown += 1,
            }
        }
        let (found, undecided) = found(&all, "no C(x) between A(x) and B(x)", last_time(&all));
        prop_assert_eq!(found.into_iter().map(|v| v.1).collect::<Vec<_>>(), wrong);
        prop_assert_eq!(undecided, unknown);
    }

    /// The words of a path are those of a regular expression, whose words another library finds.
    #[test]
    fn paths_as_regular_expressions(all in happened()) {
        // Up to the end of the first word that is no begin of a right one.
        let begins = regex::Regex::new("^(AB*(C|D))*(AB*)?$").unwrap();
        let mut wrong = 0;
        for x in 0..3 {
            let letters: String = all
                .iter()
                .filter(|e| e.2 == x)
                .map(|e| ["A", "B", "C", "D"][e.1])
                .collect();
            if (1..=letters.len()).any(|n| !begins.is_match(&letters[..n])) {
                wrong += 1;
            }
        }
        let rule = "A(x) -> B(x)* -> (C(x) | D(x)) from the start";
        let tally = checked(&log(&all), rule, &[], LIMITS, last_time(&all));
        prop_assert_eq!(tally.violations > 0, wrong > 0);
    }

    #[test]
    fn orders_as_defined(all in happened()) {
        // What each x holds; a list of pairs; whether one thing leads to another.
        let mut held: Vec<Vec<i64>> = vec![Vec::new(); 3];
        let mut pairs: Vec<(i64, i64)> = Vec::new();
        let mut wrong: Vec<(i64, i64)> = Vec::new();
        for (_, event, x, y) in all.iter().filter(|e| e.1 <= B) {
            let mine = &mut held[*x as usize];
            if *event == B {
                if let Some(at) = mine.iter().rposition(|h| h == y) {
                    mine.remove(at);
                }
                continue;
            }
            for h in mine.iter().filter(|h| *h != y) {
                let mut reached = vec![*y];
                for _ in 0..3 {
                    let next: Vec<i64> =
                        pairs.iter().filter(|p| reached.contains(&p.0)).map(|p| p.1).collect();
                    reached.extend(next);
                }
                let pair = (*h, *y);
                match reached.contains(h) {
                    true if !wrong.contains(&pair) => wrong.push(pair),
                    false if !pairs.contains(&pair) => pairs.push(pair),
                    true | false => {}
                }
            }
            mine.push(*y);
        }
        let tally =
            checked(&log(&all), "A(x, y) to B(x, y) keep one order", &[], LIMITS, last_time(&all));
        prop_assert_eq!(tally.violations, wrong.len() as u64);
    }

    #[test]
    fn nests_as_defined(all in happened()) {
        let (mut held, mut wrong): (Vec<Vec<i64>>, u64) = (vec![Vec::new(); 3], 0);
        for (_, event, x, y) in all.iter().filter(|e| e.1 <= B) {
            let mine = &mut held[*x as usize];
            match (*event, mine.iter().rposition(|h| h == y)) {
                (A, _) => mine.push(*y),
                (_, Some(at)) => {
                    wrong += u64::from(at + 1 != mine.len());
                    mine.remove(at);
                }
                (_, None) => {}
            }
        }
        let tally = checked(&log(&all), "A(x, y) to B(x, y) nest", &[], LIMITS, last_time(&all));
        prop_assert_eq!(tally.violations, wrong);
    }
}
