// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A small part of C: its tokens, but not its grammar. That is enough to find where a text in C
//! ends, which `klogger()` calls it contains, and what a parameter is called.

pub mod reach;

use crate::lexer::quoted_length;
use crate::model::{Call, Span};
use logos::{Filter, Lexer, Logos};

#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\x0c]+")]
pub enum Token {
    #[token("/*", block_comment)]
    #[token("//", line_comment)]
    OpenComment,
    #[regex(r"[A-Za-z_$][A-Za-z0-9_$]*")]
    Word,
    /// With the digit separators of C23, whose `'` must not be taken for a quote.
    #[regex(r"\.?[0-9]([A-Za-z0-9_.]|[eEpP][+-]|'[A-Za-z0-9_])*")]
    Number,
    #[token("\"", |lexer| quoted(lexer, b'"', Token::Text, Token::OpenText))]
    Text,
    OpenText,
    #[token("'", |lexer| quoted(lexer, b'\'', Token::Text, Token::OpenChar))]
    OpenChar,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token(",")]
    Comma,
    #[token("*")]
    Star,
    #[token("...")]
    Ellipsis,
    #[regex(".", priority = 0)]
    Other,
}

/// A line comment continues after a backslash at the end of the line.
fn line_comment(lexer: &mut Lexer<'_, Token>) -> Filter<()> {
    let rest = lexer.remainder();
    let end = rest.match_indices('\n').map(|(at, _)| at).find(|&at| {
        let line = rest[..at].strip_suffix('\r').unwrap_or(&rest[..at]);
        !line.ends_with('\\')
    });
    lexer.bump(end.unwrap_or(rest.len()));
    Filter::Skip
}

fn block_comment(lexer: &mut Lexer<'_, Token>) -> Filter<()> {
    let rest = lexer.remainder();
    match rest.find("*/") {
        Some(at) => {
            lexer.bump(at + 2);
            Filter::Skip
        }
        None => {
            lexer.bump(rest.len());
            Filter::Emit(())
        }
    }
}

fn quoted(lexer: &mut Lexer<'_, Token>, quote: u8, closed: Token, open: Token) -> Token {
    let mut taken = 0;
    loop {
        let (length, found) = quoted_length(&lexer.remainder()[taken..], quote);
        taken += length;
        // A backslash at the line's end joins the next line to this one.
        let line = &lexer.remainder()[..taken];
        let joined = line.strip_suffix('\r').unwrap_or(line).ends_with('\\')
            && taken < lexer.remainder().len();
        if found || !joined {
            lexer.bump(taken);
            return if found { closed } else { open };
        }
        taken += 1;
    }
}

/// The tokens of `text[range]`, with spans in `text`.
pub fn tokens(text: &str, range: Span) -> impl Iterator<Item = (Token, Span)> {
    Token::lexer(&text[range.start..range.end]).spanned().map(move |(token, at)| {
        (
            token.unwrap_or(Token::Other),
            Span { start: range.start + at.start, end: range.start + at.end },
        )
    })
}

/// Why no end was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclosed {
    /// The brace or parenthesis itself.
    Group,
    Comment(Span),
    Text(Span),
    Char(Span),
}

/// The offset of the token that closes the group which was opened just before `from`.
pub fn group_end(text: &str, from: usize, open: Token, close: Token) -> Result<usize, Unclosed> {
    let mut depth = 0usize;
    for (token, span) in tokens(text, Span { start: from, end: text.len() }) {
        match token {
            Token::OpenComment => {
                return Err(Unclosed::Comment(Span { start: span.start, end: span.start + 2 }));
            }
            Token::OpenText => return Err(Unclosed::Text(span)),
            Token::OpenChar => return Err(Unclosed::Char(span)),
            t if t == open => depth += 1,
            t if t == close && depth == 0 => return Ok(span.start),
            t if t == close => depth -= 1,
            _ => {}
        }
    }
    Err(Unclosed::Group)
}

/// A `klogger(` whose first argument is not one word, or that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCall(pub Span);

/// The `klogger()` calls in `text[range]`, in the order in which they end.
pub fn calls(text: &str, range: Span) -> Vec<Result<Call, BadCall>> {
    let mut finder = Finder::default();
    let mut before = (Token::Other, Span::default());
    for (token, span) in tokens(text, range) {
        let called = token == Token::OpenParen
            && before.0 == Token::Word
            && &text[before.1.start..before.1.end] == "klogger";
        finder.step(token, span, called.then_some(before.1.start));
        before = (token, span);
    }
    let unclosed = finder.groups.into_iter().filter_map(|g| g.call).map(|c| Err(BadCall(c.head)));
    let found = finder.found.into_iter().map(|call| {
        let event = text[call.first.start..call.first.end].to_string();
        if call.words == 1 && call.word {
            Ok(Call { event, arguments: call.commas, span: call.head })
        } else {
            Err(BadCall(call.head))
        }
    });
    found.chain(unclosed).collect()
}

#[derive(Default)]
struct Finder {
    groups: Vec<Group>,
    found: Vec<Open>,
}

/// A parenthesis, bracket or brace that has been opened.
struct Group {
    close: Token,
    call: Option<Open>,
}

/// A call whose end was not found yet.
struct Open {
    head: Span,
    commas: usize,
    /// The first argument: how many tokens it has, whether they are one word, and where it is.
    words: usize,
    word: bool,
    first: Span,
}

impl Finder {
    fn step(&mut self, token: Token, span: Span, call_from: Option<usize>) {
        if let Some(call) = self.groups.last_mut().and_then(|g| g.call.as_mut()) {
            if token == Token::Comma {
                call.commas += 1;
            } else if call.commas == 0 && token != Token::CloseParen {
                call.words += 1;
                call.word = token == Token::Word;
                call.first = span;
            }
        }
        let close = match token {
            Token::OpenParen => Token::CloseParen,
            Token::OpenBracket => Token::CloseBracket,
            Token::OpenBrace => Token::CloseBrace,
            Token::CloseParen | Token::CloseBracket | Token::CloseBrace => {
                return self.close(token, span);
            }
            _ => return,
        };
        let call = call_from.map(|start| Open {
            head: Span { start, end: span.end },
            commas: 0,
            words: 0,
            word: false,
            first: Span { start: span.end, end: span.end },
        });
        self.groups.push(Group { close, call });
    }

    /// Closes the innermost group if this is its end; otherwise the C compiler will report the
    /// error.
    fn close(&mut self, token: Token, span: Span) {
        if self.groups.last().is_some_and(|g| g.close == token)
            && let Some(mut call) = self.groups.pop().and_then(|g| g.call)
        {
            call.head.end = span.end;
            self.found.push(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of_body(text: &str) -> Result<usize, Unclosed> {
        group_end(text, 0, Token::OpenBrace, Token::CloseBrace)
    }

    #[test]
    fn braces_in_texts_and_comments_do_not_count() {
        for body in [
            "{}}",
            "\"}\"}",
            "'}'}",
            "'\\''}",
            "/* } */}",
            "// }\n}",
            "// \\\n}\n}",
            "\"a\\\n}\"}",
            "\"\\\"}\"}",
            "1'0}",
            "\\}",
        ] {
            assert_eq!(end_of_body(body), Ok(body.len() - 1), "{body}");
        }
    }

    #[test]
    fn what_is_not_closed_is_named() {
        assert_eq!(end_of_body("a {}"), Err(Unclosed::Group));
        assert_eq!(end_of_body("a /* }"), Err(Unclosed::Comment(Span { start: 2, end: 4 })));
        assert_eq!(end_of_body("a \"}\n}"), Err(Unclosed::Text(Span { start: 2, end: 4 })));
        assert_eq!(end_of_body("'}\n}"), Err(Unclosed::Char(Span { start: 0, end: 2 })));
    }

    fn found(text: &str) -> Vec<(String, usize)> {
        calls(text, Span { start: 0, end: text.len() })
            .into_iter()
            .map(|c| c.map_or(("?".into(), 0), |c| (c.event, c.arguments)))
            .collect()
    }

    #[test]
    fn arguments_are_counted_at_the_calls_own_level() {
        assert_eq!(found("klogger(A);"), [("A".into(), 0)]);
        assert_eq!(
            found("klogger ( A, f(x, y), a[b, c], (struct s){1, 2}, \",\", ',');"),
            [("A".into(), 5)]
        );
        assert_eq!(
            found("if (x) { klogger(A, 1); } else klogger(B, 1, 2);"),
            [("A".into(), 1), ("B".into(), 2)]
        );
    }

    #[test]
    fn only_tokens_make_a_call() {
        assert!(
            found(
                "// klogger(A)\n/* klogger(B) */ \"klogger(C)\" xklogger(D) klogger_scope(E) \
                   klogger"
            )
            .is_empty()
        );
    }

    #[test]
    fn an_event_is_one_word() {
        for bad in [
            "klogger()",
            "klogger(1)",
            "klogger(a b)",
            "klogger(f(x), 1)",
            "klogger(A, 1",
            "klogger(,A)",
        ] {
            assert_eq!(found(bad), [("?".into(), 0)], "{bad}");
        }
    }
}
