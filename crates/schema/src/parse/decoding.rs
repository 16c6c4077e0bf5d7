// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How a field is decoded: `as hex`, `as NAME`, `as enum NAME`.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::model::{Decode, Decoding, Span};
use crate::names::{Kind, shorten};
use crate::vocabulary::DECODES;

impl Parser<'_> {
    /// A built-in decoding, or the name of a table, which may be declared later.
    pub(super) fn decoding(&mut self) -> Parse<(Decode, Span)> {
        let next = self.cursor.next();
        let Some(word) = self.word_of(next) else {
            return Err(self.unexpected(
                next,
                "a decoding",
                "for example `as hex`, `as thread`, or the name of an enum or flags",
            ));
        };
        if word == "enum" || (word == "flags" && self.cursor.peek_word() == Some("enum")) {
            return self.kernel_enum(word == "flags", next.span);
        }
        let own = DECODES.iter().find(|(name, _)| *name == word).map(|(_, decode)| decode.clone());
        Ok((own.unwrap_or_else(|| Decode::Table(word.into())), next.span))
    }

    /// `as enum NAME` and `as flags enum NAME`: an enum of the kernel, without the first word. Its
    /// texts are looked up when a recording begins.
    fn kernel_enum(&mut self, flags: bool, start: Span) -> Parse<(Decode, Span)> {
        if flags {
            self.cursor.next();
        }
        let name = self.name(Kind::Table)?;
        let span = Span { start: start.start, end: name.span.end };
        let known = self.draft.kernel_enums.iter().find(|(found, _)| *found == name.text);
        match known.map(|(_, known)| *known) {
            None => {
                let table = Decoding { name: name.text.clone(), flags, values: Vec::new() };
                self.draft.tables.push((table, name.span));
                self.draft.kernel_enums.push((name.text.clone(), flags));
            }
            Some(known) if known != flags => {
                let message = format!("`{}` is decoded in two ways", shorten(&name.text));
                let help = "write `as enum` or `as flags enum` for all fields of one enum";
                self.report(Diagnostic::error(span, message).label("again").help(help));
            }
            Some(_) => {}
        }
        Ok((Decode::Table(name.text), span))
    }
}
