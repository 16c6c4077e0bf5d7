// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which names are valid. Names of a schema are used in C, in SQL and as file names, so they must
//! be valid in all three.

use crate::diagnostic::Diagnostic;
use crate::model::Span;
use crate::reserved::{
    BUILTIN_EVENTS, BUILTIN_TABLES, C_MACROS, C_RESERVED, HEADER_FIELDS, SQL_RESERVED,
};
use crate::vocabulary::{DECODES, STRING, TYPES};

/// Largest name in bytes: what C compilers are required to distinguish, and short enough for a
/// column of output.
pub const NAME_MAX: usize = 64;

/// What a name is for; the reserved names depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Schema,
    Event,
    Field,
    Table,
    Arch,
    Slice,
    Line,
    Parameter,
    State,
    Rule,
}

impl Kind {
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Schema => "schema",
            Kind::Event => "event",
            Kind::Field => "field",
            Kind::Table => "table",
            Kind::Arch => "architecture",
            Kind::Slice => "slice",
            Kind::Line => "line",
            Kind::Parameter => "parameter",
            Kind::State => "state",
            Kind::Rule => "rule",
        }
    }
}

/// Checks a name. `builtin`: it is klogger's own, and may be a reserved one.
pub fn check(kind: Kind, name: &str, span: Span, builtin: bool) -> Option<Diagnostic> {
    let shown = shorten(name);
    if !is_identifier(name) {
        return Some(
            Diagnostic::error(span, format!("`{shown}` is not a legal name"))
                .label("not legal in C, SQL and file names alike")
                .help("use letters, digits and underscores, and do not begin with a digit"),
        );
    }
    if name.len() > NAME_MAX {
        return Some(
            Diagnostic::error(span, format!("the name `{shown}` is too long"))
                .label(format!("{} bytes", name.len()))
                .help(format!("a name has at most {NAME_MAX} bytes")),
        );
    }
    let (why, remedy) = reserved(kind, name, builtin)?;
    let example = format!("{}_", name.to_lowercase());
    Some(
        Diagnostic::error(
            span,
            format!("`{name}` cannot be the name of {} {}", article(kind), kind.noun()),
        )
        .label(why)
        .help(remedy.unwrap_or_else(|| format!("choose another name, such as `{example}`"))),
    )
}

/// Why a name is reserved, and a remedy if the usual one does not apply.
fn reserved(kind: Kind, name: &str, builtin: bool) -> Option<(String, Option<String>)> {
    let lower = name.to_lowercase();
    let taken = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(name));
    if lower.starts_with("klogger_") && !builtin {
        return Some((
            "names that begin with `klogger_` are klogger's own".into(),
            Some("omit the prefix".into()),
        ));
    }
    match kind {
        Kind::Arch | Kind::Slice | Kind::Line | Kind::Rule => return None,
        Kind::Table => {
            return DECODES
                .iter()
                .any(|(word, _)| word.eq_ignore_ascii_case(name))
                .then(|| ("a decoding that is built in".to_string(), None));
        }
        Kind::Field if taken(&HEADER_FIELDS) => {
            return Some((
                format!("every event has a `{lower}` of its own"),
                Some("choose another name, such as `of_cpu` or `start_ns`".into()),
            ));
        }
        Kind::Event if taken(&BUILTIN_TABLES) => {
            return Some((format!("every log has a table `{lower}`"), None));
        }
        Kind::Event if taken(&BUILTIN_EVENTS) && !builtin => {
            return Some(("an event that every log has".into(), None));
        }
        Kind::Schema if lower == "klogger" && !builtin => {
            return Some(("the schema of the built-in events".into(), None));
        }
        Kind::Schema | Kind::Event | Kind::Field | Kind::Parameter | Kind::State => {}
    }
    if C_RESERVED.contains(&name) || C_RESERVED.contains(&lower.as_str()) {
        return Some(("a reserved word of C".into(), None));
    }
    if C_MACROS.contains(&name) {
        return Some(("a macro in C".into(), None));
    }
    // A parameter's name is a value in SQL, and a state is not there.
    (!matches!(kind, Kind::Parameter | Kind::State) && taken(&SQL_RESERVED))
        .then(|| ("a reserved word of SQL".into(), None))
}

fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Event | Kind::Arch => "an",
        Kind::Schema
        | Kind::Field
        | Kind::Table
        | Kind::Slice
        | Kind::Line
        | Kind::Parameter
        | Kind::State
        | Kind::Rule => "a",
    }
}

/// Whether a schema can use this name.
pub fn is_free(kind: Kind, name: &str) -> bool {
    check(kind, name, Span::default(), false).is_none()
}

/// Whether a parameter of a probe can have this name.
pub fn is_parameter(name: &str) -> bool {
    !C_RESERVED.contains(&name) && !C_MACROS.contains(&name) && is_identifier(name)
}

pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub fn is_type(word: &str) -> bool {
    word == STRING || TYPES.iter().any(|(name, _)| *name == word)
}

/// Shortens an untrusted text for a message.
pub fn shorten(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        text.into()
    } else {
        text.chars().take(MOST - 3).chain("...".chars()).collect()
    }
}

/// Makes a schema's name from its file name, if it declares none: `scheduler.klogger` and
/// `.klogger.conf.scheduler` both give `scheduler`. Characters that are not valid in a name become
/// `_`.
pub fn from_file(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = match base.strip_prefix(".klogger.conf") {
        Some(rest) => rest.trim_start_matches(['.', '-', '_']),
        None => base.strip_suffix(".klogger").unwrap_or(base),
    };
    let name: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(NAME_MAX)
        .collect();
    match name.chars().next() {
        None => "conf".into(),
        Some(first) if first.is_ascii_digit() => {
            format!("_{name}").chars().take(NAME_MAX).collect()
        }
        Some(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files() {
        for (file, name) in [
            ("scheduler.klogger", "scheduler"),
            ("schemata/io/block-io.klogger", "block_io"),
            ("/src/.klogger.conf.sched", "sched"),
            (".klogger.conf-net", "net"),
            (".klogger.conf", "conf"),
            ("9p.klogger", "_9p"),
            ("über.klogger", "_ber"),
            ("", "conf"),
        ] {
            assert_eq!(from_file(file), name, "{file}");
        }
    }

    #[test]
    fn case_counts_for_reserved_words_of_c_only() {
        let wrong = |kind, name| check(kind, name, Span::default(), false).is_some();
        assert!(
            wrong(Kind::Field, "int") && wrong(Kind::Event, "Select") && wrong(Kind::Field, "TIME")
        );
        assert!(
            wrong(Kind::Event, "mark")
                && wrong(Kind::Event, "Process")
                && wrong(Kind::Schema, "klogger")
        );
        assert!(
            !wrong(Kind::Field, "process")
                && !wrong(Kind::Event, "TIMER")
                && !wrong(Kind::Field, "klogger")
        );
        assert!(check(Kind::Event, "MARK", Span::default(), true).is_none());
    }
}
