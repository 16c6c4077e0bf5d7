// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Modules of the kernel that a schema needs.

use super::Span;

/// The longest name of a module that the kernel takes (MODULE_NAME_LEN, with the NUL).
const NAME_MAX: usize = 55;

/// `module NAME optional`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// As the kernel writes it, with `_` for `-`.
    pub name: String,
    /// The schema can be recorded without it.
    pub optional: bool,
    /// The position of the name.
    pub span: Span,
}

impl Module {
    /// Whether this can be the name of a module: letters, digits, `_` and `-`, none of them first
    /// that could make it an option of a program.
    pub fn is_name(word: &str) -> bool {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !word.is_empty()
            && !word.starts_with('-')
            && word.len() <= NAME_MAX
            && word.chars().all(legal)
    }
}
