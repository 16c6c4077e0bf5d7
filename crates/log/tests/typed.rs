// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What users type: filters (`--where`), and triggers (`--trigger`, and the rules of `klogger
//! watch`). Any text is parsed or refused with the place, and what is accepted is written down and
//! means the same when it is read again.

use klogger_log::filter;
use klogger_log::filter::parse::{Expr, Op, Operand, parse};
use klogger_log::trigger::{self, Trigger};
use proptest::prelude::*;

const OPS: [(Op, &str); 7] = [
    (Op::Equal, "=="),
    (Op::Different, "!="),
    (Op::Less, "<"),
    (Op::LessOrEqual, "<="),
    (Op::Greater, ">"),
    (Op::GreaterOrEqual, ">="),
    (Op::Matches, "=~"),
];

/// As a user would type it.
fn typed(expr: &Expr) -> String {
    let all = |terms: &[Expr], between: &str| {
        let terms: Vec<String> = terms.iter().map(|term| format!("({})", typed(term))).collect();
        terms.join(between)
    };
    match expr {
        Expr::Any(terms) => all(terms, " || "),
        Expr::All(terms) => all(terms, "&&"),
        Expr::Not(term) => format!("!({})", typed(term)),
        Expr::Compare(left, op, right) => {
            let sign = OPS.iter().find(|(other, _)| other == op).map_or("?", |(_, sign)| *sign);
            format!("{} {sign} {}", operand(left), operand(right))
        }
    }
}

fn operand(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => name.clone(),
        Operand::Number(number) => number.to_string(),
        Operand::Text(text) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z_][a-zA-Z0-9_]{0,6}"
}

fn exprs() -> impl Strategy<Value = Expr> {
    let operand = || {
        prop_oneof![
            name().prop_map(Operand::Name),
            any::<i64>().prop_map(|n| Operand::Number(n.into())),
            "[^\\x00]{0,8}".prop_map(Operand::Text),
        ]
    };
    let compare = (operand(), prop::sample::select(&OPS[..]), operand())
        .prop_map(|(left, (op, _), right)| Expr::Compare(left, op, right));
    compare.prop_recursive(4, 24, 3, |inner| {
        let several = || prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            several().prop_map(Expr::Any),
            several().prop_map(Expr::All),
            inner.clone().prop_map(|term| Expr::Not(Box::new(term))),
        ]
    })
}

/// Texts that are nearly right: pieces of the two languages in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "pid",
        "A",
        "no ",
        "->",
        " within ",
        "5ms",
        " by ",
        "x",
        " = ",
        "==",
        "=~",
        "<",
        "(",
        ")",
        "!",
        "&&",
        "||",
        "\"a\"",
        "'",
        "\\",
        ": ",
        "snapshot",
        "stop",
        "mark ",
        "run ",
        ", ",
        "at most 3 per minute",
        " where ",
        "7:1",
        "0x1f",
        "-",
        "1.5us",
        "\u{b5}",
        "\u{0}",
        "  ",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![pieces(), any::<String>()]
}

/// A trigger, and the same one with other white space.
fn triggers() -> impl Strategy<Value = (String, String)> {
    let step = (name(), prop::option::of(exprs())).prop_map(|(event, condition)| match condition {
        Some(expr) => format!("E{event} where {}", typed(&expr)),
        None => format!("E{event}"),
    });
    let steps = (step, name(), 1..5_000_u32, prop::option::of(name()), 0..4_usize);
    let pattern = steps.prop_map(|(first, second, ms, by, kind)| {
        let by = by.map(|field| format!(" by f{field}")).unwrap_or_default();
        match kind {
            0 => first,
            1 => format!("no {first} within {ms}ms{by}"),
            2 => format!("{first} -> E{second} within {ms}ms{by}"),
            _ => format!("{first} -> no E{second} within {ms}ms{by}"),
        }
    });
    let actions = prop::sample::select(vec![
        "snapshot",
        "stop",
        "mark \"late\"",
        "run \"logger slow\", at most 5 per minute",
        "snapshot, mark \"x\"",
    ]);
    (pattern, actions).prop_map(|(pattern, actions)| {
        (format!("{pattern}: {actions}"), format!("  {pattern} :  {actions} "))
    })
}

/// Without the text, which has what was typed.
fn meaning(trigger: Trigger) -> Trigger {
    Trigger { text: String::new(), ..trigger }
}

/// A message names what it is about: from some place on, the text itself, its end, or a limit.
fn is_told(message: &str, text: &str) {
    assert!(!message.is_empty(), "{text:?}");
    if let Some((_, rest)) = message.split_once("from here on: '") {
        let rest = rest.strip_suffix('\'').unwrap_or(rest);
        assert!(text.contains(rest), "{message:?} of {text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_filter_means_the_same_when_it_is_written_down(expr in exprs()) {
        prop_assert_eq!(parse(&typed(&expr)), Ok(expr));
    }

    #[test]
    fn any_text_is_a_filter_or_refused_at_a_place(text in any_text()) {
        match parse(&text) {
            Ok(expr) => prop_assert_eq!(parse(&typed(&expr)), Ok(expr)),
            Err(at) => {
                prop_assert!(text.get(at..).is_some(), "{at} of {text:?}");
                let error = filter::parsed(&text).unwrap_err();
                is_told(&error.message, &text);
                prop_assert!(!error.help.is_empty());
            }
        }
    }

    #[test]
    fn a_trigger_means_the_same_when_it_is_read_again((text, spaced) in triggers()) {
        // Longer ones are refused.
        prop_assume!(text.len() < 1_000);
        let first = trigger::parse(&text);
        prop_assert!(first.is_ok(), "{text:?}: {first:?}");
        let first = first.unwrap();
        prop_assert_eq!(&first.text, &text);
        // A log has the text, from which a reader has the meaning.
        prop_assert_eq!(&trigger::parse(&first.text).unwrap(), &first);
        prop_assert_eq!(meaning(trigger::parse(&spaced).unwrap()), meaning(first));
    }

    #[test]
    fn any_text_is_a_trigger_or_refused(text in any_text()) {
        match trigger::parse(&text) {
            Ok(found) => {
                prop_assert!(!found.actions.is_empty() && !found.pattern.steps().is_empty());
                prop_assert_eq!(&trigger::parse(&found.text).unwrap(), &found);
                for step in found.pattern.steps() {
                    if let Some(condition) = &step.condition {
                        prop_assert!(parse(condition).is_ok(), "{condition:?}");
                    }
                }
            }
            Err(error) => {
                is_told(&error.message, &text);
                prop_assert!(!error.help.is_empty(), "{}", error.message);
            }
        }
    }
}
