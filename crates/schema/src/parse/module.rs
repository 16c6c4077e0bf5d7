// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `module NAME optional`: a module of the kernel, which is loaded before a recording.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Module, Span};
use crate::names::shorten;

impl Parser<'_> {
    /// Without the first word.
    pub(super) fn module(&mut self) -> Parse<()> {
        let next = self.cursor.peek();
        // A name such as `snd-hda-intel` is several tokens of this language.
        let start = next.span.start;
        let rest = &self.cursor.text[start..];
        let ends = |c: char| c.is_whitespace() || "{}()[];,=\"'#".contains(c);
        let length = rest.find(ends).unwrap_or(rest.len());
        if length == 0 {
            let next = self.cursor.next();
            let help = "for example `module xfs`";
            return Err(self.unexpected(next, "the module's name", help));
        }
        let span = Span { start, end: start + length };
        self.cursor.at = span.end;
        let name = self.cursor.text(span);
        if !Module::is_name(name) {
            let message = format!("`{}` is not the name of a module", shorten(name));
            return Err(self.report(Diagnostic::error(span, message).label("not legal").help(
                "such a name has letters, digits, `_` and `-`: write it as 'lsmod' does, without \
                 a path or an ending",
            )));
        }
        let name = name.replace('-', "_");
        let optional = self.cursor.eat_word("optional").is_some();
        self.cursor.eat(Token::Semicolon);
        self.draft.modules.push(Module { name, optional, span });
        Ok(())
    }
}
