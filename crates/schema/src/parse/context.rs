// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `context NAME ...`.

use super::{Parse, Parser};
use crate::contexts;
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
            let named = self.context(word, span);
            unknown |= named.is_empty();
            for context in named {
                match found.iter().find(|(c, _)| *c == context) {
                    Some(&(_, before)) => {
                        let word = context.word();
                        self.report(
                            Diagnostic::error(span, format!("`{word}` is given twice"))
                                .label("again")
                                .related(before, "first here")
                                .help("remove one of the two"),
                        );
                    }
                    None => found.push((context, span)),
                }
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

    /// The contexts that a word stands for; of an unknown one, which is reported, none.
    fn context(&mut self, word: &str, span: Span) -> Vec<Context> {
        let found = contexts::of(word);
        if found.is_empty() {
            let help = did_you_mean(word, contexts::words())
                .unwrap_or_else(|| format!("there are {}", all_contexts("and")));
            let what = format!("unknown context `{}`", shorten(word));
            self.report(Diagnostic::error(span, what).label("not known").help(help));
        }
        found
    }
}

fn all_contexts(join: &str) -> String {
    alternatives(&contexts::words().collect::<Vec<_>>(), join)
}
