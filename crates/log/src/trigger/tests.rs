// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The grammar of triggers: what a text means, and what is refused.

use super::{Action, Key, Limit, Pattern, Step, parse};

fn step(event: &str, condition: &str) -> Step {
    let condition = (!condition.is_empty()).then(|| condition.to_string());
    Step { event: event.into(), condition }
}

fn pattern(text: &str) -> Pattern {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).pattern
}

#[test]
fn an_event() {
    let t = parse(" SCHEDIN where waited > 20ms : snapshot, mark \"la\\\"te: 1\" ").unwrap();
    assert_eq!(t.text, "SCHEDIN where waited > 20ms : snapshot, mark \"la\\\"te: 1\"");
    assert_eq!(t.pattern, Pattern::Event(step("SCHEDIN", "waited > 20ms")));
    assert_eq!(t.actions, [Action::Snapshot, Action::Mark("la\"te: 1".into())]);
    assert_eq!(t.limit, Limit { hits: 1, per_ns: 1_000_000_000 });
    assert_eq!(pattern("TICK:stop"), Pattern::Event(step("TICK", "")));
    let quoted = "OPEN where path == \"a: stop -> within\" && (x < 1 || y > -1): stop";
    let condition = "path == \"a: stop -> within\" && (x < 1 || y > -1)";
    assert_eq!(pattern(quoted), Pattern::Event(step("OPEN", condition)));
}

#[test]
fn groups_of_trace_events() {
    assert_eq!(pattern("sched:sched_switch: stop"), Pattern::Event(step("sched_switch", "")));
    assert_eq!(
        pattern("sched:sched_switch where prev_pid == 0: run 'x'"),
        Pattern::Event(step("sched_switch", "prev_pid == 0"))
    );
    assert_eq!(pattern("sched_switch:run 'x'"), Pattern::Event(step("sched_switch", "")));
    assert_eq!(
        pattern("a:b -> c:d within 1s: stop"),
        Pattern::Sequence {
            first: step("b", ""),
            then: step("d", ""),
            within_ns: 1_000_000_000,
            by: None
        }
    );
}

#[test]
fn sequences_and_silences() {
    let key = |first: &str, then: &str| Some(Key { first: first.into(), then: then.into() });
    assert_eq!(
        pattern("A where x > 1 -> B where y == \"->\" within 10ms by id: stop"),
        Pattern::Sequence {
            first: step("A", "x > 1"),
            then: step("B", "y == \"->\""),
            within_ns: 10_000_000,
            by: key("id", "id")
        }
    );
    assert_eq!(
        pattern("A -> no B within 1.5s by pid = next: snapshot"),
        Pattern::Unanswered {
            first: step("A", ""),
            missing: step("B", ""),
            within_ns: 1_500_000_000,
            by: key("pid", "next")
        }
    );
    assert_eq!(
        pattern("no BEAT where ok == 1 within 5s: stop"),
        Pattern::Silence { of: step("BEAT", "ok == 1"), within_ns: 5_000_000_000, by: None }
    );
    assert_eq!(
        pattern("no BEAT within 5s by id: stop"),
        Pattern::Silence { of: step("BEAT", ""), within_ns: 5_000_000_000, by: Some("id".into()) }
    );
    assert_eq!(pattern("no: stop"), Pattern::Event(step("no", "")));
}

#[test]
fn actions_and_limits() {
    let t = parse("A: enable B, C, disable D, run 'echo \"x\"', stop, at most 5 per minute");
    let t = t.unwrap();
    assert_eq!(
        t.actions,
        [
            Action::Enable(vec!["B".into(), "C".into()]),
            Action::Disable(vec!["D".into()]),
            Action::Run("echo \"x\"".into()),
            Action::Stop,
        ]
    );
    assert_eq!(t.limit, Limit { hits: 5, per_ns: 60_000_000_000 });
    assert_eq!(parse("A: stop at most 2 per hour").unwrap().limit.hits, 2);
    let shown: Vec<String> = t.actions.iter().map(Action::to_string).collect();
    assert_eq!(shown, ["enable B, C", "disable D", "run \"echo \"x\"\"", "stop"]);
}

const REFUSED: &[(&str, &str, &str)] = &[
    ("", "the trigger is empty", "for example"),
    ("  ", "the trigger is empty", "for example"),
    ("A", "the trigger has no action", "after a colon"),
    ("A where x > 1", "the trigger has no action", "after a colon"),
    ("A:", "an action is expected at the end of the trigger", "snapshot, mark"),
    ("A: snapshott", "there is no action 'snapshott'", "did you mean `snapshot`?"),
    ("A: explode", "there is no action 'explode'", "actions are"),
    ("A: stop,", "an action is expected at the end", "actions are"),
    ("A: stop stop", "cannot be parsed from here on: 'stop'", "commas"),
    ("A: mark", "a text in quotes is expected after 'mark'", "mark \"late\""),
    ("A: mark late", "a text in quotes is expected after 'mark'", "mark \"late\""),
    ("A: mark \"late", "no quote at its end", "add it"),
    ("A: mark ''", "the text of 'mark' is empty", "write"),
    ("A: run \" \"", "the text of 'run' is empty", "write"),
    ("A: enable", "an event is expected after 'enable'", "enable WAKEUP"),
    (": stop", "an event is expected at ': stop'", "for example"),
    ("A where : stop", "the filter is not complete", "compare fields"),
    ("A where x >: stop", "the filter is not complete", "compare fields"),
    ("A where x > 1 y: stop", "cannot be parsed from here on: 'y: stop'", "for example"),
    ("A within 1s: stop", "'within' is for a sequence or a silence", "A -> B"),
    ("A -> B: stop", "'within' is expected at ': stop'", "A -> B within"),
    ("A -> B within 5: stop", "a time from 1ns to 86400s is expected", "10ms"),
    ("A -> B within 0s: stop", "a time from 1ns to 86400s is expected", "10ms"),
    ("A -> B within 2 days: stop", "a time from 1ns to 86400s is expected", "10ms"),
    ("A -> B -> C within 1s: stop", "a sequence has two events", "each pair"),
    ("A -> within 1s: stop", "'within' is expected at '1s: stop'", "A -> B within"),
    ("A -> B within 1s by : stop", "a field is expected at ': stop'", "both events"),
    ("no A: stop", "'within' is expected at ': stop'", "within"),
    ("no A within 1s by x = y: stop", "a silence is about one event", "by FIELD"),
    ("A: stop at most 0 per minute", "a number from 1 to 1000", "at most 5"),
    ("A: stop at most 5 per fortnight", "the limit cannot be parsed", "per second, hour"),
    ("A: stop at most 5 per minute, mark 'x'", "cannot be parsed from here on", "last"),
    ("A: at most 5 per minute", "there is no action 'at'", "actions are"),
];

#[test]
fn what_is_refused() {
    for (text, message, help) in REFUSED {
        let e = parse(text).expect_err(text);
        assert!(e.message.contains(message), "{text}: {}", e.message);
        assert!(e.help.contains(help), "{text}: {}: {}", e.message, e.help);
    }
    let many = format!("A: {}", ["stop"; 17].join(", "));
    assert!(parse(&many).unwrap_err().message.contains("more than 16 actions"));
    let long = format!("A: run \"{}\"", "x".repeat(5000));
    assert!(parse(&long).unwrap_err().message.contains("4096 are possible"));
}

#[test]
fn no_text_makes_the_parser_panic() {
    let parts = [
        "A", "no", "->", ":", " ", "where", "x", ">", "1ms", "within", "by", "\"", "'", "\\", ",",
        "stop", "at most", "é", "(", "!", "=",
    ];
    // All sequences of three of them, and pseudo-random longer ones.
    let mut seed = 1u64;
    for n in 0..20_000usize {
        let mut text = String::new();
        let length = 3 + n % 12;
        for _ in 0..length {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text += parts[(seed >> 33) as usize % parts.len()];
            if seed >> 60 & 1 == 0 {
                text.push(' ');
            }
        }
        if let Ok(t) = parse(&text) {
            assert_eq!(parse(&t.text).as_ref(), Ok(&t), "{text}");
        }
    }
}
