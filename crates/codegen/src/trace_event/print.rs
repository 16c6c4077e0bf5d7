// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the `print fmt` of a trace event says about its fields: how each is shown, and the texts of
//! its values. It is C, of which only what is plain is understood.

use super::constant;

/// What is known of the fields.
#[derive(Clone, Debug, Default)]
pub struct Print {
    shown: Vec<(String, Shown)>,
}

/// How a field is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Hex,
    /// An address, as the name of its function.
    Code,
    /// A pointer, as the text there.
    Text,
    /// An IP address.
    Ip,
    /// By a table.
    Table {
        flags: bool,
        values: Vec<(u64, String)>,
    },
}

impl Print {
    /// `text`: a format, and its arguments, as those of printf.
    pub fn parse(text: &str) -> Print {
        let mut parts = split(text);
        if parts.is_empty() {
            return Print::default();
        }
        let format = parts.remove(0);
        // Where the format is not plain, the conversions do not tell which is whose.
        let conversions = conversions(format).filter(|c| c.len() == parts.len());
        let mut print = Print::default();
        for (n, argument) in parts.iter().enumerate() {
            let conversion = conversions.as_ref().map_or("", |c| c[n]);
            if let Some((field, shown)) = shown(argument, conversion)
                && print.of(&field).is_none()
            {
                print.shown.push((field, shown));
            }
        }
        parts.iter().filter_map(|argument| suffix(argument)).for_each(|s| print.append(s));
        print
    }

    /// A text that is printed after those of other flags; alone, it follows the text for 0.
    fn append(&mut self, (field, bits, text): (&str, u64, String)) {
        let shown = self.shown.iter_mut().find(|(name, _)| name == field);
        if let Some((_, Shown::Table { flags: true, values })) = shown
            && !values.iter().any(|(value, _)| *value == bits)
        {
            let none = values.iter().find(|(value, _)| *value == 0);
            let text = none.map(|(_, none)| format!("{none}{text}")).unwrap_or(text);
            values.push((bits, text));
        }
    }

    pub fn of(&self, field: &str) -> Option<&Shown> {
        self.shown.iter().find(|(name, _)| name == field).map(|(_, shown)| shown)
    }
}

/// The field of an argument, and how it is shown.
fn shown(argument: &str, conversion: &str) -> Option<(String, Shown)> {
    for (call, flags) in [
        ("__print_symbolic(", false),
        ("__print_symbolic64(", false),
        ("__print_flags(", true),
        ("__print_flags_u64(", true),
    ] {
        if let Some(at) = argument.find(call) {
            return table(argument, at + call.len(), flags);
        }
    }
    let field = only_field(argument, false)?;
    let shown = match conversion {
        "pS" | "ps" | "pF" | "pf" | "pB" => Shown::Code,
        "s" => Shown::Text,
        _ if conversion.starts_with("pI4") || conversion.starts_with("pI6") => Shown::Ip,
        _ if conversion.ends_with(['x', 'X']) || conversion.starts_with('p') => Shown::Hex,
        _ => return None,
    };
    Some((field.into(), shown))
}

/// `__print_flags(REC->f, "|", { 1, "a" }, ...)`, whose arguments begin at `start`; `REC->f ?
/// __print_flags(...) : "none"` has a text for 0 too.
fn table(argument: &str, start: usize, flags: bool) -> Option<(String, Shown)> {
    let end = start + close(&argument[start..])?;
    let parts = split(&argument[start..end]);
    let field = only_field(parts.first()?, flags)?;
    let mut values = Vec::new();
    for part in &parts[if flags { 2 } else { 1 }.min(parts.len())..] {
        let row = part.strip_prefix('{').and_then(|p| p.trim_end().strip_suffix('}'));
        if let [value, text] = split(row?)[..]
            && let (Some(value), Some(text)) = (constant::value(value), literal(text))
            && !values.iter().any(|(known, _)| *known == value)
        {
            values.push((value, text));
        }
    }
    let otherwise = argument[end + 1..].trim().strip_prefix(':').map(str::trim);
    if let Some(text) = otherwise.and_then(literal)
        && argument.contains('?')
        && !values.iter().any(|(value, _)| *value == 0)
    {
        values.insert(0, (0, text));
    }
    (!values.is_empty()).then(|| (field.into(), Shown::Table { flags, values }))
}

/// `REC->f & CONSTANT ? "TEXT" : ""`: the field, the bits, and the text.
fn suffix(argument: &str) -> Option<(&str, u64, String)> {
    let (condition, texts) = argument.split_once('?')?;
    let (text, otherwise) = texts.split_once(':')?;
    let field = only_field(condition, true)?;
    let bits = constant::value(condition.split_once('&')?.1)?;
    let text = literal(text).filter(|_| otherwise.trim() == "\"\"")?;
    (bits.count_ones() == 1).then_some((field, bits, text))
}

/// `f` of `REC->f`, which may be in parentheses and casts; with `masked` also of `REC->f &
/// CONSTANT`.
fn only_field(text: &str, masked: bool) -> Option<&str> {
    const RECORD: &str = "REC->";
    let at = text.find(RECORD)?;
    let rest = &text[at + RECORD.len()..];
    let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, after) = rest.split_at(length);
    let (before, mut after) = (text[..at].trim(), after.trim());
    if masked && let Some((parentheses, mask)) = after.split_once('&') {
        let inner = parentheses.matches(')').count();
        let open = before.matches('(').count().saturating_sub(before.matches(')').count());
        let mask = mask.trim();
        let mask = &mask[..mask.len().saturating_sub(open.saturating_sub(inner))];
        constant::value(mask)?;
        after = parentheses;
    }
    // Casts and parentheses: words, and stars.
    let plain = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || "_ ()*".contains(c));
    let no_call = !calls(before);
    (!name.is_empty() && plain(before) && no_call && after.chars().all(|c| ") ".contains(c)))
        .then_some(name)
}

/// Whether a word stands before a parenthesis, so that a function is called.
fn calls(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    (1..bytes.len()).any(|i| bytes[i] == b'(' && is_word(&bytes[i - 1]))
}

/// The parts between the commas that are in no parentheses, braces or texts.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted, mut escaped) =
        (vec![], 0, 0i32, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// Where the parenthesis that is open at the beginning of a text closes.
fn close(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text of a C literal without escapes.
fn literal(text: &str) -> Option<String> {
    let inside = text.trim().strip_prefix('"')?.strip_suffix('"')?;
    let plain = !inside.is_empty() && !inside.contains(['"', '\\']);
    (plain && inside.chars().all(|c| c == ' ' || c.is_ascii_graphic())).then(|| inside.into())
}

/// The conversions of a printf format, without flags, width and length: `d`, `lx` as `x`, `pS`.
/// `None` if one takes several arguments.
fn conversions(format: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "#-+ .".contains(c));
        if rest.starts_with('*') {
            return None;
        }
        rest = rest.trim_start_matches(['l', 'L', 'h', 'z', 't', 'j', 'q']);
        let length = match rest.strip_prefix('p') {
            Some(more) => {
                let is_word = |c: char| !c.is_ascii_alphanumeric();
                1 + more.find(is_word).unwrap_or(more.len())
            }
            None => 1,
        };
        found.push(rest.get(..length)?);
        rest = &rest[length..];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of(print: &Print, field: &str) -> Vec<(u64, String)> {
        match print.of(field) {
            Some(Shown::Table { values, .. }) => values.clone(),
            other => panic!("{field}: {other:?}"),
        }
    }

    #[test]
    fn states_have_texts_and_one_for_0() {
        let print = Print::parse(
            "\"a=%s prev_state=%s%s ==> b=%d\", REC->comm, (REC->state & (((0x40) << 1) - 1)) ? \
             __print_flags(REC->state & (((0x40) << 1) - 1), \"|\", { 0x01, \"S\" }, { 2, \"D\" \
             }) : \"R\", REC->state & 0x80 ? \"+\" : \"\", REC->next",
        );
        let expected = [(0, "R"), (1, "S"), (2, "D"), (0x80, "R+")];
        let expected = expected.map(|(value, text)| (value, text.to_string()));
        assert_eq!(table_of(&print, "state"), expected);
        assert_eq!(print.of("comm"), Some(&Shown::Text));
        assert_eq!(print.of("next"), None);
    }

    #[test]
    fn rows_that_are_not_plain_are_left_out() {
        let print = Print::parse(
            "\"%s\", __print_symbolic(REC->vec, { 0, \"HI\" }, { NAME, \"X\" }, { 1 << 1, \"a, \
             (b\" }, { 0, \"again\" }, { -1, ((void *)0) })",
        );
        assert_eq!(table_of(&print, "vec"), [(0, "HI".into()), (2, "a, (b".into())]);
    }

    #[test]
    fn conversions_tell_how_numbers_are_shown() {
        let print = Print::parse(
            "\"%% a=%d b=0x%lx c=%p d=%pS e=%ps f=%pI4 g=%d,%d h=%#10llx\", REC->a, (unsigned \
             long)REC->b, REC->c, (void *)REC->d, REC->e, REC->f, ((unsigned int) ((REC->g) >> \
             20)), f(REC->g), REC->h",
        );
        let of = |field| print.of(field).cloned();
        assert_eq!((of("a"), of("g")), (None, None));
        assert_eq!(
            (of("b"), of("c"), of("h")),
            (Some(Shown::Hex), Some(Shown::Hex), Some(Shown::Hex))
        );
        assert_eq!((of("d"), of("e")), (Some(Shown::Code), Some(Shown::Code)));
        assert_eq!(of("f"), Some(Shown::Ip));
    }

    #[test]
    fn anything_can_be_parsed() {
        for text in [
            "",
            "\"",
            "\"%",
            "\"%*d\", REC->a",
            "\"%s\", __print_flags(REC->a",
            ",,,",
            "\"%s\", __print_symbolic()",
            "\"%s\", __print_flags(REC->a, \"|\")",
            "\"%l",
            "\"%p",
        ] {
            assert!(Print::parse(text).shown.is_empty(), "{text}");
        }
    }
}
