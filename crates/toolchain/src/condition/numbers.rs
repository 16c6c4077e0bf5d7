// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Comparisons of whole numbers in C. A filter compares values, whatever their types: -1 is less
//! than any unsigned number.

use klogger_log::filter::parse::Op;
use klogger_schema::model::Field;

/// A number of a comparison.
pub enum Number {
    Constant(i128),
    /// A C expression of an integer type.
    Value {
        c: String,
        signed: bool,
        /// The least and the greatest value of its type.
        least: i128,
        greatest: i128,
    },
}

impl Number {
    /// `bytes`: of its type.
    pub fn of_c(c: &str, signed: bool, bytes: u32) -> Number {
        let bits = 8 * bytes;
        let (least, greatest) = match signed {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        Number::Value { c: c.into(), signed, least, greatest }
    }

    pub fn of_field(field: &Field) -> Number {
        let c = match field.context {
            Some(context) => format!("klogger_context_{}()", context.word()),
            None => field.name.clone(),
        };
        Number::of_c(&c, field.scalar.signed(), field.scalar.size())
    }

    /// When the comparison is true.
    pub fn compare(&self, op: Op, other: &Number) -> String {
        match op {
            Op::Less => less(self, other),
            Op::Greater => less(other, self),
            Op::LessOrEqual => format!("!{}", less(other, self)),
            Op::GreaterOrEqual => format!("!{}", less(self, other)),
            Op::Different => format!("!{}", equal(self, other)),
            Op::Equal | Op::Matches => equal(self, other),
        }
    }

    /// The bits of the value, a negative one as two's complement.
    pub fn bits(&self) -> String {
        match self {
            Number::Constant(n) => literal(*n),
            Number::Value { c, signed: true, .. } => {
                format!("(unsigned long long)(long long)({c})")
            }
            Number::Value { c, signed: false, .. } => format!("(unsigned long long)({c})"),
        }
    }
}

fn word(is: bool) -> String {
    format!("({})", u8::from(is))
}

fn less(left: &Number, right: &Number) -> String {
    match (left, right) {
        (Number::Constant(l), Number::Constant(r)) => word(l < r),
        (Number::Value { least, greatest, .. }, Number::Constant(r)) => {
            // Not compared if it is the same for all values: compilers warn of that.
            match r {
                r if r <= least => word(false),
                r if r > greatest => word(true),
                _ => wide(left, "<", right),
            }
        }
        (Number::Constant(l), Number::Value { least, greatest, .. }) => match l {
            l if l < least => word(true),
            l if l >= greatest => word(false),
            _ => wide(left, "<", right),
        },
        (Number::Value { c: l, signed: true, .. }, Number::Value { signed: false, .. }) => {
            format!("((long long)({l}) < 0 || {} < {})", left.bits(), right.bits())
        }
        (Number::Value { signed: false, .. }, Number::Value { c: r, signed: true, .. }) => {
            format!("((long long)({r}) >= 0 && {} < {})", left.bits(), right.bits())
        }
        (Number::Value { .. }, Number::Value { .. }) => wide(left, "<", right),
    }
}

fn equal(left: &Number, right: &Number) -> String {
    match (left, right) {
        (Number::Constant(l), Number::Constant(r)) => word(l == r),
        (Number::Value { least, greatest, .. }, Number::Constant(n))
        | (Number::Constant(n), Number::Value { least, greatest, .. }) => {
            match (*least..=*greatest).contains(n) {
                true => wide(left, "==", right),
                false => word(false),
            }
        }
        (Number::Value { c, signed: true, .. }, Number::Value { signed: false, .. })
        | (Number::Value { signed: false, .. }, Number::Value { c, signed: true, .. }) => {
            format!("((long long)({c}) >= 0 && {} == {})", left.bits(), right.bits())
        }
        (Number::Value { .. }, Number::Value { .. }) => wide(left, "==", right),
    }
}

/// Both in 64 bits; of the same sign, or a constant that the other's type has.
fn wide(left: &Number, op: &str, right: &Number) -> String {
    format!("({} {op} {})", in_64_bits(left), in_64_bits(right))
}

fn in_64_bits(number: &Number) -> String {
    match number {
        Number::Constant(n) => literal(*n),
        Number::Value { c, signed: true, .. } => format!("(long long)({c})"),
        Number::Value { c, signed: false, .. } => format!("(unsigned long long)({c})"),
    }
}

fn literal(n: i128) -> String {
    const LEAST: i128 = i64::MIN as i128;
    match n {
        LEAST => "(-9223372036854775807ll - 1)".into(),
        n if n < 0 => format!("({n}ll)"),
        n if n <= i64::MAX.into() => format!("{n}ll"),
        n => format!("{n}ull"),
    }
}
