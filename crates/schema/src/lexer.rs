// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Schema text to tokens. The C of probes has its own tokens: see [`crate::c`].

use crate::model::Span;
use logos::{Lexer, Logos, Skip};

#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\x0c\u{feff}]+")]
pub enum Token {
    #[token("//", line_comment)]
    #[token("#", line_comment)]
    #[token("/*", block_comment)]
    OpenComment,
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
    Word,
    /// A word that begins with a digit; whether it is a number is checked later.
    #[regex(r"[0-9][A-Za-z0-9_]*")]
    Number,
    #[token("\"", |lexer| quoted(lexer, b'"', Token::Text, Token::OpenText))]
    Text,
    /// Not closed on its line.
    OpenText,
    #[token("'", |lexer| quoted(lexer, b'\'', Token::Char, Token::OpenChar))]
    Char,
    /// Not closed on its line.
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
    #[token(";")]
    Semicolon,
    #[token(",")]
    Comma,
    #[token("=")]
    Equals,
    #[token("-")]
    Minus,
    #[regex(".", priority = 0)]
    Other,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Lexeme {
    pub token: Token,
    pub span: Span,
}

fn line_comment(lexer: &mut Lexer<'_, Token>) -> Skip {
    let rest = lexer.remainder();
    lexer.bump(rest.find('\n').unwrap_or(rest.len()));
    Skip
}

/// Skips a comment, or takes everything that follows if the comment is never closed.
fn block_comment(lexer: &mut Lexer<'_, Token>) -> logos::Filter<()> {
    let rest = lexer.remainder();
    match rest.find("*/") {
        Some(at) => {
            lexer.bump(at + 2);
            logos::Filter::Skip
        }
        None => {
            lexer.bump(rest.len());
            logos::Filter::Emit(())
        }
    }
}

fn quoted(lexer: &mut Lexer<'_, Token>, quote: u8, closed: Token, open: Token) -> Token {
    let (length, found) = quoted_length(lexer.remainder(), quote);
    lexer.bump(length);
    if found { closed } else { open }
}

/// Bytes up to and including the closing quote, and whether there is one on this line.
pub fn quoted_length(rest: &str, quote: u8) -> (usize, bool) {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        match b {
            b'\n' => return (at, false),
            b'\\' if bytes.get(at + 1).is_some_and(|&next| next != b'\n' && next.is_ascii()) => {
                at += 2
            }
            _ if b == quote => return (at + 1, true),
            _ => at += 1,
        }
    }
    (at, false)
}

/// A position in a text, from which tokens are taken one at a time. With only the position as
/// state, the parser can switch to another language, C, and back.
#[derive(Clone)]
pub struct Cursor<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    pub fn peek(&self) -> Lexeme {
        let mut lexer = Token::lexer(&self.text[self.at..]);
        let token = lexer.next();
        let range = lexer.span();
        let span = Span { start: self.at + range.start, end: self.at + range.end };
        match token {
            Some(Ok(token)) => Lexeme { token, span },
            Some(Err(())) => Lexeme { token: Token::Other, span },
            None => Lexeme {
                token: Token::End,
                span: Span { start: self.text.len(), end: self.text.len() },
            },
        }
    }

    pub fn next(&mut self) -> Lexeme {
        let lexeme = self.peek();
        self.at = lexeme.span.end;
        lexeme
    }

    pub fn text(&self, span: Span) -> &'a str {
        &self.text[span.start..span.end]
    }

    /// Takes the next token if it is of this kind.
    pub fn eat(&mut self, token: Token) -> Option<Span> {
        let next = self.peek();
        (next.token == token).then(|| {
            self.at = next.span.end;
            next.span
        })
    }

    /// The next token's text if it is a word.
    pub fn peek_word(&self) -> Option<&'a str> {
        let next = self.peek();
        (next.token == Token::Word).then(|| self.text(next.span))
    }

    /// Takes the next token if it is this word.
    pub fn eat_word(&mut self, word: &str) -> Option<Span> {
        if self.peek_word() == Some(word) { self.eat(Token::Word) } else { None }
    }
}

/// Where each line of a text begins.
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn new(text: &str) -> Lines {
        Lines(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// 1-based line and column (in bytes) of an offset.
    pub fn position(&self, offset: usize) -> (u32, u32) {
        let line = self.0.partition_point(|&start| start <= offset);
        (line as u32, (offset - self.0[line - 1]) as u32 + 1)
    }
}

/// The value of `12`, `0x1f`, `017` or `0b11`.
pub fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let parsed = if let Some(hex) = lower.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if lower.len() > 1 && lower.starts_with('0') {
        u64::from_str_radix(&lower[1..], 8)
    } else {
        lower.parse()
    };
    parsed.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        let mut cursor = Cursor::new(text);
        std::iter::from_fn(|| Some(cursor.next().token).filter(|&t| t != Token::End)).collect()
    }

    #[test]
    fn comments_are_skipped() {
        assert_eq!(tokens("a // b\n# c\n/* d\n */ e"), [Token::Word, Token::Word]);
        assert_eq!(tokens("a /* b"), [Token::Word, Token::OpenComment]);
        assert_eq!(tokens("a /*/ b"), [Token::Word, Token::OpenComment]);
    }

    #[test]
    fn texts_end_on_their_line() {
        assert_eq!(tokens(r#""a\"b" c"#), [Token::Text, Token::Word]);
        assert_eq!(tokens("\"a\nb"), [Token::OpenText, Token::Word]);
        assert_eq!(tokens("\"a\\\nb"), [Token::OpenText, Token::Word]);
        assert_eq!(tokens("'\\''"), [Token::Char]);
    }

    #[test]
    fn other_scripts_are_one_token_a_character() {
        assert_eq!(tokens("é\u{1F600}"), [Token::Other, Token::Other]);
    }

    #[test]
    fn numbers() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("017"), Some(15));
        assert_eq!(number("0xFFFFFFFFFFFFFFFF"), Some(u64::MAX));
        assert_eq!(number("0b101"), Some(5));
        for bad in ["08", "0x", "1a", "18446744073709551616", "1_000", "0x_1"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn positions() {
        let lines = Lines::new("ab\n\ncd");
        assert_eq!(
            [0, 2, 3, 4, 6].map(|at| lines.position(at)),
            [(1, 1), (1, 3), (2, 1), (3, 1), (3, 3)]
        );
    }
}
