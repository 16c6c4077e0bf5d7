// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `line EVENT "TEXT" with EVENT, EVENT by FIELD, FIELD`.

use super::{LineDraft, Name, Parse, Parser};
use crate::lexer::Token;
use crate::model::Line;
use crate::names::Kind;

const HELP: &str = "write `line EVENT \"TEXT\"`, then `with EVENT by FIELD` if needed";

impl Parser<'_> {
    /// Without the word `line`.
    pub(super) fn line(&mut self) -> Parse<()> {
        let event = self.name(Kind::Line)?;
        let text_span = self.cursor.peek().span;
        let Some(mut text) = self.doc()? else {
            let next = self.cursor.next();
            return Err(self.unexpected(next, "the text of the line", HELP));
        };
        // As in C, texts that follow each other are one.
        while let Some(more) = self.doc()? {
            text += &more;
        }
        let (mut with, mut by) = (Vec::new(), Vec::new());
        if self.cursor.eat_word("with").is_some() {
            with = self.names()?;
            if self.cursor.eat_word("by").is_none() {
                let next = self.cursor.next();
                return Err(self.unexpected(next, "`by`", HELP));
            }
            by = self.names()?;
        }
        let texts = |names: &[Name]| names.iter().map(|name| name.text.clone()).collect();
        let line = Line { text, with: texts(&with), by: texts(&by) };
        self.draft.lines.push(LineDraft { line, event, with, by, text_span });
        Ok(())
    }

    /// Names with commas between them.
    fn names(&mut self) -> Parse<Vec<Name>> {
        let mut names = vec![self.name(Kind::Line)?];
        while self.cursor.eat(Token::Comma).is_some() {
            names.push(self.name(Kind::Line)?);
        }
        Ok(names)
    }
}
