// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Values of parameters, as a schema and `klogger record --set` write them: `4096`, `0x10`, `10ms`,
//! `true`.

use crate::lexer::number;
use crate::model::{Parameter, Scalar};
use crate::nearest::alternatives;

/// Units that convert into each other: of one kind, each with what it is of the first.
const KINDS: [&[(&str, i128)]; 3] = [
    &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    &[("bytes", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)],
    &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)],
];

/// Why a text is not a value, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    pub message: String,
    pub help: String,
}

fn wrong(message: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong { message: message.into(), help: help.into() }
}

impl Parameter {
    /// The least and the greatest value that its type has.
    pub fn limits_of(scalar: Scalar) -> (i128, i128) {
        let bits = 8 * scalar.size();
        match (scalar, scalar.signed()) {
            (Scalar::Bool, _) => (0, 1),
            (_, true) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            (_, false) => (0, (1 << bits) - 1),
        }
    }

    /// The value that a text means, in the unit of the parameter.
    ///
    /// # Errors
    ///
    /// It is no value, or it is out of the parameter's range.
    pub fn value_of(&self, text: &str) -> Result<i128, Wrong> {
        let value = self.number_of(text)?;
        match (self.least..=self.most).contains(&value) {
            true => Ok(value),
            false => Err(wrong(
                format!("{} is out of range", self.shown(value)),
                format!("{} is {}", self.name, self.range()),
            )),
        }
    }

    fn number_of(&self, text: &str) -> Result<i128, Wrong> {
        if self.scalar == Scalar::Bool {
            return match text {
                "true" | "yes" | "on" | "1" => Ok(1),
                "false" | "no" | "off" | "0" => Ok(0),
                _ => Err(wrong(
                    format!("'{text}' is neither true nor false"),
                    format!("{} is a bool: write true or false", self.name),
                )),
            };
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let magnitude = match number(digits) {
            Some(n) => i128::from(n),
            None => self.with_unit(text, digits)?,
        };
        Ok(if negative { -magnitude } else { magnitude })
    }

    /// `10ms`, `1.5s`: a decimal number and a unit.
    fn with_unit(&self, text: &str, digits: &str) -> Result<i128, Wrong> {
        let not = || wrong(format!("'{text}' is not a value"), self.help());
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let (n, unit) = (&digits[..end], digits[end..].trim_start());
        // With either of the two Greek letters.
        let unit = if matches!(unit, "\u{b5}s" | "\u{3bc}s") { "us" } else { unit };
        let (whole, part) = n.split_once('.').unwrap_or((n, ""));
        // More digits than this are not needed, and could not be multiplied.
        if whole.is_empty() || n.len() > 20 || part.contains('.') || (n.ends_with('.')) {
            return Err(not());
        }
        let scaled: i128 = format!("{whole}{part}").parse().map_err(|_| not())?;
        let scale = 10i128.pow(part.len() as u32);
        let (from, to) = self.conversion(text, unit)?;
        let (value, divisor) = (scaled * from, scale * to);
        match value % divisor {
            0 => Ok(value / divisor),
            _ => Err(wrong(
                format!("'{text}' is not a whole number of {}", self.unit_name()),
                format!("{} is in {}", self.name, self.unit_name()),
            )),
        }
    }

    /// What one of the written unit, and one of the parameter's, are of the least one.
    fn conversion(&self, text: &str, unit: &str) -> Result<(i128, i128), Wrong> {
        let own = self.unit_name();
        if unit.is_empty() || unit == own || (unit == "%" && own == "percent") {
            return Ok((1, 1));
        }
        let kind = KINDS.iter().find(|kind| kind.iter().any(|(name, _)| *name == own));
        let of = |name: &str| kind?.iter().find(|(n, _)| *n == name).map(|(_, scale)| *scale);
        match (of(unit), of(own)) {
            (Some(from), Some(to)) => Ok((from, to)),
            _ => Err(wrong(format!("'{text}' is not a value"), self.help())),
        }
    }

    /// What can be written.
    fn help(&self) -> String {
        let own = self.unit_name();
        let kind = KINDS.iter().find(|kind| kind.iter().any(|(name, _)| *name == own));
        match kind {
            Some(kind) => {
                let names: Vec<&str> = kind.iter().map(|(name, _)| *name).collect();
                format!("write a number, of {own}, or with a unit: {}", alternatives(&names, "or"))
            }
            None if own.is_empty() => "write a whole number: 12, 0x1f or -1".into(),
            None => format!("write a whole number, of {own}"),
        }
    }

    fn unit_name(&self) -> &str {
        self.unit.as_deref().unwrap_or_default()
    }

    /// The values that it can have: `1 to 1000 ms`.
    pub fn range(&self) -> String {
        match self.scalar {
            Scalar::Bool => "true or false".into(),
            _ => format!("{} to {}", self.least, self.shown(self.most)),
        }
    }

    /// A value with the unit.
    pub fn shown(&self, value: i128) -> String {
        match (self.scalar, &self.unit) {
            (Scalar::Bool, _) => if value == 0 { "false" } else { "true" }.into(),
            (_, Some(unit)) => format!("{value} {unit}"),
            (_, None) => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(scalar: Scalar, unit: Option<&str>) -> Parameter {
        let (least, most) = Parameter::limits_of(scalar);
        Parameter {
            name: "slow".into(),
            scalar,
            unit: unit.map(String::from),
            least,
            most,
            ..Parameter::default()
        }
    }

    #[test]
    fn units_are_converted() {
        let ns = parameter(Scalar::U64, Some("ns"));
        for (text, value) in [
            ("7", 7),
            ("0x10", 16),
            ("10ms", 10_000_000),
            ("1.5us", 1500),
            ("2 s", 2_000_000_000),
            ("3\u{b5}s", 3000),
        ] {
            assert_eq!(ns.value_of(text), Ok(value), "{text}");
        }
        let ms = parameter(Scalar::U32, Some("ms"));
        assert_eq!(ms.value_of("2s"), Ok(2000));
        let error = ms.value_of("10us").unwrap_err();
        assert_eq!(error.message, "'10us' is not a whole number of ms");
        let size = parameter(Scalar::U32, Some("bytes"));
        assert_eq!(size.value_of("4KiB"), Ok(4096));
        assert_eq!(parameter(Scalar::I32, Some("percent")).value_of("5%"), Ok(5));
    }

    #[test]
    fn ranges_are_those_of_the_type() {
        let small = parameter(Scalar::I8, None);
        assert_eq!(small.value_of("-128"), Ok(-128));
        let error = small.value_of("128").unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.help.as_str()),
            ("128 is out of range", "slow is -128 to 127")
        );
        let all = parameter(Scalar::U64, None);
        assert_eq!(all.value_of("18446744073709551615"), Ok(u64::MAX.into()));
        assert!(all.value_of("-1").is_err());
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let ns = parameter(Scalar::U64, Some("ns"));
        for bad in [
            "",
            "-",
            "ms",
            "1ks",
            "1.",
            ".5s",
            "1.2.3s",
            "1 KiB",
            "one",
            "999999999999999999999999",
        ] {
            let error = ns.value_of(bad).unwrap_err();
            assert!(error.message.contains(&format!("'{bad}'")), "{bad}: {}", error.message);
        }
        let yes = parameter(Scalar::Bool, None);
        assert_eq!((yes.value_of("on"), yes.value_of("false")), (Ok(1), Ok(0)));
        assert!(yes.value_of("2").unwrap_err().help.contains("true or false"));
    }
}
