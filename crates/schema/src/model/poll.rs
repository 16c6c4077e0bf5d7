// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the recorder reads of a file for an event.

use super::Span;

/// `poll NAME from "PATH" every INTERVAL rows { ... }`: what the recorder reads of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    pub path: String,
    pub every_ns: u64,
    /// Each line of numbers is an event.
    pub rows: bool,
    /// Of each field: where its value is.
    pub sources: Vec<Source>,
    /// The position of the path.
    pub span: Span,
}

/// Where a field's value is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The n-th word (from 1) after a key.
    Key(String, u32),
    /// The n-th word (from 1) of the row or of the whole file.
    Word(u32),
}
