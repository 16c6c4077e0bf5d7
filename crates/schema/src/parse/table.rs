// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `enum NAME { VALUE "text" }` and `flags NAME { BITS "text" }`.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Decoding, Span};
use crate::names::Kind;
use std::collections::HashMap;

impl Parser<'_> {
    /// Without the first word.
    pub(super) fn table(&mut self, flags: bool) -> Parse<()> {
        let word = if flags { "flags" } else { "enum" };
        let name = self.name(Kind::Table)?;
        let open = self.open_brace(&format!("{word} {}", name.text))?;
        let mut seen: HashMap<u64, Span> = HashMap::new();
        let mut values = Vec::new();
        loop {
            let next = self.cursor.peek();
            match next.token {
                Token::CloseBrace => {
                    self.cursor.at = next.span.end;
                    break;
                }
                Token::Semicolon | Token::Comma => self.cursor.at = next.span.end,
                Token::End => return Err(self.table_open(word, &name.text, open, next.span)),
                _ if self.at_declaration() => {
                    self.table_open(word, &name.text, open, next.span);
                    break;
                }
                _ => {
                    let (value, span, text) = self.table_row(flags)?;
                    match seen.insert(value, span) {
                        Some(before) => self.value_twice(span, before),
                        None => values.push((value, text)),
                    }
                }
            }
            if self.full() {
                break;
            }
        }
        self.draft.tables.push((Decoding { name: name.text, flags, values }, name.span));
        Ok(())
    }

    /// Includes are replaced before a text is parsed ([`crate::include`]); this one was not.
    pub(super) fn cannot_include(&mut self, keyword: Span) -> super::Reported {
        self.report(
            Diagnostic::error(keyword, "nothing can be included here")
                .label("not known here")
                .help("write `include \"NAME\"`, in a schema that klogger reads from a file"),
        )
    }

    fn table_open(&mut self, word: &str, name: &str, open: Span, at: Span) -> super::Reported {
        self.report(
            Diagnostic::error(open, format!("the braces of {word} {name} are never closed"))
                .label("opened here")
                .related(at, "`}` is missing before this")
                .help("write `}` after the last value"),
        )
    }

    fn value_twice(&mut self, span: Span, before: Span) {
        self.report(
            Diagnostic::error(span, "this value has a text already")
                .label("again")
                .related(before, "first here")
                .help("each value has one text"),
        );
    }

    /// A value, an optional `=`, and its text.
    fn table_row(&mut self, flags: bool) -> Parse<(u64, Span, String)> {
        let (value, span) = self.table_value(flags)?;
        self.cursor.eat(Token::Equals);
        let next = self.cursor.next();
        if next.token != Token::Text {
            return Err(self.unexpected(
                next,
                "the value's text",
                "each value is followed by its text: `0 \"none\"`",
            ));
        }
        let text = self.unquote(next.span);
        Ok((value, span, text))
    }

    fn table_value(&mut self, flags: bool) -> Parse<(u64, Span)> {
        let first = self.cursor.next();
        match first.token {
            Token::Number => Ok((self.number(first.span)?, first.span)),
            Token::Char => Ok((self.character(first.span)?, first.span)),
            Token::Minus => {
                let next = self.cursor.next();
                if next.token != Token::Number {
                    return Err(self.unexpected(next, "a number", "for example `-1 \"none\"`"));
                }
                let span = Span { start: first.span.start, end: next.span.end };
                if flags {
                    let help = "bits are positive numbers: 0x1, 0x2, 0x4; negative values belong \
                                into an enum";
                    self.report(
                        Diagnostic::error(span, "flags are not negative")
                            .label("no set of bits")
                            .help(help),
                    );
                }
                Ok((self.negative(next.span, span)?, span))
            }
            _ => Err(self.unexpected(
                first,
                "a value",
                "a value is a number (`2`, `-1`, `0x10`) or a character (`'c'`)",
            )),
        }
    }

    fn negative(&mut self, digits: Span, whole: Span) -> Parse<u64> {
        let n = self.number(digits)?;
        if n > 1 << 63 {
            let help = "the least value is -9223372036854775808";
            return Err(self.report(
                Diagnostic::error(whole, "this number is too small")
                    .label("less than 64 bits hold")
                    .help(help),
            ));
        }
        Ok(n.wrapping_neg())
    }

    /// `'c'` as C reads it.
    fn character(&mut self, span: Span) -> Parse<u64> {
        let inner = self.cursor.text(Span { start: span.start + 1, end: span.end - 1 });
        let value = match inner.as_bytes() {
            [c] if *c != b'\\' => Some(*c),
            [b'\\', b'0'] => Some(0),
            [b'\\', b'n'] => Some(b'\n'),
            [b'\\', b't'] => Some(b'\t'),
            [b'\\', c @ (b'\\' | b'\'' | b'"')] => Some(*c),
            _ => None,
        };
        value.map(u64::from).ok_or_else(|| {
            let help = "write one ASCII character, or one of '\\0' '\\n' '\\t' '\\\\' '\\''";
            self.report(
                Diagnostic::error(span, "this is not one character")
                    .label("not a value")
                    .help(help),
            )
        })
    }
}
