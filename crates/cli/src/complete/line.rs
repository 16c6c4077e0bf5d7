// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The words of a command line that is being written.

use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// From `klogger` to the word before the cursor.
    pub words: Vec<String>,
    /// The word at the cursor, up to there; without the quote with which it begins.
    pub current: String,
}

impl Line {
    /// From the text up to the cursor, with the shell's quotes. What comes before `klogger`
    /// (`sudo`, variables) is left out.
    pub fn of_text(text: &str) -> Line {
        Line::of(split(text))
    }

    /// From words, each with the shell's quotes or without them.
    pub fn of_words(words: &[String]) -> Line {
        Line::of(words.iter().map(|word| unquoted(word)).collect())
    }

    fn of(mut words: Vec<String>) -> Line {
        let current = words.pop().unwrap_or_default();
        let is_klogger = |word: &String| Path::new(word).file_name() == Some("klogger".as_ref());
        let first = words.iter().position(is_klogger).unwrap_or(0);
        Line { words: words.split_off(first), current }
    }

    /// The values of an option so far, as `-s VALUE`, `-sVALUE`, `--schema VALUE` or
    /// `--schema=VALUE`, each between commas.
    pub fn values(&self, short: &str, long: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| self.words.get(at)).map(String::as_str);
            if before == Some(short) || before == Some(long) {
                found.push(word.as_str());
            } else if let Some(value) = word.strip_prefix(long).and_then(|w| w.strip_prefix('=')) {
                found.push(value);
            } else if let Some(value) = word.strip_prefix(short).filter(|_| !is_long(word)) {
                found.push(value);
            }
        }
        found.into_iter().flat_map(|value| value.split(',')).filter(|v| !v.is_empty()).collect()
    }
}

fn is_long(word: &str) -> bool {
    word.starts_with("--")
}

/// What has spaces outside of quotes had its quotes removed before.
fn unquoted(word: &str) -> String {
    let mut parts = split(word);
    match parts.len() {
        1 => parts.remove(0),
        _ => word.into(),
    }
}

/// As a shell does: the last word may be empty or have a quote that is not closed.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut chars = text.chars();
    let mut begun = false;
    while let Some(c) = chars.next() {
        let word = words.last_mut();
        let Some(word) = word else { break };
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('\''), c) => word.push(c),
            (_, '\\') => word.extend(chars.next()),
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, c) if c.is_whitespace() && (begun || !word.is_empty()) => {
                words.push(String::new());
                begun = false;
            }
            (None, c) if c.is_whitespace() => {}
            (None, c) => word.push(c),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        assert_eq!(split("a  'b c' \"d\\\"e\" f\\ g"), ["a", "b c", "d\"e", "f g"]);
        assert_eq!(split("a '' "), ["a", "", ""]);
        assert_eq!(split("a 'b: c"), ["a", "b: c"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn words_with_quotes_and_without() {
        let line = Line::of_words(&["klogger", "'a b'", "c d", "'cpu == 0 && p"].map(String::from));
        assert_eq!(line.words, ["klogger", "a b", "c d"]);
        assert_eq!(line.current, "cpu == 0 && p");
    }

    #[test]
    fn what_comes_before_klogger_is_left_out() {
        let line =
            Line::of_text("sudo /usr/bin/klogger record -s scheduler,lo -slocking --schema=x ");
        assert_eq!(line.words[1], "record");
        assert_eq!(line.current, "");
        assert_eq!(line.values("-s", "--schema"), ["scheduler", "lo", "locking", "x"]);
    }
}
