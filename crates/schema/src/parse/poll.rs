// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `poll NAME "doc" from "PATH" every INTERVAL rows { fields }`: an event that the recorder reads
//! from a file, and where its fields are in the file.

use super::{EventDraft, Name, Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Poll, Source, Span};
use crate::names::{Kind, shorten};
use crate::polled_files;

const HELP: &str = "write `poll NAME from \"/proc/vmstat\" every 1s { u64 pgfault }`";
/// Words of a line or file at most.
const WORDS_MAX: u64 = 1000;

impl Parser<'_> {
    /// Without the word `poll`.
    pub(super) fn poll(&mut self) -> Parse<()> {
        let name = self.name(Kind::Event)?;
        let doc = self.doc()?;
        let (path, span) = self.polled_file()?;
        let every_ns = self.interval()?;
        let rows = self.cursor.eat_word("rows").is_some();
        let poll = Poll { path, every_ns, rows, sources: Vec::new(), span };
        let mut draft = EventDraft::new(&name, Some(poll));
        draft.event.doc = doc;
        let open = self.open_brace(&format!("poll {}", name.text))?;
        let closed = self.event_body(&mut draft, open, &name);
        self.draft.events.push(draft);
        closed
    }

    fn polled_file(&mut self) -> Parse<(String, Span)> {
        let next = self.cursor.next();
        if self.word_of(next) != Some("from") {
            return Err(self.unexpected(next, "`from`", HELP));
        }
        let next = self.cursor.next();
        if next.token != Token::Text {
            return Err(self.unexpected(next, "the path of a file", HELP));
        }
        let path = self.unquote(next.span);
        if let Some((what, help)) = polled_files::wrong(&path) {
            let message = format!("`{}` cannot be polled", shorten(&path));
            self.report(Diagnostic::error(next.span, message).label(what).help(help));
        }
        Ok((path, next.span))
    }

    fn interval(&mut self) -> Parse<u64> {
        let next = self.cursor.next();
        if self.word_of(next) != Some("every") {
            return Err(self.unexpected(next, "`every`", HELP));
        }
        let next = self.cursor.next();
        let written = self.cursor.text(next.span);
        polled_files::interval_ns(written).filter(|_| next.token == Token::Number).ok_or_else(
            || {
                let message = format!("`{}` is not an interval", shorten(written));
                self.report(
                    Diagnostic::error(next.span, message)
                        .label("not an interval")
                        .help("write `100ms`, `1s` or `5min`: from 10 ms to 1 h"),
                )
            },
        )
    }

    /// `from "KEY"`, `from "KEY" 2` or `from 2`, if it follows the name of a polled field;
    /// otherwise the key is the field's name.
    pub(super) fn source(&mut self, draft: &mut EventDraft, field: &Name) -> Parse<()> {
        let Some(poll) = &draft.event.poll else { return Ok(()) };
        let rows = poll.rows;
        let source = match self.cursor.eat_word("from") {
            Some(_) => self.written_source(rows)?,
            None if rows => {
                let message = format!("`{}` has no column", shorten(&field.text));
                let help = "a row's fields are numbered: `u64 reads from 4`";
                self.report(Diagnostic::error(field.span, message).label("which word?").help(help));
                Source::Word(1)
            }
            None => Source::Key(field.text.clone(), 1),
        };
        if let Some(poll) = &mut draft.event.poll {
            poll.sources.push(source);
        }
        Ok(())
    }

    fn written_source(&mut self, rows: bool) -> Parse<Source> {
        let next = self.cursor.next();
        match next.token {
            Token::Number => Ok(Source::Word(self.word_number(next.span)?)),
            Token::Text if rows => Err(self.report(
                Diagnostic::error(next.span, "a row has columns, not keys")
                    .label("a key")
                    .help("number the column: `u64 reads from 4`"),
            )),
            Token::Text => {
                let key = self.unquote(next.span);
                let number = self.cursor.peek();
                if number.token != Token::Number {
                    return Ok(Source::Key(key, 1));
                }
                self.cursor.at = number.span.end;
                Ok(Source::Key(key, self.word_number(number.span)?))
            }
            _ => {
                let help = "`from \"KEY\"`, `from \"KEY\" 2` or `from 2`";
                Err(self.unexpected(next, "where the value is", help))
            }
        }
    }

    fn word_number(&mut self, span: Span) -> Parse<u32> {
        let n = self.number(span)?;
        if (1..=WORDS_MAX).contains(&n) {
            return Ok(n as u32);
        }
        Err(self.report(
            Diagnostic::error(span, format!("there is no word {n}"))
                .label("not a word's number")
                .help(format!("words are numbered from 1 to {WORDS_MAX}")),
        ))
    }
}
