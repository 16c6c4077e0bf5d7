// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What was found about rules, with the events of their violations in full.

use super::super::Format;
use super::Known;
use crate::failure::Failure;
use crate::text::layout::wrap;
use crate::text::select::SelectArgs;
use crate::text::{Context, FORMATS};
use klogger_log::decode::Decoder;
use klogger_log::names::Processes;
use klogger_log::reader::Reader;
use klogger_log::rules::tally::{Id, Tally, Undecided, Violation, Why};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Of a rule, which has an indentation besides.
const COLUMNS: usize = 74;

pub struct Found<'a> {
    rules: Vec<(&'a Known, Tally)>,
    /// By event: as `klogger cat` prints it.
    events: HashMap<Id, String>,
    start: u64,
}

impl<'a> Found<'a> {
    /// Reads the log once more, if there are events to show.
    pub fn new(
        reader: &Reader,
        known: &'a [Known],
        tallies: Vec<Tally>,
        format: Format,
    ) -> Result<Found<'a>, Failure> {
        let shown = tallies.iter().flat_map(|tally| &tally.first).flat_map(|v| &v.events);
        let events: HashMap<Id, String> = shown.map(|id| (*id, String::new())).collect();
        let mut found =
            Found { rules: known.iter().zip(tallies).collect(), events, start: reader.span().0 };
        if !found.events.is_empty() {
            found.read(reader, format)?;
        }
        Ok(found)
    }

    fn read(&mut self, reader: &Reader, format: Format) -> Result<(), Failure> {
        let name = if format == Format::Json { "json" } else { "text" };
        let choice = SelectArgs::default().resolve(reader)?;
        let (decoder, mut processes) = (Decoder::new(reader), Processes::new(reader));
        let mut lines =
            FORMATS.iter().find(|f| f.name() == name).map(|f| f.lines(reader.preamble(), &choice));
        let mut merge = reader.merge(&choice.selection);
        let mut out = Vec::new();
        let mut missing = self.events.len();
        while missing > 0
            && let Some(event) = merge.next()
            && let Some(lines) = &mut lines
        {
            processes.apply(&event);
            let Some(text) = self.events.get_mut(&Id::of(&event)) else { continue };
            let context =
                Context { decoder: &decoder, processes: &processes, start_ns: self.start };
            lines.event(&event, &context, &mut out);
            *text = String::from_utf8_lossy(&out).trim_end().into();
            out.clear();
            missing -= 1;
        }
        Ok(())
    }

    fn event(&self, id: &Id) -> &str {
        self.events.get(id).map_or("", String::as_str)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for (known, tally) in &self.rules {
            let rule = format!("rule {}: {}", known.rule.name, known.rule.text);
            out += &format!("{}\n", wrap(&rule, COLUMNS).join("\n      "));
            let docs = known.rule.doc.iter().flat_map(|doc| wrap(doc, COLUMNS));
            docs.for_each(|doc| out += &format!("  {doc}\n"));
            out += &format!("  {}\n", result(tally));
            for (number, violation) in tally.first.iter().enumerate() {
                out += &format!("  {}. {}\n", number + 1, why(violation.why));
                for id in &violation.events {
                    out += &format!("    {}\n", self.event(id));
                }
            }
            let more = tally.violations - tally.first.len() as u64;
            if more > 0 {
                out += &format!("  and {more} more\n");
            }
        }
        out
    }

    pub fn json(&self) -> Value {
        let event = |id: &Id| serde_json::from_str::<Value>(self.event(id)).unwrap_or_default();
        let violation = |v: &Violation| {
            json!({
                "why": word(v.why),
                "time": v.time.wrapping_sub(self.start) as i64,
                "events": v.events.iter().map(event).collect::<Vec<_>>(),
            })
        };
        let rule = |(known, tally): &(&Known, Tally)| {
            json!({
                "schema": known.schema,
                "rule": known.rule.name,
                "doc": known.rule.doc,
                "text": known.rule.text,
                "checked": tally.checked,
                "violations": tally.violations,
                "undecided": undecided(&tally.undecided).map(|(word, n, _)| (word, n))
                    .into_iter().collect::<HashMap<_, _>>(),
                "first": tally.first.iter().map(violation).collect::<Vec<_>>(),
            })
        };
        self.rules.iter().map(rule).collect()
    }
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn result(tally: &Tally) -> String {
    let Tally { checked, violations, undecided: unknown, .. } = tally;
    let decided = match (checked, violations) {
        (0, _) => "never decided".into(),
        (_, 0) => format!("kept {}", times(*checked)),
        _ => format!("violated {}, kept {}", times(*violations), times(checked - violations)),
    };
    if unknown.total() == 0 {
        return decided;
    }
    let causes = undecided(unknown).into_iter().filter(|(_, n, _)| *n > 0);
    let causes: Vec<String> = causes.map(|(_, n, text)| format!("{n} {text}")).collect();
    format!("{decided}; cannot be decided {}: {}", times(unknown.total()), causes.join(", "))
}

/// (the word in JSON, how often, in words)
fn undecided(found: &Undecided) -> [(&'static str, u64, &'static str); 5] {
    [
        ("start", found.start, "may have begun before the log"),
        ("end", found.end, "may have ended after it"),
        ("lost", found.lost, "where events may be missing"),
        ("given_up", found.given_up, "of too many to remember"),
        ("no_value", found.no_value, "by events without such a field"),
    ]
}

fn why(why: Why) -> &'static str {
    match why {
        Why::NotFollowed => "not followed in time:",
        Why::NotPreceded => "not preceded in time:",
        Why::Between => "the last one must not come after the first:",
        Why::WrongStep => "the last one cannot come after the first:",
        Why::WrongFirst => "this cannot be the first:",
        Why::Incomplete => "not ended when the log did:",
        Why::Crossed => "the first ended before what began in it:",
        Why::NotBegun => "ended without having begun:",
        Why::Circle => "taken in a circle, each pair in this order:",
    }
}

/// In JSON.
fn word(why: Why) -> &'static str {
    match why {
        Why::NotFollowed => "not_followed",
        Why::NotPreceded => "not_preceded",
        Why::Between => "between",
        Why::WrongStep => "wrong_step",
        Why::WrongFirst => "wrong_first",
        Why::Incomplete => "incomplete",
        Why::Crossed => "crossed",
        Why::NotBegun => "not_begun",
        Why::Circle => "circle",
    }
}
