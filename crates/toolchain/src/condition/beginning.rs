// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Regular expressions that say only what a text begins with, as `^/etc/`.

/// The text, and whether it is the whole one (`^/etc/passwd$`). `None` if the expression says more.
pub fn of(pattern: &str) -> Option<(String, bool)> {
    let mut rest = pattern.strip_prefix('^')?.chars();
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            // Only punctuation stands for itself behind a backslash.
            '\\' => text.push(rest.next().filter(char::is_ascii_punctuation)?),
            '$' if rest.as_str().is_empty() => return Some((text, true)),
            '.' if rest.as_str() == "*" => return Some((text, false)),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                return None;
            }
            c => text.push(c),
        }
    }
    Some((text, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings() {
        for (pattern, text, whole) in [
            ("^/etc/", "/etc/", false),
            ("^/etc/.*", "/etc/", false),
            (r"^/a\.b\$", "/a.b$", false),
            ("^/etc/passwd$", "/etc/passwd", true),
            ("^", "", false),
            ("^$", "", true),
        ] {
            assert_eq!(of(pattern), Some((text.to_string(), whole)), "{pattern}");
        }
    }

    #[test]
    fn what_says_more() {
        for pattern in [
            "etc", "/etc$", "^a.b", "^a*", "^(a|b)", "^a|b", "^[ab]", r"^a\d", "^a$b", r"^a\",
            "^a?",
        ] {
            assert_eq!(of(pattern), None, "{pattern}");
        }
    }
}
