// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger record --where`: from a condition of an event to C, which is compiled into the event's
//! code.
//!
//! The language and its meaning are those of [`klogger_log::filter`]. There a comparison with a
//! name that a value does not have is neither true nor false. So each expression becomes two in C:
//! when it is true, and when it is false.

mod beginning;
mod decoded;
mod numbers;
#[cfg(test)]
mod tests;

use klogger_log::filter::parse::{Expr, Op, Operand};
use klogger_log::filter::{FilterError, parsed};
use klogger_schema::model::{Context, Event, Field, Schema, Shape};
use klogger_schema::nearest::did_you_mean;
use numbers::Number;

/// The longest text that a field can be compared with, which is on the stack of a BPF program.
const TEXT_MAX: usize = 63;
/// The remedy for what cannot be decided while events are logged.
pub const LATER: &str = "record without it, and select from the log with 'klogger cat --where'";

/// The longest path that a field can be below.
pub const PATH_MAX: usize = TEXT_MAX;

/// C expressions over the fields of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Truth {
    yes: String,
    no: String,
}

impl Truth {
    fn known(is: bool) -> Truth {
        let word = |b: bool| if b { "1".to_string() } else { "0".to_string() };
        Truth { yes: word(is), no: word(!is) }
    }

    fn not(self) -> Truth {
        Truth { yes: self.no, no: self.yes }
    }

    /// Never unknown.
    fn of(c: String) -> Truth {
        Truth { no: format!("!({c})"), yes: c }
    }
}

/// One side of a comparison.
enum Side<'a> {
    Number(Number),
    /// A number of a field, which may have names.
    Field(Number, &'a Field),
    Literal(&'a str),
    /// A text of a field.
    Text(&'a Field),
}

/// The C expression for the condition of an event: `text` is as of `klogger cat --where`.
pub fn compile(schema: &Schema, event: &Event, text: &str) -> Result<String, FilterError> {
    Compiler { schema, event }.truth(&parsed(text)?).map(|truth| truth.yes)
}

fn error(message: String, help: impl Into<String>) -> FilterError {
    FilterError { message, help: help.into() }
}

struct Compiler<'a> {
    schema: &'a Schema,
    event: &'a Event,
}

impl<'a> Compiler<'a> {
    fn truth(&self, expr: &'a Expr) -> Result<Truth, FilterError> {
        match expr {
            Expr::Any(terms) => self.join(terms, "||", "&&"),
            Expr::All(terms) => self.join(terms, "&&", "||"),
            Expr::Not(inner) => self.truth(inner).map(Truth::not),
            Expr::Compare(left, Op::Matches, right) => match (self.side(left)?, right) {
                (Side::Text(field), Operand::Text(pattern)) => match beginning::of(pattern) {
                    Some((text, whole)) => text_is(field, &text, whole),
                    None => Err(not_a_beginning()),
                },
                _ => Err(not_a_beginning()),
            },
            Expr::Compare(left, op, right) => {
                self.compare(self.side(left)?, *op, self.side(right)?)
            }
        }
    }

    fn join(&self, terms: &'a [Expr], yes: &str, no: &str) -> Result<Truth, FilterError> {
        let terms = terms.iter().map(|t| self.truth(t)).collect::<Result<Vec<_>, _>>()?;
        let joined = |op: &str, part: fn(&Truth) -> &str| {
            let parts: Vec<&str> = terms.iter().map(part).collect();
            format!("({})", parts.join(&format!(" {op} ")))
        };
        Ok(Truth { yes: joined(yes, |t| &t.yes), no: joined(no, |t| &t.no) })
    }

    fn side(&self, operand: &'a Operand) -> Result<Side<'a>, FilterError> {
        let name = match operand {
            Operand::Number(n) => return Ok(Side::Number(Number::Constant(*n))),
            Operand::Text(text) => return Ok(Side::Literal(text)),
            Operand::Name(name) => name.as_str(),
        };
        match name {
            "cpu" => return Ok(Side::Number(Number::of_c("klogger_cpu()", false, 4))),
            "time" | "serial" => {
                return Err(error(format!("'{name}' is not known while events are logged"), LATER));
            }
            "event" => {
                return Err(error(
                    format!("the event is named before the colon: '{}: ...'", self.event.name),
                    "write a condition for each event, with a --where of its own",
                ));
            }
            _ => {}
        }
        let field = self.event.fields.iter().find(|f| f.name == name);
        let field = field.ok_or_else(|| self.unknown(name))?;
        Ok(match field.shape {
            Shape::One => Side::Field(Number::of_field(field), field),
            Shape::Text(_) | Shape::Tail(_) => Side::Text(field),
            Shape::Array(_) => {
                let message = format!("'{name}' has several values, and cannot be compared");
                return Err(error(message, "compare a field of one value, or a text"));
            }
        })
    }

    fn unknown(&self, name: &str) -> FilterError {
        let fields = self.event.fields.iter().map(|f| f.name.as_str());
        let help = did_you_mean(name, fields.chain(["cpu"])).unwrap_or_else(|| {
            let names: Vec<&str> = self.event.fields.iter().map(|f| f.name.as_str()).collect();
            format!("it has: {}", names.join(", "))
        });
        error(format!("{} has no field '{name}'", self.event.name), help)
    }

    fn compare(&self, left: Side<'a>, op: Op, right: Side<'a>) -> Result<Truth, FilterError> {
        match (left, right) {
            (
                Side::Number(left) | Side::Field(left, _),
                Side::Number(right) | Side::Field(right, _),
            ) => Ok(Truth::of(left.compare(op, &right))),
            (Side::Text(field), Side::Literal(text)) | (Side::Literal(text), Side::Text(field)) => {
                Ok(equality(op)?.apply(text_is(field, text, true)?))
            }
            (Side::Field(number, field), Side::Literal(text))
            | (Side::Literal(text), Side::Field(number, field)) => {
                Ok(equality(op)?.apply(decoded::named(self.schema, field, &number, text)?))
            }
            (Side::Text(_), Side::Text(_)) | (Side::Literal(_), Side::Literal(_)) => Err(error(
                "two texts are compared with each other".into(),
                "compare a field with a text in quotes, or with a number",
            )),
            (Side::Number(_), _)
            | (_, Side::Number(_))
            | (Side::Text(_), _)
            | (_, Side::Text(_)) => Err(error(
                "a number is compared with a text".into(),
                "leave out the quotes to compare with a number",
            )),
        }
    }
}

/// `==` or `!=`
enum Equality {
    Equal,
    Different,
}

impl Equality {
    fn apply(self, truth: Truth) -> Truth {
        match self {
            Equality::Equal => truth,
            Equality::Different => truth.not(),
        }
    }
}

fn equality(op: Op) -> Result<Equality, FilterError> {
    match op {
        Op::Equal => Ok(Equality::Equal),
        Op::Different => Ok(Equality::Different),
        Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual | Op::Matches => Err(error(
            "texts can only be compared with == and != while events are logged".into(),
            LATER,
        )),
    }
}

/// The C expression for a path in a text field: whether it is this one, or one below it. `path` has
/// at most [`PATH_MAX`] bytes, and no slash at its end.
pub fn under(field: &Field, path: &str) -> String {
    let most = match field.shape {
        Shape::Text(size) => size as usize,
        Shape::One | Shape::Array(_) | Shape::Tail(_) => usize::MAX,
    };
    let (bytes, length) = (path.as_bytes(), path.len());
    if length >= most {
        return "0".into();
    }
    let size = (length + 2).min(most);
    let each: String = bytes
        .iter()
        .enumerate()
        .map(|(n, b)| format!(" && klogger_part[{n}] == (char){b}"))
        .collect();
    // If there is no byte after it that can be read, the text was cut there.
    let end = match size == length + 2 {
        true => format!(" && (klogger_part[{length}] == 0 || klogger_part[{length}] == '/')"),
        false => String::new(),
    };
    format!(
        "({{ char klogger_part[{size}] = {{}}; klogger_text_part(klogger_part, {size}, {}) >= \
         {length}{each}{end}; }})",
        field.name
    )
}

fn not_a_beginning() -> FilterError {
    error(
        "regular expressions (=~) cannot be evaluated while events are logged, but for the \
         beginning of a text, as in path =~ \"^/etc/\""
            .into(),
        LATER,
    )
}

/// Reads no more of the field than it takes to decide. `whole`: the text is all of the field, and
/// not only its beginning.
fn text_is(field: &Field, text: &str, whole: bool) -> Result<Truth, FilterError> {
    let bytes = text.as_bytes();
    if bytes.len() > TEXT_MAX {
        return Err(error(
            format!("a text of {} bytes is compared; {TEXT_MAX} are possible", bytes.len()),
            LATER,
        ));
    }
    if let (Some(context), Shape::Text(size)) = (field.context, field.shape) {
        return Ok(context_is(context, size as usize, bytes, whole));
    }
    let most = match field.shape {
        Shape::Text(size) => size as usize,
        Shape::One | Shape::Array(_) | Shape::Tail(_) => usize::MAX,
    };
    if bytes.len() >= most || bytes.contains(&0) {
        return Ok(Truth::known(false));
    }
    // The NUL, and one byte more than the text, which tells a longer one.
    let size = (bytes.len() + 1 + usize::from(whole)).min(most);
    let each = bytes.iter().enumerate();
    let each: String = each.map(|(n, b)| format!(" && klogger_part[{n}] == (char){b}")).collect();
    Ok(Truth::of(format!(
        "({{ char klogger_part[{size}] = {{}}; klogger_text_part(klogger_part, {size}, {}) == \
         {}{each}; }})",
        field.name,
        bytes.len()
    )))
}

/// The same for what the runtime supplies, which may be as long as its field.
fn context_is(context: Context, size: usize, bytes: &[u8], whole: bool) -> Truth {
    if bytes.len() > size || bytes.contains(&0) {
        return Truth::known(false);
    }
    let end = (whole && bytes.len() < size).then_some(&0);
    let each: String = bytes
        .iter()
        .chain(end)
        .enumerate()
        .map(|(n, b)| format!(" && klogger_part[{n}] == (char){b}"))
        .collect();
    let word = context.word();
    Truth::of(format!(
        "({{ __attribute__((aligned(8))) char klogger_part[{size}] = {{}}; \
         klogger_context_{word}(klogger_part); 1{each}; }})"
    ))
}
