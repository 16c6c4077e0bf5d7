// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parser: from text to [`Draft`], which has the spans that the checks need. Each declaration has
//! its own file.
//!
//! The parser never stops at an error. It reports the error, continues at the next field or
//! declaration, and leaves out of the draft what it could not parse.

mod arch;
mod context;
mod decoding;
mod event;
mod field;
mod line;
mod module;
mod parameter;
mod poll;
mod probe;
mod rule;
mod slice;
mod state;
mod table;

pub use state::ENTRIES_MAX;

use crate::Options;
use crate::diagnostic::{Diagnostic, Severity};
use crate::lexer::{Cursor, Lexeme, Lines, Token};
use crate::model::{
    Arch, CBlock, Context, Decoding, Event, Line, Module, Parameter, Probe, Rule, Slice, Span,
    State,
};
use crate::names::{self, Kind, shorten};
use crate::nearest::did_you_mean;
use crate::vocabulary::DECLARATIONS;

/// The parser stops after this many errors; more would not help the user.
pub const ERRORS_MAX: usize = 50;

/// An error that was reported; the caller continues where it can.
pub struct Reported;
pub type Parse<T> = Result<T, Reported>;

/// A name and its position.
#[derive(Clone)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

#[derive(Default)]
pub struct Draft {
    pub schema: Option<Name>,
    pub doc: Option<String>,
    pub events: Vec<EventDraft>,
    pub tables: Vec<(Decoding, Span)>,
    /// Those tables that are enums of the kernel, and whether their values are bits.
    pub kernel_enums: Vec<(String, bool)>,
    pub probes: Vec<Probe>,
    pub code: Vec<CBlock>,
    pub arch: Vec<(Arch, Span)>,
    pub slices: Vec<SliceDraft>,
    pub lines: Vec<LineDraft>,
    pub parameters: Vec<Parameter>,
    pub modules: Vec<Module>,
    /// Each with the position of its number of entries.
    pub states: Vec<(State, Span)>,
    pub rules: Vec<Rule>,
    /// For all events.
    pub contexts: Vec<(Context, Span)>,
    /// Something was left out, so that missing declarations cannot be reported.
    pub incomplete: bool,
}

pub struct EventDraft {
    pub event: Event,
    pub scope_spans: Vec<Span>,
    /// For each of its own fields: the position of the decoding.
    pub decode_spans: Vec<Option<Span>>,
    pub contexts: Vec<(Context, Span)>,
    /// The position of the word after `role`.
    pub role_span: Span,
    /// A field was left out.
    pub incomplete: bool,
}

pub struct SliceDraft {
    pub slice: Slice,
    pub span: Span,
    pub from: Name,
    pub to: Name,
    /// One for each field of `by`.
    pub by_spans: Vec<Span>,
}

pub struct LineDraft {
    pub line: Line,
    pub event: Name,
    pub with: Vec<Name>,
    pub by: Vec<Name>,
    pub text_span: Span,
}

pub struct Parser<'a> {
    pub cursor: Cursor<'a>,
    pub draft: Draft,
    pub lines: Lines,
    pub builtin: bool,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
}

/// Reads the whole text.
pub fn parse(text: &str, options: &Options) -> (Draft, Vec<Diagnostic>) {
    let mut parser = Parser {
        cursor: Cursor::new(text),
        draft: Draft::default(),
        lines: Lines::new(text),
        builtin: options.builtin,
        diagnostics: Vec::new(),
        errors: 0,
    };
    let mut first = true;
    loop {
        let next = parser.cursor.peek();
        match next.token {
            Token::End => break,
            _ if parser.errors >= ERRORS_MAX => break,
            Token::Semicolon => parser.cursor.at = next.span.end,
            _ => {
                if parser.declaration(first).is_err() {
                    parser.draft.incomplete = true;
                    parser.skip_to_declaration(next.span.start);
                }
                first = false;
            }
        }
    }
    (parser.draft, parser.diagnostics)
}

impl<'a> Parser<'a> {
    fn declaration(&mut self, first: bool) -> Parse<()> {
        let lexeme = self.cursor.next();
        match self.word_of(lexeme) {
            Some("schema") => self.schema(lexeme.span, first),
            Some("event") => self.event(),
            Some("poll") => self.poll(),
            Some("probe") => self.probe(lexeme.span),
            Some("enum") => self.table(false),
            Some("flags") => self.table(true),
            Some("arch") => self.arch(),
            Some("code") => self.code(),
            Some("slice") => self.slice(),
            Some("line") => self.line(),
            Some("parameter") => self.parameter(),
            Some("module") => self.module(),
            Some("state") => self.state(),
            Some("rule") => self.rule(),
            Some("include") => Err(self.cannot_include(lexeme.span)),
            Some("context") => {
                let found = self.contexts(false)?;
                self.draft.contexts.extend(found);
                Ok(())
            }
            Some(word) => {
                let help =
                    did_you_mean(word, DECLARATIONS).unwrap_or_else(|| declarations_help().into());
                let what = format!("`{}` does not begin a declaration", shorten(word));
                Err(self.report(
                    Diagnostic::error(lexeme.span, what).label("not known here").help(help),
                ))
            }
            None => Err(self.unexpected(lexeme, "a declaration", declarations_help())),
        }
    }

    /// `schema NAME "doc"`
    fn schema(&mut self, keyword: Span, first: bool) -> Parse<()> {
        let name = self.name(Kind::Schema)?;
        let doc = self.doc()?;
        if let Some(other) = &self.draft.schema {
            let other = other.span;
            self.report(
                Diagnostic::error(name.span, "the schema has a name already")
                    .label("named again")
                    .related(other, "first named here")
                    .help("one file is one schema: remove one of the two lines, or make two files"),
            );
            return Ok(());
        }
        if !first {
            self.report(
                Diagnostic::error(
                    Span { start: keyword.start, end: name.span.end },
                    "`schema` comes first",
                )
                .label("after other declarations")
                .help("move this line above all other declarations"),
            );
        }
        self.draft.schema = Some(name);
        self.draft.doc = doc;
        Ok(())
    }

    // What every declaration needs.

    /// A name, which is also checked.
    pub fn name(&mut self, kind: Kind) -> Parse<Name> {
        let lexeme = self.cursor.peek();
        let legible =
            matches!(lexeme.token, Token::Word | Token::Number | Token::Other | Token::Minus);
        if !legible {
            let what = format!("the {}'s name", kind.noun());
            let next = self.cursor.next();
            return Err(self.unexpected(next, &what, "a name has letters, digits and underscores"));
        }
        // Take all that was meant as the name, so that `my-event` gives one error and not two.
        let rest = &self.cursor.text[lexeme.span.start..];
        let ends = |c: char| {
            c.is_whitespace() || "{}()[];,=\"'#".contains(c) || (kind == Kind::Rule && c == ':')
        };
        let end = lexeme.span.start
            + rest.find(ends).unwrap_or(rest.len()).max(lexeme.span.end - lexeme.span.start);
        let span = Span { start: lexeme.span.start, end };
        self.cursor.at = end;
        let text = self.cursor.text(span).to_string();
        if let Some(wrong) = names::check(kind, &text, span, self.builtin) {
            self.report(wrong);
        }
        Ok(Name { text, span })
    }

    /// A text, if one follows.
    pub fn doc(&mut self) -> Parse<Option<String>> {
        let lexeme = self.cursor.peek();
        match lexeme.token {
            Token::Text => {
                self.cursor.at = lexeme.span.end;
                Ok(Some(self.unquote(lexeme.span)))
            }
            Token::OpenText => {
                self.cursor.at = lexeme.span.end;
                Err(self.unexpected(lexeme, "a text", ""))
            }
            _ => Ok(None),
        }
    }

    /// The text between quotes.
    pub fn unquote(&mut self, span: Span) -> String {
        let inner = self.cursor.text(Span { start: span.start + 1, end: span.end - 1 });
        let mut text = String::with_capacity(inner.len());
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            match (c, chars.as_str().chars().next()) {
                ('\\', Some(escaped @ ('"' | '\\'))) => {
                    text.push(escaped);
                    chars.next();
                }
                ('\\', _) => {
                    let start = span.start + 1 + at;
                    self.report(
                        Diagnostic::error(
                            Span { start, end: start + 1 },
                            "unknown escape in a text",
                        )
                        .label("means nothing here")
                        .help(
                            "write `\\\"` for a quote and `\\\\` for a backslash; there are \
                                   no others",
                        ),
                    );
                }
                _ => text.push(c),
            }
        }
        text
    }

    /// Takes an opening brace.
    pub fn open_brace(&mut self, of: &str) -> Parse<Span> {
        let next = self.cursor.next();
        match next.token {
            Token::OpenBrace => Ok(next.span),
            _ => Err(self.unexpected(
                next,
                "`{`",
                &format!("the body of {of} must be between `{{` and `}}`"),
            )),
        }
    }

    /// Reports an unexpected token, or why there is none.
    pub fn unexpected(&mut self, found: Lexeme, expected: &str, help: &str) -> Reported {
        let start = Span { start: found.span.start, end: found.span.start + 1 };
        let diagnostic = match found.token {
            Token::OpenComment => {
                let start = Span { end: start.start + 2, ..start };
                Diagnostic::error(start, "this comment is never closed")
                    .label("opened here")
                    .help("close it with `*/`")
            }
            Token::OpenText => Diagnostic::error(start, "this text is never closed")
                .label("opened here")
                .help("close it with `\"` on the same line"),
            Token::OpenChar => Diagnostic::error(start, "this character is never closed")
                .label("opened here")
                .help("close it with `'`: `'a'`"),
            Token::End => {
                Diagnostic::error(found.span, format!("the file ends where {expected} should be"))
                    .label("end of the file")
            }
            _ => {
                let text = shorten(self.cursor.text(found.span));
                Diagnostic::error(found.span, format!("expected {expected}, found `{text}`"))
                    .label(format!("not {expected}"))
            }
        };
        let diagnostic = if diagnostic.help.is_none() && !help.is_empty() {
            diagnostic.help(help)
        } else {
            diagnostic
        };
        self.report(diagnostic)
    }

    pub fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        if diagnostic.severity == Severity::Error {
            self.errors += 1;
        }
        if self.errors <= ERRORS_MAX {
            self.diagnostics.push(diagnostic);
        }
        Reported
    }

    pub fn full(&self) -> bool {
        self.errors >= ERRORS_MAX
    }

    pub fn word_of(&self, lexeme: Lexeme) -> Option<&'a str> {
        (lexeme.token == Token::Word).then(|| self.cursor.text(lexeme.span))
    }

    /// Whether a declaration begins here, which cannot be inside another.
    pub fn at_declaration(&self) -> bool {
        let mut ahead = self.cursor.clone();
        let first = ahead.next();
        match self.word_of(first) {
            Some("code") => ahead.peek().token == Token::OpenBrace,
            Some("context") | None => false,
            Some(word) => DECLARATIONS.contains(&word) && ahead.peek().token == Token::Word,
        }
    }

    /// Skips to the next line that begins with the first word of a declaration; the one that failed
    /// began at `from`.
    fn skip_to_declaration(&mut self, from: usize) {
        let text = self.cursor.text;
        let line = text[..self.cursor.at].rfind('\n').map_or(0, |at| at + 1);
        let mut at = if line > from { line } else { next_line(text, self.cursor.at) };
        while at < text.len() {
            let word_end = text[at..]
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(text.len() - at);
            if DECLARATIONS.contains(&&text[at..at + word_end]) {
                break;
            }
            at = next_line(text, at);
        }
        self.cursor.at = at;
    }
}

fn next_line(text: &str, from: usize) -> usize {
    text.as_bytes()[from..].iter().position(|&b| b == b'\n').map_or(text.len(), |at| from + at + 1)
}

fn declarations_help() -> &'static str {
    "a declaration begins with `schema`, `event`, `probe`, `poll`, `enum`, `flags`, `context`, \
     `slice`, `line`, `rule`, `parameter`, `state`, `include`, `module`, `code` or `arch`"
}
