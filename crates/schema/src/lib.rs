// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The klogger schema language: from a text to a checked model.
//!
//! **Invariant:** this crate knows neither C nor files. The body of a probe is an opaque text with
//! a position. Only its C tokens matter: they tell where it ends and which `klogger()` calls it
//! contains.
//!
//! A schema is untrusted, so nothing in it may make this crate panic, loop, or use more memory than
//! the text justifies.

pub mod attach_points;
pub mod c;
pub mod contexts;
pub mod counted;
pub mod diagnostic;
pub mod include;
pub mod layout;
pub mod lines;
pub mod model;
pub mod names;
pub mod nearest;
pub mod parameter;
pub mod polled_files;
pub mod reserved;
pub mod system_calls;
pub mod vocabulary;
pub mod wildcard;

mod check;
mod lexer;
mod parse;
mod roles;

pub use diagnostic::{Diagnostic, Severity};
pub use names::from_file as name_from_file;

use include::Includes;
use model::{Schema, Span};
use names::Kind;

/// Bytes of a schema at most. The largest known is a hundredth of this.
pub const TEXT_MAX: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The schema's name if the text declares none. Without it, the name is made from the file's
    /// name ([`name_from_file`]).
    pub default_name: Option<String>,
    /// It is klogger's own schema, and may use the names that are reserved for it.
    pub builtin: bool,
    /// Where parts of the text are from, if it was made by [`include::whole`].
    pub includes: Includes,
    /// Its rules are about events of a log, which it need not declare.
    pub rules_apart: bool,
}

/// A schema without errors.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub schema: Schema,
    pub warnings: Vec<Diagnostic>,
}

/// Parses and checks a schema. `file` is its name in messages and in `#line`; no file is opened.
///
/// # Errors
///
/// All errors, at most some 50, in the order of the text, with warnings among them.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Parsed, Vec<Diagnostic>> {
    if let Some(diagnostic) = unreadable(text) {
        return Err(vec![diagnostic]);
    }
    let (mut draft, mut found) = parse::parse(text, options);
    found.extend(check::check(&mut draft, options));
    let name = match &draft.schema {
        Some(name) => name.text.clone(),
        None => default_name(file, options, &mut found),
    };
    found.sort_by_key(|d| d.span.start);
    if found.iter().any(|d| d.severity == Severity::Error) {
        found.truncate(parse::ERRORS_MAX);
        return Err(found);
    }
    let schema = Schema {
        name,
        doc: draft.doc,
        file: file.into(),
        text: text.into(),
        includes: options.includes.clone(),
        decodings: draft.tables.into_iter().map(|(table, _)| table).collect(),
        kernel_enums: draft.kernel_enums.into_iter().map(|(name, _)| name).collect(),
        events: draft.events.into_iter().map(|e| e.event).collect(),
        probes: draft.probes,
        code: draft.code,
        parameters: draft.parameters,
        modules: draft.modules,
        states: draft.states.into_iter().map(|(state, _)| state).collect(),
        rules: draft.rules,
        arch: draft.arch.into_iter().map(|(arch, _)| arch).collect(),
    };
    Ok(Parsed { schema, warnings: found })
}

fn default_name(file: &str, options: &Options, found: &mut Vec<Diagnostic>) -> String {
    let name = options.default_name.clone().unwrap_or_else(|| name_from_file(file));
    if let Some(wrong) = names::check(Kind::Schema, &name, Span::default(), options.builtin) {
        found.push(
            Diagnostic { label: String::new(), ..wrong }
                .help("begin the file with `schema NAME`; otherwise its own name is taken"),
        );
    }
    name
}

/// Why a text is not parsed at all: its size, or characters that control a terminal.
fn unreadable(text: &str) -> Option<Diagnostic> {
    if text.len() > TEXT_MAX {
        let message = format!("this schema has {} bytes", text.len());
        let help = format!("a schema has at most {TEXT_MAX} bytes: divide it into several");
        return Some(Diagnostic::error(Span::default(), message).help(help));
    }
    let (at, c) = text.char_indices().find(|&(_, c)| unprintable(c))?;
    let message = format!("character U+{:04X} cannot be in a schema", u32::from(c));
    let help =
        "remove it: only tabs and ends of lines may be there beside characters that can be seen";
    Some(
        Diagnostic::error(Span { start: at, end: at + c.len_utf8() }, message)
            .label("here")
            .help(help),
    )
}

/// Control characters, and those that change the direction of text, so that it looks different from
/// what it is.
fn unprintable(c: char) -> bool {
    let turns =
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    turns || (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c'))
}
