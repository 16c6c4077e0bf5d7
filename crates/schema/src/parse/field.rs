// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One field of an event: `TYPE NAME[N] in UNIT as DECODING "doc"`.

use super::{EventDraft, Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::layout::{RECORD_MAX, STRING_MAX};
use crate::lexer::{Token, number};
use crate::model::{Decode, Field, Scalar, Shape, Span};
use crate::names::{Kind, is_type, shorten};
use crate::nearest::did_you_mean;
use crate::vocabulary::{C_TYPE_WORDS, STRING, TYPE_REMEDIES, TYPES, UNIT_REMEDIES, UNITS};

/// Largest `string[N]` in bytes: all of them are in each record.
pub const TEXT_FIELD_MAX: u64 = 1000;
/// Largest `string[..N]` in bytes; the rest of a record is left for other fields.
pub const LONG_TEXT_MAX: u64 = 4000;

/// A type as it was written.
struct Type {
    name: String,
    of: Of,
}

/// What a type is of.
enum Of {
    Number(Scalar),
    Text(Shape),
}

impl Parser<'_> {
    pub(super) fn field(&mut self, draft: &mut EventDraft) -> Parse<()> {
        let ty = self.field_type()?;
        let name = self.name(Kind::Field)?;
        let (scalar, shape) = self.field_shape(&ty, &name.text, name.span)?;
        self.source(draft, &name)?;
        let mut field = Field {
            name: name.text,
            type_name: ty.name,
            scalar,
            shape,
            unit: None,
            decode: Decode::Plain,
            doc: None,
            context: None,
            span: name.span,
        };
        let decode_span = self.field_modifiers(&mut field);
        // Also after an error in a modifier: the field exists, and klogger() calls must have a
        // value for it.
        draft.event.fields.push(field);
        draft.decode_spans.push(decode_span?);
        Ok(())
    }

    fn field_type(&mut self) -> Parse<Type> {
        let next = self.cursor.next();
        let Some(word) = self.word_of(next) else {
            return Err(self.unexpected(
                next,
                "a field",
                "a field is a type and a name: `int pid`",
            ));
        };
        if self.spells_c_type(word) {
            return self.c_type(word, next.span);
        }
        if word == STRING {
            return self.text_type();
        }
        let Some((_, scalar)) = TYPES.iter().find(|(name, _)| *name == word) else {
            let scalar = self.unknown_type(word, next.span);
            // `string[N]` may have been meant.
            self.length()?;
            return Ok(Type { name: word.into(), of: Of::Number(scalar) });
        };
        let bracket = self.cursor.peek();
        if bracket.token == Token::OpenBracket {
            let help = format!("the length of an array follows its name: `{word} NAME[4]`");
            return Err(self.unexpected(bracket, "the field's name", &help));
        }
        Ok(Type { name: word.into(), of: Of::Number(*scalar) })
    }

    /// Takes `..`, if it follows. The two points are no token of their own.
    fn dots(&mut self) -> bool {
        let mut ahead = self.cursor.clone();
        let (first, second) = (ahead.next().span, ahead.next().span);
        let found = first.end == second.start
            && self.cursor.text(first) == "."
            && self.cursor.text(second) == ".";
        if found {
            self.cursor = ahead;
        }
        found
    }

    /// What follows `string`: nothing, `[N]`, or `[..N]`.
    fn text_type(&mut self) -> Parse<Type> {
        if self.cursor.eat(Token::OpenBracket).is_none() {
            return Ok(Type { name: STRING.into(), of: Of::Text(Shape::Tail(STRING_MAX)) });
        }
        if !self.dots() {
            let (n, span) = self.length_inside()?;
            let n = self.text_length(n, span);
            return Ok(Type { name: format!("{STRING}[{n}]"), of: Of::Text(Shape::Text(n)) });
        }
        let (mut n, span) = self.length_inside()?;
        if !(1..=LONG_TEXT_MAX).contains(&n) {
            self.report(
                Diagnostic::error(span, format!("a text of up to {n} bytes is not supported"))
                    .label("not a valid length")
                    .help(format!("write a number from 1 to {LONG_TEXT_MAX}")),
            );
            n = 1;
        }
        Ok(Type { name: format!("{STRING}[..{n}]"), of: Of::Text(Shape::Tail(n as u32)) })
    }

    fn unknown_type(&mut self, word: &str, span: Span) -> Scalar {
        let help = match TYPE_REMEDIES.iter().find(|(c, _)| *c == word) {
            Some((_, own)) => format!("write `{own}`"),
            None => did_you_mean(word,
                TYPES.iter().map(|(name, _)| *name).chain([STRING])).unwrap_or_else(|| {
                "the types are char, short, int, long, longlong, their u- forms, bool, string, and \
                 u8 ... s64".into()
            }),
        };
        let what = format!("unknown type `{}`", shorten(word));
        self.report(Diagnostic::error(span, what).label("not a type").help(help));
        Scalar::I32
    }

    /// Whether a C type begins here that is not a type of this language: `unsigned int`, `struct
    /// file *`, `char *`.
    fn spells_c_type(&self, word: &str) -> bool {
        let next = self.cursor.peek();
        let star = self.cursor.text(next.span) == "*";
        let follows = self
            .word_of(next)
            .is_some_and(|w| ["char", "short", "int", "long", "double"].contains(&w));
        star || (C_TYPE_WORDS.contains(&word) && (!is_type(word) || follows))
    }

    /// Reports a C type, and continues at the field's name.
    fn c_type(&mut self, first: &str, start: Span) -> Parse<Type> {
        let mut words = vec![first];
        let mut compound = matches!(first, "struct" | "union" | "enum");
        let mut pointer = false;
        let mut end = start.end;
        loop {
            let next = self.cursor.peek();
            let star = self.cursor.text(next.span) == "*";
            match self.word_of(next) {
                // Including the tag of a structure.
                Some(word) if C_TYPE_WORDS.contains(&word) || (compound && words.len() == 1) => {
                    words.push(word)
                }
                _ if star => pointer = true,
                _ => break,
            }
            compound |= matches!(words.last(), Some(&"struct" | &"union"));
            end = next.span.end;
            self.cursor.at = end;
        }
        words.retain(|w| !matches!(*w, "const" | "volatile"));
        let span = Span { start: start.start, end };
        let (what, help) =
            c_type_remedy(self.cursor.text(span), &words.join(" "), pointer, compound);
        self.report(Diagnostic::error(span, what).label("a type of C").help(help));
        Ok(Type { name: "int".into(), of: Of::Number(Scalar::I32) })
    }

    /// One value, an array or a string.
    fn field_shape(&mut self, ty: &Type, name: &str, span: Span) -> Parse<(Scalar, Shape)> {
        let bracket = self.cursor.peek().span;
        let Some((n, at)) = self.length()? else {
            return Ok(match ty.of {
                Of::Number(scalar) => (scalar, Shape::One),
                Of::Text(shape) => (Scalar::U8, shape),
            });
        };
        let scalar = match ty.of {
            Of::Number(scalar) => scalar,
            Of::Text(shape) => {
                let place = Span { start: bracket.start, end: at.end };
                self.array_of_texts(place, n, name, span);
                return Ok((Scalar::U8, shape));
            }
        };
        if ty.name == "char" {
            return Ok((Scalar::U8, Shape::Text(self.text_length(n, at))));
        }
        let most = u64::from(RECORD_MAX);
        if n == 0 || n > most {
            self.report(
                Diagnostic::error(at, format!("an array of {n} is not supported"))
                    .label("not a valid length")
                    .help(format!(
                        "an array has at least one element, and a record at most {most} bytes"
                    )),
            );
            return Ok((scalar, Shape::Array(1)));
        }
        Ok((scalar, Shape::Array(n as u32)))
    }

    fn array_of_texts(&mut self, place: Span, n: u64, name: &str, span: Span) {
        let help =
            format!("the length of a text is part of its type: `string[{n}] {}`", shorten(name));
        self.report(
            Diagnostic::error(place, "arrays of texts are not supported")
                .label("a length here makes an array")
                .related(span, "")
                .help(help),
        );
    }

    /// Checks the N of `string[N]` and `char NAME[N]`.
    fn text_length(&mut self, n: u64, span: Span) -> u32 {
        if (1..=TEXT_FIELD_MAX).contains(&n) {
            return n as u32;
        }
        self.report(
            Diagnostic::error(span, format!("a text of {n} bytes is not supported"))
                .label("not a valid length")
                .help(format!(
                    "a text with a length has 1 to {TEXT_FIELD_MAX} bytes; `string` \
                               without one takes what the text needs"
                )),
        );
        1
    }

    /// `[N]`, if it follows.
    fn length(&mut self) -> Parse<Option<(u64, Span)>> {
        if self.cursor.eat(Token::OpenBracket).is_none() {
            return Ok(None);
        }
        self.length_inside().map(Some)
    }

    /// `N]`
    fn length_inside(&mut self) -> Parse<(u64, Span)> {
        let next = self.cursor.next();
        if next.token != Token::Number {
            return Err(self.unexpected(
                next,
                "a length",
                "write a number: `[16]`; constants of C are not known here",
            ));
        }
        let n = self.number(next.span)?;
        let close = self.cursor.next();
        if close.token != Token::CloseBracket {
            return Err(self.unexpected(
                close,
                "`]`",
                "a length is one number between `[` and `]`",
            ));
        }
        Ok((n, next.span))
    }

    pub(super) fn number(&mut self, span: Span) -> Parse<u64> {
        let text = self.cursor.text(span);
        number(text).ok_or_else(|| {
            let what = format!("`{}` is not a number", shorten(text));
            let help = "write 12, 0x1f, 017 (octal) or 0b11, of at most 64 bits";
            self.report(Diagnostic::error(span, what).label("not a number").help(help))
        })
    }

    /// Unit, decoding and doc in any order, then an optional semicolon. Returns the position of the
    /// decoding.
    fn field_modifiers(&mut self, field: &mut Field) -> Parse<Option<Span>> {
        let mut decode = None;
        loop {
            if let Some(word) = self.cursor.eat_word("in") {
                self.once(word, field.unit.is_some(), "unit");
                field.unit = Some(self.unit()?);
            } else if let Some(word) = self.cursor.eat_word("as") {
                self.once(word, decode.is_some(), "decoding");
                let (value, span) = self.decoding()?;
                field.decode = value;
                decode = Some(span);
            } else if let Some(text) = self.doc()? {
                field.doc = Some(text);
            } else if let Some(comma) = self.cursor.eat(Token::Comma) {
                let help = "give each field its own type: `int a  int b`";
                return Err(self.report(
                    Diagnostic::error(comma, "fields are not joined by commas")
                        .label("not here")
                        .help(help),
                ));
            } else {
                self.cursor.eat(Token::Semicolon);
                return Ok(decode);
            }
        }
    }

    fn once(&mut self, word: Span, before: bool, what: &str) {
        if before {
            let message = format!("a field has one {what}");
            self.report(
                Diagnostic::error(word, message)
                    .label("a second one")
                    .help("remove one of the two"),
            );
        }
    }

    pub(super) fn unit(&mut self) -> Parse<String> {
        let next = self.cursor.next();
        let text = self.cursor.text(next.span);
        match next.token {
            Token::Word if UNITS.contains(&text) => return Ok(text.into()),
            Token::Word => {}
            Token::Other if text == "%" => return Ok("percent".into()),
            _ => {
                return Err(self.unexpected(
                    next,
                    "a unit",
                    "for example `in ns`, `in bytes` or `in percent`",
                ));
            }
        }
        let help = match UNIT_REMEDIES.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            Some((_, own)) => format!("write `{own}`"),
            None => did_you_mean(text, UNITS)
                .unwrap_or_else(|| format!("the units are {}", UNITS.join(", "))),
        };
        self.report(
            Diagnostic::error(next.span, format!("unknown unit `{}`", shorten(text)))
                .label("not a unit")
                .help(help),
        );
        Ok("count".into())
    }
}

fn c_type_remedy(written: &str, spelling: &str, pointer: bool, compound: bool) -> (String, String) {
    if pointer {
        let help = "log the address: `ulong NAME`, perhaps `as code`; a text: `string NAME`; or \
                    what it points to, member by member";
        return ("a pointer cannot be a field".into(), help.into());
    }
    if compound {
        return (
            "a structure cannot be a field".into(),
            "log those of its members that matter, each as a field".into(),
        );
    }
    let help = match TYPE_REMEDIES.iter().find(|(c, _)| *c == spelling) {
        Some((_, own)) => format!("write `{own}`"),
        None if matches!(spelling, "float" | "double" | "long double") => {
            "the kernel computes without floating point: log a whole number, such as thousandths"
                .into()
        }
        None => match spelling.split(' ').next_back().filter(|w| is_type(w)) {
            Some(own) => format!("write `{own}`"),
            None => {
                "the types are char, short, int, long, longlong, their u- forms, bool, string, and \
                 u8 ... s64"
                    .into()
            }
        },
    };
    (format!("`{}` is not a type of this language", shorten(written)), help)
}
