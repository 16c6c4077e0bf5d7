// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `context NAME ...`.

use super::{Parse, Parser};
use crate::contexts::CONTEXTS;
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Context, Span};
use crate::names::{self, shorten};
use crate::nearest::{alternatives, did_you_mean};
use crate::vocabulary::DECLARATIONS;

impl Parser<'_> {
    /// `context NAME ...`, without the first word. In an event a type may follow.
    pub(super) fn contexts(&mut self, in_event: bool) -> Parse<Vec<(Context, Span)>> {
        let mut found: Vec<(Context, Span)> = Vec::new();
        let mut unknown = false;
        while let Some(word) = self.cursor.peek_word() {
            let ends = if in_event { names::is_type(word) } else { DECLARATIONS.contains(&word) };
            if ends || word == "context" || self.full() {
                break;
            }
            let span = self.cursor.next().span;
            match self.context(word, span) {
                Some(context) => match found.iter().find(|(c, _)| *c == context) {
                    Some(&(_, before)) => {
                        self.report(
                            Diagnostic::error(span, format!("`{word}` is given twice"))
                                .label("again")
                                .related(before, "first here")
                                .help("remove one of the two"),
                        );
                    }
                    None => found.push((context, span)),
                },
                None => unknown = true,
            }
            self.cursor.eat(Token::Comma);
        }
        self.cursor.eat(Token::Semicolon);
        if found.is_empty() && !unknown {
            let next = self.cursor.peek();
            let help = format!("one or more of {}", all_contexts("and"));
            return Err(self.unexpected(next, "what context to add", &help));
        }
        Ok(found)
    }

    fn context(&mut self, word: &str, span: Span) -> Option<Context> {
        let found = Context::of(word);
        if found.is_none() {
            let help = did_you_mean(word, CONTEXTS.iter().map(|row| row.word))
                .unwrap_or_else(|| format!("there are {}", all_contexts("and")));
            let what = format!("unknown context `{}`", shorten(word));
            self.report(Diagnostic::error(span, what).label("not known").help(help));
        }
        found
    }
}

fn all_contexts(join: &str) -> String {
    alternatives(&CONTEXTS.iter().map(|row| row.word).collect::<Vec<_>>(), join)
}
