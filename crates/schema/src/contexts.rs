// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The words of `context WORD ...`: properties of the running thread. One row each.
//!
//! Generated C calls `klogger_context_WORD()`, which the runtime of every engine that has the
//! context defines: `docs/adding.md` lists the files.

use crate::model::{Decode, Scalar};
use serde::{Deserialize, Serialize};

/// A context, and the field that it makes.
pub struct Row {
    pub context: Context,
    /// The word in a schema, and the field's name.
    pub word: &'static str,
    pub type_name: &'static str,
    pub scalar: Scalar,
    pub decode: Decode,
    /// Whether programs can read it about themselves, so that the user engine has it.
    pub in_programs: bool,
    /// What the field contains, as the guide to the language has it.
    pub doc: &'static str,
}

macro_rules! contexts {
    ($($context:ident $word:literal $ty:literal $scalar:ident $decode:ident $programs:ident
        $doc:literal)*) => {
        /// A property of the running thread.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Context {
            $($context,)*
        }

        /// In the order of the guide.
        pub static CONTEXTS: &[Row] = &[$(Row {
            context: Context::$context,
            word: $word,
            type_name: $ty,
            scalar: Scalar::$scalar,
            decode: Decode::$decode,
            in_programs: $programs,
            doc: $doc,
        },)*];

        impl Context {
            pub fn row(self) -> &'static Row {
                &CONTEXTS[self as usize]
            }
        }
    };
}

// Context, word, type, machine type, decoding, whether programs have it, description.
contexts! {
    Tid    "tid"    "int" I32 Thread true  "thread id"
    Tgid   "tgid"   "int" I32 Plain  true  "process id"
    Prio   "prio"   "int" I32 Plain  false "kernel priority: 0 to 99 real time, 100 to 139 others"
    Cgroup "cgroup" "u64" U64 Plain  false "id of the control group"
    Ppid   "ppid"   "int" I32 Plain  true  "process id of the parent, which may change"
}

impl Context {
    /// By the word of the language.
    pub fn of(word: &str) -> Option<Context> {
        CONTEXTS.iter().find(|row| row.word == word).map(|row| row.context)
    }

    pub fn word(self) -> &'static str {
        self.row().word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs carry the context's name as serde writes it.
    #[test]
    fn a_context_is_called_by_its_word_in_logs_too() {
        for row in CONTEXTS {
            assert_eq!(serde_json::to_value(row.context).unwrap(), row.word);
            assert_eq!(Context::of(row.word), Some(row.context));
        }
    }
}
