// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `arch NAME { counter0 event optional }`.

use super::{Parse, Parser};
use crate::counted;
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Arch, Counted, Counter, Span};
use crate::names::{Kind, shorten};
use crate::nearest::did_you_mean;

/// More than any processor has.
const COUNTERS_MAX: u32 = 64;
const COUNTERS_HELP: &str = "write `counter0 EVENT`, one for each counter, from 0 to 63";

impl Parser<'_> {
    /// Without the word `arch`.
    pub(super) fn arch(&mut self) -> Parse<()> {
        let name = self.name(Kind::Arch)?;
        let open = self.open_brace(&format!("arch {}", name.text))?;
        let mut arch = Arch { name: name.text.clone(), counters: Vec::new() };
        loop {
            let next = self.cursor.next();
            match (next.token, self.word_of(next)) {
                (Token::CloseBrace, _) => break,
                (Token::Semicolon | Token::Comma, _) => {}
                (Token::End, _) => {
                    return Err(self.report(
                        Diagnostic::error(
                            open,
                            format!("the braces of arch {} are never closed", name.text),
                        )
                        .label("opened here")
                        .help("write `}` after the last counter"),
                    ));
                }
                (_, Some(word)) => {
                    match word.strip_prefix("counter").and_then(|n| n.parse().ok()) {
                        Some(number) if number < COUNTERS_MAX => {
                            self.counter(&mut arch, number, next.span)?
                        }
                        _ => return Err(self.unexpected(next, "a counter", COUNTERS_HELP)),
                    }
                }
                (_, None) => return Err(self.unexpected(next, "a counter", COUNTERS_HELP)),
            }
            if self.full() {
                break;
            }
        }
        self.draft.arch.push((arch, name.span));
        Ok(())
    }

    /// What a counter counts, and whether it may be missing.
    fn counter(&mut self, arch: &mut Arch, number: u32, at: Span) -> Parse<()> {
        let next = self.cursor.peek();
        let start = next.span.start;
        // Names such as `LLC-load-misses` are several tokens of this language.
        let rest = &self.cursor.text[start..];
        let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
        let span = Span { start, end: start + rest.find(ends).unwrap_or(rest.len()) };
        if span.start == span.end {
            self.cursor.at = next.span.end;
            let help = "for example `counter0 l2_cache_misses`";
            return Err(self.unexpected(next, "what the counter counts", help));
        }
        self.cursor.at = span.end;
        let event = self.cursor.text(span).to_string();
        let optional = self.cursor.eat_word("optional").is_some();
        let before = self.draft.arch.iter().map(|(arch, _)| arch).chain([&*arch]);
        if before.flat_map(|arch| &arch.counters).any(|counter| counter.number == number) {
            self.report(
                Diagnostic::error(at, format!("counter{number} is bound twice"))
                    .label("again")
                    .help("use another number; each counter counts one thing"),
            );
        }
        match Counted::of(&event) {
            Some(counted) => {
                arch.counters.push(Counter { number, event, counted, optional, span });
            }
            None => {
                self.unknown_event(&event, span);
            }
        }
        Ok(())
    }

    fn unknown_event(&mut self, event: &str, span: Span) {
        let all = counted::names();
        let help = did_you_mean(event, all.iter().map(String::as_str)).unwrap_or_else(|| {
            "names are those of 'perf list': cycles, cache-misses, page-faults, LLC-load-misses, \
             r01c2 ..."
                .into()
        });
        let what = format!("`{}` is nothing that is counted", shorten(event));
        self.report(Diagnostic::error(span, what).label("unknown").help(help));
    }
}
