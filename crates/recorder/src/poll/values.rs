// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The values of a polled event in the text of a file.
//!
//! Lines with a key are `KEY VALUE ...`, `KEY: VALUE ...` or `KEY=VALUE`; in `TAG KEY=VALUE ...`
//! (/proc/pressure) the key is `TAG.KEY`, and in two lines `TAG: KEY ...` and `TAG: VALUE ...`
//! (/proc/net/snmp), too.

use klogger_log::builder::RecordBuilder;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Poll, Shape, Source};
use std::collections::HashMap;

/// Rows of one reading at most; a file has fewer.
const ROWS_MAX: usize = 4096;

/// What one reading gives.
#[derive(Default)]
pub(super) struct Reading {
    /// The records, one after the other.
    pub records: Vec<u8>,
    /// Fields without a value.
    pub missing: Vec<String>,
}

/// The records of a file's text at a time.
pub(super) fn records(layout: &EventLayout, poll: &Poll, text: &str, time_ns: u64) -> Reading {
    if poll.rows {
        return rows(layout, poll, text, time_ns);
    }
    let keys = keys(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut reading = Reading::default();
    let mut record = RecordBuilder::new(layout);
    for (field, source) in layout.fields.iter().zip(&poll.sources) {
        let (found, n) = match source {
            Source::Key(key, n) => (keys.get(key.as_str()).map(Vec::as_slice), *n),
            Source::Word(n) => (Some(words.as_slice()), *n),
        };
        let found = found.and_then(|words| words.get(n as usize - 1..)).unwrap_or_default();
        match set(record, field, found, matches!(source, Source::Key(..))) {
            Ok(with) => record = with,
            Err(without) => {
                record = without;
                reading.missing.push(field.name.clone());
            }
        }
    }
    record.finish(time_ns, &mut reading.records);
    reading
}

/// One event for each line whose numbers are numbers; others are heads.
fn rows(layout: &EventLayout, poll: &Poll, text: &str, time_ns: u64) -> Reading {
    let mut reading = Reading::default();
    for line in text.lines().take(ROWS_MAX) {
        let words = columns(line);
        let mut record = Some(RecordBuilder::new(layout));
        for (field, source) in layout.fields.iter().zip(&poll.sources) {
            let Source::Word(n) = source else { continue };
            let found = words.get(*n as usize - 1..).unwrap_or_default();
            record = record.and_then(|r| set(r, field, found, false).ok());
        }
        if let Some(record) = record {
            record.finish(time_ns, &mut reading.records);
        }
    }
    if reading.records.is_empty() {
        reading.missing.extend(layout.fields.iter().map(|f| f.name.clone()));
    }
    reading
}

/// The words of a row. The first one may end with a colon, after which old kernels have no blank.
fn columns(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let Some((name, rest)) = words.first().and_then(|first| first.rsplit_once(':')) else {
        return words;
    };
    if rest.bytes().all(|b| b.is_ascii_digit()) {
        words[0] = name;
        if !rest.is_empty() {
            words.insert(1, rest);
        }
    }
    words
}

/// The words after each key. A key that comes twice is the first one.
fn keys(text: &str) -> HashMap<String, Vec<&str>> {
    let mut keys: HashMap<String, Vec<&str>> = HashMap::new();
    let mut before: Option<(&str, Vec<&str>)> = None;
    for line in text.lines() {
        let (key, values) = match line.split_once(':') {
            Some((key, rest)) => (key.trim(), rest.split_whitespace().collect::<Vec<_>>()),
            None => {
                let mut words = line.split_whitespace();
                let Some(first) = words.next() else { continue };
                let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
                for (name, value) in pairs {
                    let full = match first.contains('=') {
                        true => name.to_string(),
                        false => format!("{first}.{name}"),
                    };
                    keys.entry(full).or_insert_with(|| vec![value]);
                }
                (first, words.collect())
            }
        };
        // The second of two lines of one tag has the values.
        if let Some((_, names)) = before.take().filter(|(tag, _)| *tag == key) {
            for (name, value) in names.iter().zip(&values) {
                keys.entry(format!("{key}.{name}")).or_insert_with(|| vec![value]);
            }
        } else {
            before = Some((key, values.clone()));
        }
        keys.entry(key.into()).or_insert(values);
    }
    keys
}

/// Sets a field to the first of `words`; a text of a key to all of them. An error if there is no
/// value of this type.
fn set<'a>(
    record: RecordBuilder<'a>,
    field: &FieldLayout,
    words: &[&str],
    whole: bool,
) -> Result<RecordBuilder<'a>, RecordBuilder<'a>> {
    let Some(first) = words.first() else { return Err(record) };
    match field.shape {
        Shape::Text(_) | Shape::Tail(_) if whole => {
            Ok(record.text(&field.name, words.join(" ").as_bytes()))
        }
        Shape::Text(_) | Shape::Tail(_) => Ok(record.text(&field.name, first.as_bytes())),
        Shape::One | Shape::Array(_) => match number(first, base(&field.decode)) {
            Some(value) => Ok(record.int(&field.name, value)),
            None => Err(record),
        },
    }
}

fn base(decode: &Decode) -> u32 {
    match decode {
        Decode::Hex => 16,
        Decode::Octal => 8,
        _ => 10,
    }
}

/// A decimal number, whose point is left out: 0.21 is 21. Or one of another base; of base 16 also
/// with `0x`.
fn number(word: &str, base: u32) -> Option<i64> {
    let (digits, base) = match word.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (word, base),
    };
    if base != 10 {
        return u64::from_str_radix(digits, base).ok().map(|n| n as i64);
    }
    let word = word.strip_suffix('%').unwrap_or(word);
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let without = match digits.split_once('.') {
        Some((whole, fraction)) if !whole.is_empty() && !fraction.is_empty() => {
            format!("{whole}{fraction}")
        }
        _ => digits.into(),
    };
    if !without.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    without.parse::<u64>().ok().map(|n| (n as i64).wrapping_mul(sign))
}

#[cfg(test)]
mod tests;
