// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `rule NAME "doc": FORM within T from the start by the end`.

mod path;
mod term;

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::{Token, number};
use crate::model::{Form, Rule, Span};
use crate::names::Kind;

const HELP: &str = "the forms are: `every A(x) is followed by B(x)`, `every B(x) is preceded by \
                    A(x)`, `A(x) and B(x) alternate`, `no C(x) between A(x) and B(x)`, `A(t, x) to \
                    B(t, x) nest`, `A(t, x) to B(t, x) keep one order`, and `A(x) -> B(x)`";
const TIME_HELP: &str = "write a whole number and a unit: `10 ms`; units are ns, us, ms, s and min";
const TIMES: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];

/// What follows the form.
#[derive(Default)]
struct Suffix {
    within: Option<(u64, Span)>,
    start: Option<Span>,
    end: Option<Span>,
}

impl Parser<'_> {
    /// Without the word `rule`.
    pub(super) fn rule(&mut self) -> Parse<()> {
        let name = self.name(Kind::Rule)?;
        let doc = self.doc()?;
        self.mark(':', "`:`", "write `rule NAME: ...`")?;
        let from = self.cursor.at;
        let form = self.form()?;
        let suffix = self.suffix()?;
        let written = self.cursor.text(Span { start: from, end: self.cursor.at });
        let text = written.split_whitespace().collect::<Vec<_>>().join(" ");
        let Suffix { within, start, end } = &suffix;
        let rule = Rule {
            name: name.text,
            doc,
            form,
            within: within.map(|(ns, _)| ns),
            from_start: start.is_some(),
            by_end: end.is_some(),
            text,
            span: name.span,
        };
        self.check_suffix(&rule, &suffix);
        self.draft.rules.push(rule);
        Ok(())
    }

    fn form(&mut self) -> Parse<Form> {
        let mut ahead = self.cursor.clone();
        let (first, second) = (ahead.next(), ahead.next());
        let keyword = self.word_of(first).filter(|_| second.token == Token::Word);
        match keyword {
            Some("every") => {
                self.cursor.at = first.span.end;
                self.every()
            }
            Some("no") => {
                self.cursor.at = first.span.end;
                let banned = self.term()?;
                self.words(&["between"])?;
                let from = self.term()?;
                self.words(&["and"])?;
                Ok(Form::Between { banned, from, to: self.term()? })
            }
            _ if first.token == Token::OpenParen => Ok(Form::Path(self.path()?)),
            _ => self.pair(),
        }
    }

    fn every(&mut self) -> Parse<Form> {
        let term = self.term()?;
        self.words(&["is"])?;
        if self.cursor.eat_word("preceded").is_some() {
            self.words(&["by"])?;
            return Ok(Form::Preceded { last: term, before: self.term()? });
        }
        self.words(&["followed", "by"])?;
        let then = self.term()?;
        // The time may stand before it, which is how one says it.
        let unless = match self.cursor.eat_word("unless") {
            Some(_) => Some(self.term()?),
            None => None,
        };
        Ok(Form::Followed { first: term, then, unless })
    }

    /// The forms that begin with an event.
    fn pair(&mut self) -> Parse<Form> {
        let start = self.cursor.at;
        let first = self.term()?;
        if self.cursor.eat_word("and").is_some() {
            let second = self.term()?;
            self.words(&["alternate"])?;
            return Ok(Form::Alternate { first, second });
        }
        if self.cursor.eat_word("to").is_some() {
            let to = self.term()?;
            if self.cursor.eat_word("nest").is_some() {
                return Ok(Form::Nest { from: first, to });
            }
            self.words(&["keep", "one", "order"])?;
            return Ok(Form::Order { from: first, to });
        }
        self.cursor.at = start;
        Ok(Form::Path(self.path()?))
    }

    /// Takes these words.
    fn words(&mut self, words: &[&str]) -> Parse<()> {
        for word in words {
            if self.cursor.eat_word(word).is_none() {
                let next = self.cursor.next();
                return Err(self.unexpected(next, &format!("`{word}`"), HELP));
            }
        }
        Ok(())
    }

    /// Whether this character comes next.
    fn at_mark(&self, mark: char) -> bool {
        let next = self.cursor.peek();
        self.cursor.text(next.span).starts_with(mark)
    }

    fn mark(&mut self, mark: char, what: &str, help: &str) -> Parse<()> {
        let next = self.cursor.next();
        match self.cursor.text(next.span).starts_with(mark) {
            true => Ok(()),
            false => Err(self.unexpected(next, what, help)),
        }
    }

    fn suffix(&mut self) -> Parse<Suffix> {
        let mut suffix = Suffix::default();
        loop {
            let at = self.cursor.peek().span;
            if self.cursor.eat_word("within").is_some() {
                suffix.within = Some((self.time()?, at));
            } else if self.cursor.eat_word("from").is_some() {
                self.words(&["the", "start"])?;
                suffix.start = Some(at);
            } else if self.cursor.eat_word("by").is_some() {
                self.words(&["the", "end"])?;
                suffix.end = Some(at);
            } else {
                return Ok(suffix);
            }
        }
    }

    /// `10 ms` or `10ms`, in ns.
    fn time(&mut self) -> Parse<u64> {
        let next = self.cursor.next();
        let text = self.cursor.text(next.span);
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (amount, mut unit) = text.split_at(digits);
        if unit.is_empty() && next.token == Token::Number {
            unit = self.cursor.peek_word().unwrap_or_default();
            self.cursor.eat(Token::Word);
        }
        let scale = TIMES.iter().find(|(word, _)| *word == unit).map(|(_, ns)| *ns);
        let amount = number(amount).filter(|n| *n > 0);
        let ns = amount.zip(scale).and_then(|(amount, scale)| amount.checked_mul(scale));
        let ns = ns.filter(|ns| i64::try_from(*ns).is_ok());
        ns.ok_or_else(|| self.unexpected(next, "a time", TIME_HELP))
    }

    /// A rule that no log could violate, or a word that has no meaning for its form, is a mistake.
    fn check_suffix(&mut self, rule: &Rule, suffix: &Suffix) {
        let (within, start, end) = match rule.form {
            Form::Followed { .. } => (true, false, true),
            Form::Preceded { .. } => (true, true, false),
            Form::Between { .. } | Form::Order { .. } => (false, true, false),
            Form::Alternate { .. } | Form::Nest { .. } | Form::Path(_) => (false, true, true),
        };
        let words = [
            ("within", within, suffix.within.map(|(_, span)| span)),
            ("from the start", start, suffix.start),
            ("by the end", end, suffix.end),
        ];
        for (word, allowed, given) in words {
            if let Some(span) = given.filter(|_| !allowed) {
                let message = format!("`{word}` means nothing in a rule of this form");
                self.report(Diagnostic::error(span, message).label("here").help("remove it"));
            }
        }
        let needs = match rule.form {
            Form::Followed { .. } if suffix.end.is_none() => Some("`within T` or `by the end`"),
            Form::Preceded { .. } if suffix.start.is_none() => {
                Some("`within T` or `from the start`")
            }
            _ => None,
        };
        if let Some(needs) = needs.filter(|_| suffix.within.is_none()) {
            let message = format!("no log can violate rule {}", rule.name);
            self.report(
                Diagnostic::error(rule.span, message)
                    .label("without a limit")
                    .help(format!("end it with {needs}")),
            );
        }
    }
}
