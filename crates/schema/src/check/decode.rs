// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks that the values of fields can be decoded as the schema says.

use crate::diagnostic::Diagnostic;
use crate::model::{Decode, ENDPOINT_BYTES, Field, Scalar, Shape, Span};
use crate::names::shorten;
use crate::nearest::{alternatives, did_you_mean};
use crate::parse::Draft;
use crate::system_calls;
use crate::vocabulary::{DECODES, PLACE};

const ENDPOINT: Shape = Shape::Array(ENDPOINT_BYTES);

/// Checks that a field's values can be decoded in this way.
pub fn check_decode(field: &Field, span: Span, all: &Draft, found: &mut Vec<Diagnostic>) {
    let wrong = |what: &str, help: &str| {
        let message = format!("a {} cannot be {what}", describe(field));
        Some(
            Diagnostic::error(span, message)
                .label("does not fit the type")
                .related(field.span, "of this field")
                .help(help),
        )
    };
    let integer =
        matches!(field.shape, Shape::One | Shape::Array(_)) && field.scalar != Scalar::Bool;
    let bytes = field.scalar.size();
    found.extend(match &field.decode {
        Decode::Plain => None,
        Decode::Hex if integer => None,
        Decode::Hex => wrong("shown in hexadecimal", "`as hex` needs an integer type"),
        Decode::Octal if integer => None,
        Decode::Octal => wrong("shown in octal", "`as octal` needs an integer type"),
        Decode::Thread if !integer => wrong("a thread id", "write `int`"),
        Decode::Thread if bytes != 4 => {
            let message = format!("`{}` is a thread id, but not an `int`", field.name);
            Some(
                Diagnostic::warning(span, message)
                    .label(format!("{bytes} bytes"))
                    .help("thread ids of Linux are 32 bits: write `int`"),
            )
        }
        Decode::Thread => None,
        Decode::Code if integer && bytes == 8 => None,
        Decode::Code => wrong("an address", "write `ulong`, or an array of it for a stack"),
        Decode::Data if field.shape == Shape::One && integer && bytes == 8 => None,
        Decode::Data => wrong("an address", "write `ulong`"),
        Decode::Stack if field.shape == Shape::One && field.scalar == Scalar::U32 => None,
        Decode::Stack => wrong("the number of a stack", "write `uint`"),
        Decode::Device if integer && bytes >= 4 => None,
        Decode::Device => wrong("a device number", "write `uint`"),
        Decode::Ip if integer && ip_bytes(field) => None,
        Decode::Ip => {
            wrong("an IP address", "write `uint`, or `u8 NAME[4]`, or `u8 NAME[16]` for IPv6")
        }
        Decode::Endpoint if field.scalar == Scalar::U8 && field.shape == ENDPOINT => None,
        Decode::Endpoint => wrong("an endpoint", "write `u8 NAME[20]`"),
        Decode::Errno if integer && field.scalar.signed() => None,
        Decode::Errno => wrong("an error number", "errors are negative: write `int` or `long`"),
        Decode::Table(name) if name == PLACE => match (integer, bytes) {
            (true, 2..) => None,
            _ => wrong("the number of a place", "write `ushort` or `uint`"),
        },
        Decode::Path if matches!(field.shape, Shape::Text(_) | Shape::Tail(_)) => None,
        Decode::Path => wrong("a path", "write `string`"),
        Decode::Table(name) => match all.tables.iter().any(|(t, _)| t.name == *name) {
            true if integer || field.scalar == Scalar::Bool => None,
            true => wrong("decoded by a table", "tables give texts to integers"),
            false => unknown_decoding(name, span, all),
        },
    });
}

/// Whether a field holds as many bytes as an address has.
fn ip_bytes(field: &Field) -> bool {
    match field.shape {
        Shape::One => field.scalar.size() == 4,
        Shape::Array(n) => field.scalar.size() == 1 && (n == 4 || n == 16),
        Shape::Text(_) | Shape::Tail(_) => false,
    }
}

fn unknown_decoding(name: &str, span: Span, all: &Draft) -> Option<Diagnostic> {
    let known = DECODES.iter().map(|(word, _)| *word).chain([system_calls::TABLE, PLACE]);
    let help =
        did_you_mean(name, known.clone().chain(all.tables.iter().map(|(t, _)| t.name.as_str())))
            .unwrap_or_else(|| {
                format!(
                    "there are {}, and the enums and flags of this schema",
                    alternatives(&known.collect::<Vec<_>>(), "and")
                )
            });
    // A table that could not be parsed may have that name.
    let certain = !all.incomplete;
    certain.then(|| {
        Diagnostic::error(span, format!("unknown decoding `{}`", shorten(name)))
            .label("not known")
            .help(help)
    })
}

/// The field's type in words.
fn describe(field: &Field) -> String {
    match field.shape {
        Shape::One => format!("`{}`", field.type_name),
        Shape::Array(n) => format!("`{}[{n}]`", field.type_name),
        Shape::Text(_) | Shape::Tail(_) => "text".into(),
    }
}
