// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `EVENT(FIELD, FIELD) where (CONDITION)`, a part of a rule.

use crate::lexer::Token;
use crate::model::{Condition, Span, Term};
use crate::parse::{Name, Parse, Parser};

const HELP: &str = "write `EVENT(FIELD)`, or `EVENT(FIELD, FIELD) where (FIELD > 1)`";

impl Parser<'_> {
    pub(super) fn term(&mut self) -> Parse<Term> {
        let event = self.plain_name("an event")?;
        let (mut by, mut by_spans) = (Vec::new(), Vec::new());
        if self.cursor.eat(Token::OpenParen).is_some() {
            loop {
                let field = self.plain_name("a field of the event")?;
                by.push(field.text);
                by_spans.push(field.span);
                if self.cursor.eat(Token::Comma).is_none() {
                    break;
                }
            }
            if self.cursor.eat(Token::CloseParen).is_none() {
                let next = self.cursor.next();
                return Err(self.unexpected(next, "`)`", HELP));
            }
        }
        let condition = match self.cursor.eat_word("where") {
            Some(_) => Some(self.rule_condition()?),
            None => None,
        };
        Ok(Term { event: event.text, by, condition, span: event.span, by_spans })
    }

    fn plain_name(&mut self, what: &str) -> Parse<Name> {
        let next = self.cursor.next();
        match self.word_of(next) {
            Some(word) => Ok(Name { text: word.into(), span: next.span }),
            None => Err(self.unexpected(next, what, HELP)),
        }
    }

    /// What is between parentheses, which says where it ends.
    fn rule_condition(&mut self) -> Parse<Condition> {
        let open = self.cursor.next();
        if open.token != Token::OpenParen {
            return Err(self.unexpected(
                open,
                "`(`",
                "write the condition in parentheses: `where (prio < 120)`",
            ));
        }
        let mut depth = 1;
        loop {
            let next = self.cursor.next();
            match next.token {
                Token::OpenParen => depth += 1,
                Token::CloseParen => depth -= 1,
                Token::End
                | Token::OpenText
                | Token::OpenChar
                | Token::OpenComment
                | Token::OpenBrace
                | Token::CloseBrace => return Err(self.unexpected(next, "`)`", HELP)),
                _ => {}
            }
            if depth == 0 {
                let span = Span { start: open.span.end, end: next.span.start };
                return Ok(Condition { text: self.cursor.text(span).into(), span });
            }
        }
    }
}
