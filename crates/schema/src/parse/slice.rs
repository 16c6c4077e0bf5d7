// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `slice NAME from EVENT to EVENT by FIELD, FIELD on PLACE`.

use super::{Parse, Parser, SliceDraft};
use crate::lexer::Token;
use crate::model::{Place, Slice};
use crate::names::Kind;
use crate::nearest::alternatives;
use crate::vocabulary::PLACES;

const HELP: &str =
    "write `slice NAME from EVENT to EVENT`, then `by FIELD` and `on PLACE` if needed";

impl Parser<'_> {
    /// Without the word `slice`.
    pub(super) fn slice(&mut self) -> Parse<()> {
        let name = self.name(Kind::Slice)?;
        self.word("from")?;
        let from = self.name(Kind::Slice)?;
        self.word("to")?;
        let to = self.name(Kind::Slice)?;
        let (mut by, mut by_spans) = (Vec::new(), Vec::new());
        if self.cursor.eat_word("by").is_some() {
            loop {
                let field = self.name(Kind::Slice)?;
                by.push(field.text);
                by_spans.push(field.span);
                if self.cursor.eat(Token::Comma).is_none() {
                    break;
                }
            }
        }
        let on =
            if self.cursor.eat_word("on").is_some() { self.place()? } else { Place::default() };
        let slice = Slice { name: name.text, by, on };
        self.draft.slices.push(SliceDraft { slice, span: name.span, from, to, by_spans });
        Ok(())
    }

    fn word(&mut self, word: &str) -> Parse<()> {
        if self.cursor.eat_word(word).is_some() {
            return Ok(());
        }
        let next = self.cursor.next();
        Err(self.unexpected(next, &format!("`{word}`"), HELP))
    }

    fn place(&mut self) -> Parse<Place> {
        let next = self.cursor.next();
        let found =
            self.word_of(next).and_then(|word| PLACES.iter().find(|(name, _)| *name == word));
        let known = PLACES.map(|(word, _)| word);
        found.map(|(_, place)| *place).ok_or_else(|| {
            self.unexpected(
                next,
                "on what the slice is",
                &format!("places are {}", alternatives(&known, "and")),
            )
        })
    }
}
