// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Comparisons with the name of a value: of an `enum`, of `flags`, of an error.

use super::numbers::Number;
use super::{LATER, Truth, error};
use klogger_log::decode::{error_names, text_of};
use klogger_log::filter::FilterError;
use klogger_log::filter::parse::Op;
use klogger_schema::model::{Decode, Decoding, Field, Schema};
use klogger_schema::nearest::did_you_mean;

/// Whether the value of a field is shown as `text`.
pub fn named(
    schema: &Schema,
    field: &Field,
    number: &Number,
    text: &str,
) -> Result<Truth, FilterError> {
    let name = &field.name;
    match &field.decode {
        Decode::Table(table) => {
            let table = schema.decodings.iter().find(|d| d.name == *table);
            let table = table.ok_or_else(|| numbers_only(name))?;
            let bits = value_of(table, text)?;
            Ok(Truth::of(format!("({} == {bits}ull)", number.bits())))
        }
        Decode::Errno => errno(number, text),
        Decode::Thread => Err(error(
            format!("the names of the threads in '{name}' are not known while events are logged"),
            format!("compare a number: {name} == 4711; or {LATER}"),
        )),
        Decode::Code | Decode::Data | Decode::Stack => Err(error(
            format!("the symbols of '{name}' are not known while events are logged"),
            LATER,
        )),
        Decode::Plain
        | Decode::Hex
        | Decode::Octal
        | Decode::Device
        | Decode::Ip
        | Decode::Endpoint
        | Decode::Path => Err(numbers_only(name)),
    }
}

fn numbers_only(name: &str) -> FilterError {
    error(
        format!("'{name}' is a number, and is compared with a text"),
        "leave out the quotes to compare with a number",
    )
}

/// The value that is shown as `text`: flags in the order of their table, joined by `|`.
fn value_of(table: &Decoding, text: &str) -> Result<u64, FilterError> {
    let find = |name: &str| table.values.iter().find(|v| v.1 == name).map(|v| v.0);
    if let Some(value) = find(text) {
        return Ok(value);
    }
    let unknown = |name: &str| {
        let names = || table.values.iter().map(|v| v.1.as_str());
        let all = || format!("its names are: {}", names().collect::<Vec<_>>().join(", "));
        let help = did_you_mean(name, names()).unwrap_or_else(all);
        error(format!("'{}' has no name '{name}'", table.name), help)
    };
    if !table.flags || !text.contains('|') {
        return Err(unknown(text));
    }
    let mut bits = 0;
    for part in text.split('|') {
        bits |= find(part).filter(|flag| *flag != 0).ok_or_else(|| unknown(part))?;
    }
    let shown = text_of(table, bits);
    match shown == text {
        true => Ok(bits),
        false => Err(error(
            format!("no value of '{}' is shown as '{text}'", table.name),
            format!("write the flags as 'klogger cat' shows them: \"{shown}\""),
        )),
    }
}

/// A negative value is the number of an error; others have no name.
fn errno(number: &Number, text: &str) -> Result<Truth, FilterError> {
    let found = error_names().find(|(_, name)| *name == text);
    let (value, _) = found.ok_or_else(|| {
        let help = did_you_mean(text, error_names().map(|e| e.1));
        error(
            format!("there is no error '{text}'"),
            help.unwrap_or_else(|| "write its name, such as \"ENOENT\"".into()),
        )
    })?;
    let is = |n: i32| number.compare(Op::Equal, &Number::Constant(-i128::from(n)));
    let between = |(first, last): (i32, i32)| {
        let (least, greatest) =
            (Number::Constant(-i128::from(last)), Number::Constant(-i128::from(first)));
        let above = number.compare(Op::GreaterOrEqual, &least);
        format!("({above} && {})", number.compare(Op::LessOrEqual, &greatest))
    };
    let has_name: Vec<String> = runs().into_iter().map(between).collect();
    let (yes, any) = (is(value), has_name.join(" || "));
    Ok(Truth { no: format!("(!{yes} && ({any}))"), yes })
}

/// The numbers of all errors, as ranges.
fn runs() -> Vec<(i32, i32)> {
    let mut numbers: Vec<i32> = error_names().map(|(n, _)| n).collect();
    numbers.sort_unstable();
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 >= n => *last = n,
            Some(_) | None => runs.push((n, n)),
        }
    }
    runs
}
