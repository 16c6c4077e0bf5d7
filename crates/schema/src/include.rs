// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `include "NAME"`: takes the place of another text, before the whole is parsed.
//!
//! What follows sees one text, as if it had been written so: a log, a program and a module have all
//! of a schema in it. Only messages need to know where a part is from: [`Includes::located`].

use crate::TEXT_MAX;
use crate::diagnostic::Diagnostic;
use crate::lexer::{Cursor, Token};
use crate::model::Span;
use crate::names::{NAME_MAX, is_identifier, shorten};

/// The ending of a text that others include.
pub const ENDING: &str = "shared";
/// Texts that include each other may be this deep, and this many.
const DEPTH_MAX: usize = 8;
const TEXTS_MAX: usize = 64;

/// Finds a text by its name: its file, for messages, and its contents. The error is what to say
/// after "cannot include `NAME`: ", and the remedy.
pub type Find<'a> = &'a dyn Fn(&str) -> Result<(String, String), (String, String)>;

/// A file of a schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    name: String,
    text: String,
}

/// From here on, up to the next part, the whole text is that of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: usize,
    file: usize,
    /// The place in that file.
    at: usize,
}

/// Where the parts of a schema's text are from; empty if all of it is from the schema's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Includes {
    /// The schema's own file is the first.
    files: Vec<File>,
    parts: Vec<Part>,
}

/// A schema's text with those that it includes.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    pub text: String,
    pub includes: Includes,
    /// What is wrong with the includes.
    pub found: Vec<Diagnostic>,
}

impl Includes {
    /// The files that were included.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().skip(1).map(|file| file.name.as_str())
    }

    /// The file, its text, and the position there.
    fn place(&self, at: usize) -> Option<(usize, usize)> {
        let n = self.parts.partition_point(|part| part.start <= at).checked_sub(1)?;
        let part = self.parts[n];
        Some((part.file, (at - part.start + part.at).min(self.files[part.file].text.len())))
    }

    /// Whether a position is in a file that was included.
    pub fn is_included(&self, at: usize) -> bool {
        self.place(at).is_some_and(|(file, _)| file != 0)
    }

    /// The file that a position is in, and its line there, from 1 on. `own`: the schema's file, and
    /// the whole text.
    pub fn line<'a>(&'a self, own: (&'a str, &'a str), at: usize) -> (&'a str, usize) {
        let (name, text, at) = match self.place(at) {
            Some((file, at)) => (&*self.files[file].name, &*self.files[file].text, at),
            None => (own.0, own.1, at),
        };
        (name, text.get(..at).map_or(1, |before| before.matches('\n').count() + 1))
    }

    /// A diagnostic at its place in its own file: the file's name and text, and the diagnostic with
    /// positions there. `own`: the schema's file, and the whole text.
    pub fn located<'a>(
        &'a self,
        own: (&'a str, &'a str),
        mut diagnostic: Diagnostic,
    ) -> (&'a str, &'a str, Diagnostic) {
        let Some((file, at)) = self.place(diagnostic.span.start) else {
            return (own.0, own.1, diagnostic);
        };
        let text = &self.files[file].text;
        let to = |at: usize, span: Span| {
            let end = (at + span.end.saturating_sub(span.start)).min(text.len());
            Span { start: at, end: floor(text, end).max(at) }
        };
        diagnostic.span = to(at, diagnostic.span);
        if let Some((span, label)) = diagnostic.related.take() {
            match self.place(span.start) {
                Some((other, at)) if other == file => {
                    diagnostic.related = Some((to(at, span), label));
                }
                Some(_) => {
                    let (name, line) = self.line(own, span.start);
                    let more = format!("{label}: {name}:{line}");
                    diagnostic.help = Some(match diagnostic.help {
                        Some(help) => format!("{help} ({more})"),
                        None => more,
                    });
                }
                None => {}
            }
        }
        (&self.files[file].name, text, diagnostic)
    }
}

/// The next place at or before `at` where a character begins.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Replaces the includes of a schema's text. Without one, the text is as it was.
pub fn whole(file: &str, text: &str, find: Find) -> Whole {
    let mut builder = Builder { whole: Whole::default(), find, open: Vec::new() };
    builder.add(file, "", text);
    let mut whole = builder.whole;
    if whole.includes.files.len() == 1 && whole.found.is_empty() {
        whole.includes = Includes::default();
    }
    whole
}

struct Builder<'a> {
    whole: Whole,
    find: Find<'a>,
    /// The names of texts that are being read, the innermost last.
    open: Vec<String>,
}

impl Builder<'_> {
    fn add(&mut self, file: &str, name: &str, text: &str) {
        let number = self.whole.includes.files.len();
        self.whole.includes.files.push(File { name: file.into(), text: text.into() });
        self.open.push(name.into());
        let mut from = 0;
        for directive in directives(text) {
            self.copy(number, text, from..directive.whole.start);
            from = directive.whole.end;
            // In its place, so that a message about it has a place.
            let at = self.whole.text.len();
            let Err(wrong) = self.include(text, &directive) else { continue };
            self.copy(number, text, directive.whole.clone());
            let shown = directive.name.start - directive.whole.start;
            let span = Span { start: at + shown, end: at + shown + directive.name.len() };
            self.whole.found.push(Diagnostic { span, ..*wrong });
            self.blank(at);
        }
        self.copy(number, text, from..text.len());
        self.open.pop();
    }

    fn copy(&mut self, file: usize, text: &str, range: std::ops::Range<usize>) {
        if !range.is_empty() || self.whole.text.is_empty() {
            let start = self.whole.text.len();
            self.whole.includes.parts.push(Part { start, file, at: range.start });
            self.whole.text += &text[range];
        }
    }

    /// What was reported is not reported again.
    fn blank(&mut self, from: usize) {
        let rest = self.whole.text.split_off(from);
        self.whole.text.extend(rest.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
    }

    /// Adds the text that a directive names; one that is there already is not added again.
    fn include(&mut self, text: &str, directive: &Directive) -> Result<(), Box<Diagnostic>> {
        let name = &text[directive.name.clone()];
        let name = name.trim_matches('"');
        let cannot = |why: &str, help: &str| {
            let message = format!("cannot include `{}`: {why}", shorten(name));
            let wrong = Diagnostic::error(Span::default(), message);
            Err(Box::new(wrong.label("included here").help(help)))
        };
        if !is_identifier(name) || name.len() > NAME_MAX {
            return cannot(
                "this is not a name",
                "write letters, digits and underscores, without folder and ending: `include \
                 \"files\"`",
            );
        }
        if self.open.iter().any(|open| open == name) {
            return cannot("it includes itself", "remove one of the includes");
        }
        let (file, text) = match (self.find)(name) {
            Ok(found) => found,
            Err((why, help)) => return cannot(&why, &help),
        };
        let known = self.whole.includes.files.iter().skip(1).any(|known| known.name == file);
        if known {
            return Ok(());
        }
        let full = self.open.len() > DEPTH_MAX
            || self.whole.includes.files.len() > TEXTS_MAX
            || self.whole.text.len() + text.len() > TEXT_MAX;
        if full {
            return cannot("all together is too much", "include fewer texts");
        }
        self.add(&file, name, &text);
        Ok(())
    }
}

/// `include "NAME"`
struct Directive {
    whole: std::ops::Range<usize>,
    /// With the quotes.
    name: std::ops::Range<usize>,
}

/// The directives outside of braces.
fn directives(text: &str) -> Vec<Directive> {
    let (mut found, mut depth, mut cursor) = (Vec::new(), 0usize, Cursor::new(text));
    // Most texts have none, and the C of others need not be read.
    if !text.contains("include") {
        return found;
    }
    loop {
        let next = cursor.next();
        match next.token {
            Token::End | Token::OpenComment => return found,
            Token::OpenBrace => depth += 1,
            Token::CloseBrace => depth = depth.saturating_sub(1),
            Token::Word if depth == 0 && cursor.text(next.span) == "include" => {
                let name = cursor.peek();
                if name.token == Token::Text {
                    cursor.at = name.span.end;
                    found.push(Directive {
                        whole: next.span.start..name.span.end,
                        name: name.span.start..name.span.end,
                    });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [(&str, &str); 5] = [
        ("a", "enum a { 1 \"one\" }\n"),
        ("b", "include \"a\"\n// ä\nenum b { 2 \"two\" }"),
        ("cycle", "include \"other\""),
        ("other", "\n include \"cycle\"\n"),
        ("wrong", "enum wrong {\n 1 }\n"),
    ];

    fn find(name: &str) -> Result<(String, String), (String, String)> {
        let found = TEXTS.iter().find(|(known, _)| *known == name);
        found
            .map(|(name, text)| (format!("{name}.shared"), text.to_string()))
            .ok_or_else(|| ("there is no such text".into(), "look for it".into()))
    }

    /// FILE:LINE of each diagnostic, and its message.
    fn said(text: &str) -> Vec<String> {
        let whole = whole("s.klogger", text, &find);
        let found = match whole.found.is_empty() {
            false => whole.found.clone(),
            true => {
                let options = crate::Options {
                    includes: whole.includes.clone(),
                    ..crate::Options::default()
                };
                crate::parse("s.klogger", &whole.text, &options).err().unwrap_or_default()
            }
        };
        let shown = |d: Diagnostic| {
            let (file, text, d) = whole.includes.located(("s.klogger", &whole.text), d);
            let line = text[..d.span.start].matches('\n').count() + 1;
            format!("{file}:{line}: {}: {}", &text[d.span.start..d.span.end], d.message)
        };
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn an_included_text_is_there_once() {
        let text = "schema s\ninclude \"b\"\ninclude \"a\"\nevent E { int x as a  int y as b }\n";
        let whole = whole("s.klogger", text, &find);
        assert_eq!(
            whole.text,
            "schema s\nenum a { 1 \"one\" }\n\n// ä\nenum b { 2 \"two\" }\n\nevent E { int x as a  \
             int y as b }\n"
        );
        assert_eq!(whole.includes.files().collect::<Vec<_>>(), ["b.shared", "a.shared"]);
        assert_eq!(said(text), [""; 0]);
    }

    #[test]
    fn without_includes_the_text_is_as_it_was() {
        let text = "schema s\ncode { /* include \"a\" */ }\nevent include { int x }";
        let whole = whole("s.klogger", text, &find);
        assert_eq!((whole.text.as_str(), &whole.includes), (text, &Includes::default()));
        assert!(whole.found.is_empty());
    }

    #[test]
    fn errors_are_in_their_own_file() {
        assert_eq!(
            said("schema s\ninclude \"wrong\"\nevent E { int x }\n"),
            ["wrong.shared:2: }: expected the value's text, found `}`"]
        );
        assert_eq!(
            said("schema s\ninclude \"a\"\n\nevent E { int x as b }\n"),
            ["s.klogger:4: b: unknown decoding `b`"]
        );
        assert_eq!(
            said("include \"cycle\"\n"),
            ["other.shared:2: \"cycle\": cannot include `cycle`: it includes itself"]
        );
        assert_eq!(
            said("schema s\ninclude \"../a\" include \"none\"\n"),
            [
                "s.klogger:2: \"../a\": cannot include `../a`: this is not a name",
                "s.klogger:2: \"none\": cannot include `none`: there is no such text",
            ]
        );
    }
}
