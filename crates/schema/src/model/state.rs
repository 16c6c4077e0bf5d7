// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the bodies of probes remember from one hit to another.

use super::{Field, Scalar, Span};

/// `state NAME[N] by KEY { fields }`: a table of entries, each found by its key.
#[derive(Clone, Debug)]
pub struct State {
    pub name: String,
    pub doc: Option<String>,
    pub entries: Entries,
    pub key: Key,
    pub fields: Vec<Field>,
    /// The position of the name.
    pub span: Span,
}

/// How many entries a state has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    Number(u64),
    /// The value of this parameter.
    Parameter(String),
    /// One for each thread, or for each CPU.
    Each,
}

/// What the entries of a state are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A number that the body passes.
    Value(Scalar),
    /// A thread that the body passes, as `struct task_struct *`.
    Thread,
    /// This CPU.
    Cpu,
}
