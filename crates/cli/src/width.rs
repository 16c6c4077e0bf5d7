// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Messages as wide as the terminal. A pipe gets each paragraph in one line, for scripts.

use crate::terminal;
use std::io::{IsTerminal, stderr};
use textwrap::{Options, WordSeparator, WordSplitter, wrap};

/// The columns of standard error; none if it is no terminal.
pub fn columns() -> Option<usize> {
    let stream = stderr();
    stream.is_terminal().then(|| terminal::columns(stream)).flatten()
}

/// Fits a message into the terminal of standard error.
pub fn fitted(text: &str) -> String {
    columns().map_or_else(|| text.into(), |columns| filled(text, columns))
}

/// Breaks lines between words; what follows is under the first word of the paragraph, which has a
/// label or not: `  help: TEXT`. Blanks at the ends of lines are removed. Escape codes have no
/// width.
fn filled(text: &str, columns: usize) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let indent = " ".repeat(indent_of(line));
        let options = Options::new(columns)
            .subsequent_indent(&indent)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation);
        lines.extend(wrap(line, options).iter().map(|part| part.trim_end().to_string()));
    }
    lines.join("\n")
}

/// The columns before a paragraph: its own, and those of a label such as `help: `.
fn indent_of(line: &str) -> usize {
    let line = &without_escapes(line);
    let own = line.len() - line.trim_start().len();
    if own == 0 {
        return 2;
    }
    let label = line.split_once(": ").map_or("", |(before, _)| before);
    match label.trim_start().chars().all(|c| c.is_ascii_lowercase()) && !label.is_empty() {
        true => label.len() + 2,
        false => own + 2,
    }
}

/// Without codes for colours, which end with `m`.
fn without_escapes(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_broken_between_words() {
        let text = "klogger: there is no such thing\n  help: look for it in another place\n";
        let expected = "klogger: there is no\n  such thing\n  help: look for it in\n        \
                        another place\n";
        assert_eq!(filled(text, 24), expected);
        assert_eq!(filled(text, 80), text);
    }

    #[test]
    fn a_long_word_stays_whole() {
        assert_eq!(
            filled("see /a/very/long/path/of/a/file here", 12),
            "see\n  /a/very/long/path/of/a/file\n  here"
        );
    }

    #[test]
    fn blanks_at_the_end_go_and_those_before_stay() {
        assert_eq!(filled(" 2 | \n     code  {  }", 40), " 2 |\n     code  {  }");
    }

    #[test]
    fn escape_codes_have_no_width() {
        let bold = "\x1b[1mten\x1b[0m \x1b[1mten\x1b[0m";
        assert_eq!(filled(bold, 7), bold);
        assert_eq!(indent_of("  \x1b[32mtip:\x1b[0m a"), 7);
    }
}
