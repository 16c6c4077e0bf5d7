// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The values of constant expressions in format files, such as `(( gfp_t)((((1UL))) << (5)))`.

/// Levels of parentheses and signs that are followed.
const DEPTH_MAX: u32 = 200;

/// The value, as 64 bits; `None` if the text has names, or operators that constants do not have.
pub fn value(text: &str) -> Option<u64> {
    let mut parser = Parser { rest: text.trim_start(), depth: 0 };
    let value = parser.binary(0)?;
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

/// Operators, the weakest first.
const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*"]];

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn binary(&mut self, level: usize) -> Option<u64> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            // `||` and `&&` are left over, so that the whole is no constant.
            let logical = self.rest.starts_with("||") || self.rest.starts_with("&&");
            let Some(operator) = operators.iter().find(|o| !logical && self.eat(o)) else {
                return Some(left);
            };
            let right = self.binary(level + 1)?;
            let by = u32::try_from(right).unwrap_or(u32::MAX);
            left = match *operator {
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "<<" => left.checked_shl(by)?,
                ">>" => left.checked_shr(by)?,
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
        }
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let value = match self.rest.chars().next()? {
            '-' if self.eat("-") => self.unary()?.wrapping_neg(),
            '~' if self.eat("~") => !self.unary()?,
            '(' if self.eat("(") => match self.cast() {
                true => self.unary()?,
                false => {
                    let value = self.binary(0)?;
                    self.eat(")").then_some(value)?
                }
            },
            '\'' => self.character()?,
            _ => self.number()?,
        };
        self.depth -= 1;
        Some(value)
    }

    /// After a parenthesis: words up to the next one are a type.
    fn cast(&mut self) -> bool {
        let Some((inside, rest)) = self.rest.split_once(')') else { return false };
        let is_type = inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && inside.chars().all(|c| c.is_ascii_alphanumeric() || "_ *".contains(c));
        // `(NAME)` before the end, or before an operator, is a name in parentheses.
        let rest = rest.trim_start();
        let applied = rest.starts_with(|c: char| c.is_ascii_digit() || "(-~'".contains(c));
        if is_type && applied {
            self.rest = rest;
        }
        is_type && applied
    }

    fn character(&mut self) -> Option<u64> {
        let mut chars = self.rest.chars();
        let (_, c, close) = (chars.next()?, chars.next()?, chars.next()?);
        let plain = close == '\'' && c.is_ascii() && c != '\\';
        self.rest = chars.as_str().trim_start();
        plain.then_some(u64::from(u32::from(c)))
    }

    fn number(&mut self) -> Option<u64> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if digits.len() > 1 && digits.starts_with('0') => {
                u64::from_str_radix(digits, 8).ok()
            }
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        for (text, expected) in [
            ("0x10", 16),
            ("010", 8),
            ("0", 0),
            ("-1UL", u64::MAX),
            ("( unsigned long)(( gfp_t)((((1UL))) << (5)))", 32),
            ("(1 << 3) | 4 & ~0", 12),
            ("((((0x00000000 | 0x40) + 1) << 1) - 1)", 0x81),
            ("2 * 3 + 1", 7),
            ("'R'", 82),
            ("1U - 2", u64::MAX),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_constant() {
        let deep = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        for text in [
            "",
            "NAME",
            "(NAME)",
            "1 +",
            "1 ? 2 : 3",
            "(1",
            "1)",
            "1 << 64",
            "((void *)0",
            &deep,
            "REC->x",
            "1 || 2",
            "'\\n'",
            "0x",
            "1 2",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
