// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The steps of a rule: `A(x) -> B(x)* -> (C(x) | D(x))`.

use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Path, Span};
use crate::parse::{Parse, Parser, Reported};

/// Steps of a rule at most: each is one bit of a word.
pub const STEPS_MAX: usize = 64;
/// Parentheses in parentheses at most: the parser recurses for each.
const DEPTH_MAX: usize = 16;
const HELP: &str = "write `A(x) -> B(x)`, with `?`, `*` or `+` after a step that may be missing or \
                    be repeated, and `(B(x) | C(x))` for one of several";

impl Parser<'_> {
    pub(super) fn path(&mut self) -> Parse<Path> {
        let start = self.cursor.peek().span.start;
        let path = self.either(0)?;
        let span = Span { start, end: self.cursor.at };
        let steps = path.steps().len();
        if steps < 2 {
            let next = self.cursor.next();
            return Err(self.unexpected(next, "`->`, `and` or `to`", super::HELP));
        }
        if steps > STEPS_MAX {
            let message = format!("this rule has {steps} steps");
            let help = format!("a rule has at most {STEPS_MAX}: make two of it");
            return Err(self.report(Diagnostic::error(span, message).label("too many").help(help)));
        }
        if path.may_be_empty() {
            return Err(self.report(
                Diagnostic::error(span, "all steps of this rule may be missing")
                    .label("no step is needed")
                    .help("leave out the `?` or `*` of one, or write `+`"),
            ));
        }
        Ok(path)
    }

    fn either(&mut self, depth: usize) -> Parse<Path> {
        let mut parts = vec![self.sequence(depth)?];
        while self.at_mark('|') {
            self.cursor.next();
            parts.push(self.sequence(depth)?);
        }
        Ok(one_or(parts, Path::Either))
    }

    fn sequence(&mut self, depth: usize) -> Parse<Path> {
        let mut parts = vec![self.step(depth)?];
        while self.cursor.eat(Token::Minus).is_some() {
            self.mark('>', "`->`", HELP)?;
            parts.push(self.step(depth)?);
        }
        Ok(one_or(parts, Path::Sequence))
    }

    fn step(&mut self, depth: usize) -> Parse<Path> {
        let mut path = match self.cursor.eat(Token::OpenParen) {
            None => Path::Step(self.term()?),
            Some(open) if depth >= DEPTH_MAX => return Err(self.too_deep(open)),
            Some(_) => {
                let inner = self.either(depth + 1)?;
                self.mark(')', "`)`", HELP)?;
                inner
            }
        };
        for (mark, none, many) in [('?', true, false), ('*', true, true), ('+', false, true)] {
            if self.at_mark(mark) {
                self.cursor.next();
                path = Path::Repeated { what: path.into(), none, many };
                break;
            }
        }
        Ok(path)
    }

    fn too_deep(&mut self, open: Span) -> Reported {
        let message = format!("more than {DEPTH_MAX} parentheses in one another");
        self.report(Diagnostic::error(open, message).label("one too many").help("make two rules"))
    }
}

fn one_or(mut parts: Vec<Path>, several: fn(Vec<Path>) -> Path) -> Path {
    match parts.len() {
        1 => parts.remove(0),
        _ => several(parts),
    }
}
