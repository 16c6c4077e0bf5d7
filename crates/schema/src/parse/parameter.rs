// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `parameter TYPE NAME in UNIT = DEFAULT from LEAST to MOST "doc"`

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Parameter, Span};
use crate::names::{Kind, shorten};
use crate::vocabulary::TYPES;

impl Parser<'_> {
    /// Without the first word.
    pub(super) fn parameter(&mut self) -> Parse<()> {
        let word = self.cursor.next();
        let ty = self.word_of(word).and_then(|w| TYPES.iter().find(|(name, _)| *name == w));
        let Some((type_name, scalar)) = ty else {
            return Err(self.unexpected(
                word,
                "the parameter's type",
                "a parameter is a whole number or a bool: `parameter ulong slow in ns = 10ms`",
            ));
        };
        let name = self.name(Kind::Parameter)?;
        let unit = match self.cursor.eat_word("in") {
            Some(_) => Some(self.unit()?),
            None => None,
        };
        let (least, most) = Parameter::limits_of(*scalar);
        let mut parameter = Parameter {
            name: name.text,
            type_name: type_name.to_string(),
            scalar: *scalar,
            unit,
            least,
            most,
            span: name.span,
            ..Parameter::default()
        };
        if self.cursor.eat(Token::Equals).is_none() {
            let next = self.cursor.next();
            let help = "each parameter has a default: `= 100`";
            return Err(self.unexpected(next, "`=` and the default", help));
        }
        let (default, at) = self.value(&parameter)?;
        self.range(&mut parameter)?;
        if !(parameter.least..=parameter.most).contains(&default) {
            let message = format!("the default of `{}` is out of its range", parameter.name);
            self.report(
                Diagnostic::error(at, message)
                    .label("out of range")
                    .help(format!("it is {}", parameter.range())),
            );
        }
        parameter.default = default;
        parameter.value = default;
        parameter.doc = self.doc()?;
        self.cursor.eat(Token::Semicolon);
        self.draft.parameters.push(parameter);
        Ok(())
    }

    /// `from LEAST to MOST`, if it follows.
    fn range(&mut self, parameter: &mut Parameter) -> Parse<()> {
        let Some(from) = self.cursor.eat_word("from") else { return Ok(()) };
        let (least, _) = self.value(parameter)?;
        if self.cursor.eat_word("to").is_none() {
            let next = self.cursor.next();
            return Err(self.unexpected(next, "`to`", "a range is `from 1 to 100`"));
        }
        let (most, at) = self.value(parameter)?;
        if least > most {
            let span = Span { start: from.start, end: at.end };
            self.report(
                Diagnostic::error(span, "this range has no values")
                    .label("the least is above the greatest")
                    .help("write the least value first"),
            );
            return Ok(());
        }
        (parameter.least, parameter.most) = (least, most);
        Ok(())
    }

    /// A number, perhaps with a unit: `10ms`; or `true`.
    fn value(&mut self, parameter: &Parameter) -> Parse<(i128, Span)> {
        let first = self.cursor.next();
        let last = match first.token {
            Token::Minus => self.cursor.next(),
            _ => first,
        };
        if !matches!(last.token, Token::Number | Token::Word) {
            return Err(self.unexpected(last, "a value", "a value is `100`, `10ms` or `true`"));
        }
        let span = Span { start: first.span.start, end: last.span.end };
        let text = shorten(self.cursor.text(span)).to_string();
        parameter.value_of(&text).map(|value| (value, span)).map_err(|wrong| {
            let help = wrong.help;
            self.report(Diagnostic::error(span, wrong.message).label("not a value").help(help))
        })
    }
}
