// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parses a filter: `pid == 42 && (prio < 120 || !(comm =~ "^k"))`.

use winnow::ascii::{dec_uint, multispace0};
use winnow::combinator::{
    alt, cut_err, delimited, not, preceded, repeat, separated, separated_pair, terminated,
};
use winnow::prelude::*;
use winnow::token::{any, none_of, one_of, take_while};

/// A parsed filter; names are not looked up yet.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// True if one of them is.
    Any(Vec<Expr>),
    /// True if all of them are.
    All(Vec<Expr>),
    Not(Box<Expr>),
    Compare(Operand, Op, Operand),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Name(String),
    /// A number; with a unit of time it is in ns; of a device (7:1) as in its field.
    Number(i128),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `=~`: the text contains a match of the regular expression.
    Matches,
}

/// Limits: bytes of a filter, and its parentheses and `!`, because the parser recurses for each of
/// them.
const LENGTH_MAX: usize = 4096;
const DEPTH_MAX: usize = 100;

/// Parses a filter. The error is the 0-based byte at which it cannot be parsed.
pub fn parse(text: &str) -> Result<Expr, usize> {
    let nesting = text.bytes().filter(|b| matches!(b, b'(' | b'!')).count();
    if text.len() > LENGTH_MAX || nesting > DEPTH_MAX {
        return Err(0);
    }
    any_of.parse(text).map_err(|e| e.offset())
}

/// Parses the filter at the beginning of a text, and returns its length. The error is as of
/// [`parse`].
pub fn beginning(text: &str) -> Result<usize, usize> {
    let end = text.len().min(LENGTH_MAX);
    let head = text.get(..end).ok_or(0usize)?;
    let nesting = head.bytes().filter(|b| matches!(b, b'(' | b'!')).count();
    if nesting > DEPTH_MAX {
        return Err(0);
    }
    let mut rest = head;
    match any_of.parse_next(&mut rest) {
        Ok(_) => Ok(head.len() - rest.len()),
        Err(_) => Err(head.len() - rest.len()),
    }
}

/// A number in a filter: decimal or `0x`, with a fraction if a unit (s, ms, us, ns) follows.
pub fn number(text: &str) -> Option<i128> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let magnitude = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
        None => decimal(text)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn decimal(text: &str) -> Option<i128> {
    let unit_at = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = match unit {
        "" if fraction.is_empty() && !digits.ends_with('.') => 1,
        "ns" => 1,
        // With either of the two Greek letters.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let whole = i128::from(whole.parse::<u64>().ok()?) * scale;
    // Fractions of a nanosecond are ignored.
    let mut place = scale;
    let mut sum = whole;
    for digit in fraction.chars() {
        place /= 10;
        sum += i128::from(digit.to_digit(10)?) * place;
    }
    Some(sum)
}

fn any_of(input: &mut &str) -> ModalResult<Expr> {
    let terms: Vec<Expr> = separated(1.., all_of, "||").parse_next(input)?;
    Ok(if let [only] = terms.as_slice() { only.clone() } else { Expr::Any(terms) })
}

fn all_of(input: &mut &str) -> ModalResult<Expr> {
    let terms: Vec<Expr> = separated(1.., term, "&&").parse_next(input)?;
    Ok(if let [only] = terms.as_slice() { only.clone() } else { Expr::All(terms) })
}

fn term(input: &mut &str) -> ModalResult<Expr> {
    let negated = preceded('!', cut_err(term)).map(|e| Expr::Not(Box::new(e)));
    let group = delimited('(', cut_err(any_of), cut_err(')'));
    delimited(multispace0, alt((negated, group, compare)), multispace0).parse_next(input)
}

fn compare(input: &mut &str) -> ModalResult<Expr> {
    let left = operand.parse_next(input)?;
    let op = cut_err(delimited(multispace0, operator, multispace0)).parse_next(input)?;
    let right = cut_err(operand).parse_next(input)?;
    Ok(Expr::Compare(left, op, right))
}

fn operator(input: &mut &str) -> ModalResult<Op> {
    alt((
        "==".value(Op::Equal),
        "!=".value(Op::Different),
        "<=".value(Op::LessOrEqual),
        ">=".value(Op::GreaterOrEqual),
        "=~".value(Op::Matches),
        "<".value(Op::Less),
        ">".value(Op::Greater),
        "=".value(Op::Equal),
    ))
    .parse_next(input)
}

fn operand(input: &mut &str) -> ModalResult<Operand> {
    alt((text('"'), text('\''), name, device, literal)).parse_next(input)
}

/// A device as `ls -l` and /proc/self/mountinfo have it: 7:1. In fields it is a number of 12 and
/// one of 20 bits.
fn device(input: &mut &str) -> ModalResult<Operand> {
    let minor = terminated(dec_uint::<_, u32, _>, not(one_of(|c: char| c.is_ascii_alphanumeric())));
    separated_pair(dec_uint::<_, u32, _>, ':', minor)
        .verify(|&(major, minor)| major < 1 << 12 && minor < 1 << 20)
        .map(|(major, minor)| Operand::Number(i128::from(major << 20 | minor)))
        .parse_next(input)
}

fn name(input: &mut &str) -> ModalResult<Operand> {
    (
        one_of(|c: char| c.is_ascii_alphabetic() || c == '_'),
        take_while(0.., |c: char| c.is_ascii_alphanumeric() || c == '_'),
    )
        .take()
        .map(|word: &str| Operand::Name(word.into()))
        .parse_next(input)
}

fn literal(input: &mut &str) -> ModalResult<Operand> {
    take_while(1.., |c: char| c.is_alphanumeric() || c == '.' || c == '-')
        .verify_map(|word: &str| match octal(word) {
            Some(digits) => u64::from_str_radix(digits, 8).ok().map(i128::from),
            None => number(word),
        })
        .map(Operand::Number)
        .parse_next(input)
}

/// The digits behind the 0 of a number as rights are printed: 0644.
fn octal(word: &str) -> Option<&str> {
    let digits = word.strip_prefix('0')?;
    digits.starts_with(|c: char| c.is_ascii_digit()).then_some(digits)
}

/// A quoted string; a backslash escapes a quote or a backslash.
fn text<'a>(
    quote: char,
) -> impl Parser<&'a str, Operand, winnow::error::ErrMode<winnow::error::ContextError>> {
    let escaped = preceded('\\', any)
        .map(move |c: char| if c == quote || c == '\\' { c.into() } else { format!("\\{c}") });
    let part = alt((escaped, none_of([quote, '\\']).map(String::from)));
    let parts = repeat(0.., part).fold(String::new, |mut all, part: String| {
        all.push_str(&part);
        all
    });
    delimited(quote, parts, cut_err(quote)).map(Operand::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number("42"), Some(42));
        assert_eq!(number("-0x1F"), Some(-31));
        assert_eq!(number("1.5ms"), Some(1_500_000));
        assert_eq!(number("2s"), Some(2_000_000_000));
        assert_eq!(number("1.5\u{b5}s"), number("1500ns"));
        assert_eq!(number("7\u{3bc}s"), number("7us"));
        assert_eq!(number("0.0000000019s"), Some(1));
        for wrong in ["", "-", "1\u{b5}", "1.5", "1.", "0x", "1h", "1.x", "99999999999999999999"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        let is = |n: &str| Expr::Compare(Operand::Name(n.into()), Op::Equal, Operand::Number(1));
        assert_eq!(
            parse("a == 1 || b==1&&c = 1"),
            Ok(Expr::Any(vec![is("a"), Expr::All(vec![is("b"), is("c")])]))
        );
        assert_eq!(parse(" ! ( a == 1 ) "), Ok(Expr::Not(Box::new(is("a")))));
    }

    #[test]
    fn rights() {
        let is = |n| Ok(Expr::Compare(Operand::Name("r".into()), Op::Equal, Operand::Number(n)));
        assert_eq!(parse("r == 0644"), is(0o644));
        assert_eq!((parse("r == 0"), parse("r == 00")), (is(0), is(0)));
        assert_eq!(parse("r == 0.5ms"), is(500_000));
        assert!(parse("r == 08").is_err() && parse("r == 01s").is_err());
    }

    #[test]
    fn texts() {
        let equals = |t: &str| {
            Ok(Expr::Compare(Operand::Name("a".into()), Op::Matches, Operand::Text(t.into())))
        };
        assert_eq!(parse(r#"a =~ "x\"y\\z\d""#), equals(r#"x"y\z\d"#));
        assert_eq!(parse("a =~ 'it'"), equals("it"));
    }

    #[test]
    fn devices() {
        let is = |n| Ok(Expr::Compare(Operand::Name("d".into()), Op::Equal, Operand::Number(n)));
        assert_eq!(parse("d == 7:1"), is(7 << 20 | 1));
        assert_eq!(parse("d == 4095:1048575"), is(0xffff_ffff));
        assert_eq!(parse("d == 7:1ms"), Err(6));
        assert_eq!(parse("d == 4096:1"), Err(9));
        // Behind the condition of a trigger.
        assert_eq!(beginning("d == 7: stop"), Ok(6));
        assert_eq!(beginning("d == 7:1: stop"), Ok(8));
    }

    #[test]
    fn the_error_says_where() {
        assert_eq!(parse("pid == "), Err(7));
        assert_eq!(parse("pid 42"), Err(4));
        assert_eq!(parse("pid == 42 junk"), Err(10));
        assert_eq!(parse("(pid == 42"), Err(10));
        assert_eq!(parse(""), Err(0));
        assert_eq!(parse(&"(".repeat(1000)), Err(0));
    }
}
