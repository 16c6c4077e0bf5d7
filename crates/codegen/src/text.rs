// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A text that counts its lines, for `#line`.

use klogger_schema::model::{CBlock, Schema, Span};
use std::fmt;

pub(crate) struct Text {
    name: String,
    text: String,
    lines: usize,
}

impl Text {
    /// `name`: the file name to which `#line` returns after C from the schema.
    pub fn new(name: &str) -> Text {
        Text { name: name.to_string(), text: String::new(), lines: 0 }
    }

    pub fn push(&mut self, part: impl fmt::Display) {
        let part = part.to_string();
        self.lines += part.matches('\n').count();
        self.text += &part;
    }

    /// Adds C from the schema so that compiler messages have the schema's line and column. The text
    /// begins after the opening brace, hence the padding.
    pub fn push_c(&mut self, schema: &Schema, block: &CBlock) {
        let padding = " ".repeat(block.column.saturating_sub(1) as usize);
        self.push(format_args!(
            "#line {} {}\n{padding}{}\n",
            block.line,
            quote(&schema.file),
            block.text
        ));
        let line = self.lines + 2;
        let name = quote(&self.name);
        self.push(format_args!("#line {line} {name}\n"));
    }

    /// Adds a line of generated C that declares what the schema has at `span`, so that compiler
    /// messages have that line.
    pub fn push_at(&mut self, schema: &Schema, span: Span, c: &str) {
        let line = schema.text[..span.start].matches('\n').count() + 1;
        self.push(format_args!("#line {line} {}\n{c}\n", quote(&schema.file)));
        let (line, name) = (self.lines + 2, quote(&self.name));
        self.push(format_args!("#line {line} {name}\n"));
    }

    pub fn finish(self) -> String {
        self.text
    }
}

/// A file's name as the compiler's messages give it.
pub fn printable(name: &str) -> String {
    name.replace(|c: char| c.is_control(), "?")
}

/// A part of a C name; names of attach points may have other characters.
pub(crate) fn identifier(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_")
}

/// A C string literal.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in printable(text).chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Makes a text safe inside a C comment.
pub(crate) fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace(|c: char| c.is_control(), " ")
}

/// A C string literal of any bytes, one line per line of the text.
pub(crate) fn literal(text: &str) -> String {
    let mut out = String::from("\n\t\"");
    for byte in text.bytes() {
        match byte {
            b'\n' => out += "\\n\"\n\t\"",
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            // Octal, because a hexadecimal escape has no end; `?` is escaped because of trigraphs.
            b'?' | 0..=31 | 127..=255 => out += &format!("\\{byte:03o}"),
            printable => out.push(char::from(printable)),
        }
    }
    out + "\""
}
