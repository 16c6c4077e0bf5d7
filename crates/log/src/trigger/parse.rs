// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parses the text of a trigger.

use super::{Action, Key, Limit, Pattern, Step, Trigger};
use crate::filter::parse::{beginning, number};
use crate::filter::{FilterError, parsed};
use klogger_schema::nearest::did_you_mean;

/// Limits: bytes of a trigger, and its actions.
const LENGTH_MAX: usize = 4096;
const ACTIONS_MAX: usize = 16;
/// The longest time that a sequence or a silence may take: a day.
const WITHIN_MAX_NS: i128 = 86_400 * 1_000_000_000;

const ACTIONS: [&str; 6] = ["snapshot", "mark", "enable", "disable", "stop", "run"];
/// Words that follow the name of an event.
const AFTER_EVENT: [&str; 3] = ["where", "within", "by"];
const EXAMPLE: &str = "for example: 'SCHEDIN where waited > 20ms: snapshot, mark \"late\"'";
const ACTION_HELP: &str = "actions are snapshot, mark \"TEXT\", enable EVENT, disable EVENT, stop, \
                           run \"COMMAND\"";

type Result<T> = std::result::Result<T, FilterError>;

fn error<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T> {
    Err(FilterError { message: message.into(), help: help.into() })
}

pub fn trigger(text: &str) -> Result<Trigger> {
    let text = text.trim();
    if text.is_empty() {
        return error("the trigger is empty", EXAMPLE);
    }
    if text.len() > LENGTH_MAX {
        let message = format!("the trigger has {} bytes; {LENGTH_MAX} are possible", text.len());
        return error(message, "put a long command into a file, and run that");
    }
    if text.contains('\0') {
        return error("the trigger has a NUL byte", EXAMPLE);
    }
    let mut rest = Rest(text);
    let pattern = rest.pattern()?;
    if !rest.symbol(":") {
        return match rest.0 {
            "" => error(
                "the trigger has no action",
                format!("write what to do after a colon; {ACTION_HELP}"),
            ),
            left => error(format!("the trigger cannot be parsed from here on: '{left}'"), EXAMPLE),
        };
    }
    let (actions, limit) = rest.actions()?;
    Ok(Trigger { text: text.into(), pattern, actions, limit: limit.unwrap_or_default() })
}

/// The part of the text that is not parsed yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_space(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        self.skip_space();
        match self.0.strip_prefix(symbol) {
            Some(rest) => {
                self.0 = rest;
                self.skip_space();
                true
            }
            None => false,
        }
    }

    /// The name that comes next, which is not taken.
    fn peek(&self) -> &'a str {
        let text = self.0.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = &text[..end.unwrap_or(text.len())];
        if word.starts_with(|c: char| c.is_ascii_digit()) { "" } else { word }
    }

    fn word(&mut self) -> &'a str {
        self.skip_space();
        let word = self.peek();
        self.0 = &self.0[word.len()..];
        word
    }

    fn keyword(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        if found {
            self.word();
        }
        found
    }

    /// What stands here, for messages.
    fn here(&self) -> String {
        match self.0.trim() {
            "" => "the end of the trigger".into(),
            rest => format!("'{rest}'"),
        }
    }

    fn pattern(&mut self) -> Result<Pattern> {
        // An event may be named `no`.
        let mut second = Rest(self.0);
        if self.peek() == "no"
            && !{
                second.word();
                second.symbol(":")
            }
            && !AFTER_EVENT.contains(&second.peek())
        {
            self.word();
            let of = self.step()?;
            let within_ns = self.within()?;
            let by = self.key()?;
            return match by {
                Some(key) if key.first != key.then => error(
                    "a silence is about one event, and has one field after 'by'",
                    "write 'no A within 10ms by FIELD'",
                ),
                by => Ok(Pattern::Silence { of, within_ns, by: by.map(|key| key.first) }),
            };
        }
        let first = self.step()?;
        if !self.symbol("->") {
            if self.peek() == "within" {
                return error(
                    "'within' is for a sequence or a silence",
                    "write 'A -> B within 10ms' or 'no A within 10ms'",
                );
            }
            return Ok(Pattern::Event(first));
        }
        let missing = self.peek() == "no";
        if missing {
            self.word();
        }
        let second = self.step()?;
        if self.symbol("->") {
            return error("a sequence has two events", "write a trigger for each pair of events");
        }
        let (within_ns, by) = (self.within()?, self.key()?);
        Ok(match missing {
            true => Pattern::Unanswered { first, missing: second, within_ns, by },
            false => Pattern::Sequence { first, then: second, within_ns, by },
        })
    }

    /// `EVENT where EXPR`, or of a trace event `GROUP:EVENT where EXPR`.
    fn step(&mut self) -> Result<Step> {
        let mut event = self.word();
        if event.is_empty() {
            return error(format!("an event is expected at {}", self.here()), EXAMPLE);
        }
        if let Some(name) = self.in_group() {
            event = name;
        }
        let mut condition = None;
        if self.keyword("where") {
            self.skip_space();
            condition = Some(self.expression()?);
        }
        Ok(Step { event: event.into(), condition })
    }

    /// The name after a group: `:` and a name directly after it, then something that follows the
    /// name of an event.
    fn in_group(&mut self) -> Option<&'a str> {
        let mut after = Rest(self.0.strip_prefix(':')?);
        if after.0.starts_with(char::is_whitespace) {
            return None;
        }
        let name = after.word();
        let left = after.0.trim_start();
        let is_event =
            left.starts_with(':') || left.starts_with("->") || AFTER_EVENT.contains(&after.peek());
        if name.is_empty() || !is_event {
            return None;
        }
        self.0 = after.0;
        Some(name)
    }

    fn expression(&mut self) -> Result<String> {
        match beginning(self.0) {
            Ok(length) => {
                let (text, rest) = self.0.split_at(length);
                self.0 = rest;
                Ok(text.trim().into())
            }
            // The message of a filter, for the part up to the colon.
            Err(at) => {
                let head = self.0.find(": ").unwrap_or(self.0.len());
                let text = self.0[..head.max(at)].trim();
                match parsed(text) {
                    Err(e) => Err(e),
                    Ok(_) => error(format!("the condition cannot be parsed: '{text}'"), EXAMPLE),
                }
            }
        }
    }

    fn within(&mut self) -> Result<u64> {
        const HELP: &str = "write 'within' and a time: 'A -> B within 10ms'";
        if !self.keyword("within") {
            return error(format!("'within' is expected at {}", self.here()), HELP);
        }
        self.skip_space();
        let is_of_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let end = self.0.find(|c| !is_of_number(c)).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        let has_unit = text.ends_with('s');
        let Some(ns) = number(text).filter(|ns| has_unit && (1..=WITHIN_MAX_NS).contains(ns))
        else {
            let message = format!("a time from 1ns to 86400s is expected at {}", self.here());
            return error(message, "a time is a number and ns, us, ms or s, as in 10ms or 1.5s");
        };
        self.0 = rest;
        Ok(ns as u64)
    }

    fn key(&mut self) -> Result<Option<Key>> {
        if !self.keyword("by") {
            return Ok(None);
        }
        let field = |rest: &mut Rest<'a>| match rest.word() {
            "" => error(
                format!("a field is expected at {}", rest.here()),
                "write a field that both events have, or 'by FIELD = FIELD'",
            ),
            name => Ok(name.to_string()),
        };
        let first = field(self)?;
        let is_pair = self.symbol("==") || self.symbol("=");
        let then = if is_pair { field(self)? } else { first.clone() };
        Ok(Some(Key { first, then }))
    }

    fn actions(&mut self) -> Result<(Vec<Action>, Option<Limit>)> {
        let mut actions = Vec::new();
        loop {
            if actions.len() == ACTIONS_MAX {
                let message = format!("the trigger has more than {ACTIONS_MAX} actions");
                return error(message, "write a script, and run that");
            }
            let action = self.action()?;
            actions.push(action);
            let comma = self.symbol(",");
            if self.peek() == "at" {
                return Ok((actions, Some(self.limit()?)));
            }
            if !comma {
                break;
            }
        }
        match self.0 {
            "" => Ok((actions, None)),
            rest => {
                let message = format!("the trigger cannot be parsed from here on: '{rest}'");
                error(message, "actions are separated by commas")
            }
        }
    }

    fn action(&mut self) -> Result<Action> {
        let at = self.here();
        Ok(match self.word() {
            "snapshot" => Action::Snapshot,
            "stop" => Action::Stop,
            "mark" => Action::Mark(self.text("mark")?),
            "run" => Action::Run(self.text("run")?),
            "enable" => Action::Enable(self.events("enable")?),
            "disable" => Action::Disable(self.events("disable")?),
            "" => return error(format!("an action is expected at {at}"), ACTION_HELP),
            other => {
                let help = did_you_mean(other, ACTIONS).unwrap_or_else(|| ACTION_HELP.into());
                return error(format!("there is no action '{other}'"), help);
            }
        })
    }

    /// A text in quotes; a backslash escapes a quote or a backslash.
    fn text(&mut self, of: &str) -> Result<String> {
        self.skip_space();
        let mut chars = self.0.char_indices();
        let quote = match chars.next() {
            Some((_, quote @ ('"' | '\''))) => quote,
            _ => {
                let message = format!("a text in quotes is expected after '{of}'");
                return error(message, format!("for example: {of} \"late\""));
            }
        };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.0 = self.0[at + 1..].trim_start();
                    return match text.trim() {
                        "" => error(format!("the text of '{of}' is empty"), "write something"),
                        _ => Ok(text),
                    };
                }
                '\\' => match chars.next() {
                    Some((_, c)) if c == quote || c == '\\' => text.push(c),
                    Some((_, c)) => text.extend(['\\', c]),
                    None => break,
                },
                _ => text.push(c),
            }
        }
        error(format!("the text after '{of}' has no quote at its end"), "add it")
    }

    /// Names of events, up to the next action.
    fn events(&mut self, of: &str) -> Result<Vec<String>> {
        let mut events = Vec::new();
        loop {
            match self.word() {
                "" => {
                    let message = format!("an event is expected after '{of}' at {}", self.here());
                    return error(message, format!("for example: {of} WAKEUP"));
                }
                name => events.push(name.to_string()),
            }
            let mut after = Rest(self.0);
            let more = after.symbol(",")
                && !ACTIONS.contains(&after.peek())
                && after.peek() != "at"
                && !after.0.is_empty();
            if !more {
                self.skip_space();
                return Ok(events);
            }
            self.symbol(",");
        }
    }

    /// `at most N per second`
    fn limit(&mut self) -> Result<Limit> {
        const HELP: &str = "write it last: 'at most 5 per minute'; also per second, hour, day";
        let at = self.here();
        let wrong = || error(format!("the limit cannot be parsed from here on: {at}"), HELP);
        if !(self.keyword("at") && self.keyword("most")) {
            return wrong();
        }
        self.skip_space();
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        let hits = digits.parse().ok().filter(|n| (1..=1000).contains(n));
        let per = self.keyword("per").then(|| self.word());
        let seconds = match per {
            Some("second") => 1,
            Some("minute") => 60,
            Some("hour") => 3_600,
            Some("day") => 86_400,
            _ => return wrong(),
        };
        self.skip_space();
        match (hits, self.0) {
            (Some(hits), "") => Ok(Limit { hits, per_ns: seconds * 1_000_000_000 }),
            (None, _) => error("a limit is a number from 1 to 1000", HELP),
            (Some(_), rest) => {
                error(format!("the trigger cannot be parsed from here on: '{rest}'"), HELP)
            }
        }
    }
}
