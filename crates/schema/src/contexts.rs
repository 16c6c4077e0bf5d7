// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The words of `context WORD ...`: properties of the running thread. One row each.
//!
//! Generated C calls `klogger_context_WORD()`, which the runtime of every engine that has the
//! context defines: `docs/adding.md` lists the files.

use crate::model::{Decode, Decoding, Scalar, Shape};
use serde::{Deserialize, Serialize};

/// A context, and the field that it makes.
pub struct Row {
    pub context: Context,
    /// The word in a schema, and the field's name.
    pub word: &'static str,
    pub type_name: &'static str,
    pub scalar: Scalar,
    pub shape: Shape,
    decode: Shown,
    /// Whether programs can read it about themselves, so that the user engine has it.
    pub in_programs: bool,
    /// Whether modules can read it, so that the kernel engine has it.
    pub in_modules: bool,
    /// What the field contains, as the guide to the language has it.
    pub doc: &'static str,
}

/// How the values of a context are shown.
enum Shown {
    Plain,
    Thread,
    Stack,
    /// By a table that no schema needs to declare.
    Texts(&'static Texts),
}

/// The name of an `enum`, and its values in ascending order from 0.
struct Texts(&'static str, &'static [&'static str]);

/// Which kind of code the probe has interrupted, or is called by.
static IRQ_LEVELS: Texts = Texts("irq_level", &["thread", "softirq", "hardirq", "nmi", "unknown"]);

impl Row {
    pub fn decode(&self) -> Decode {
        match self.decode {
            Shown::Plain => Decode::Plain,
            Shown::Thread => Decode::Thread,
            Shown::Stack => Decode::Stack,
            Shown::Texts(texts) => Decode::Table(texts.0.into()),
        }
    }

    /// The table that shows its values, if it has one of its own.
    pub fn table(&self) -> Option<Decoding> {
        let Shown::Texts(Texts(name, texts)) = self.decode else { return None };
        let values = texts.iter().enumerate().map(|(n, text)| (n as u64, text.to_string()));
        Some(Decoding { name: name.to_string(), flags: false, values: values.collect() })
    }
}

macro_rules! contexts {
    ($($context:ident $word:literal $ty:literal $scalar:ident $shape:expr, $decode:expr,
        $programs:ident $modules:ident $doc:literal)*) => {
        /// A property of the running thread.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Context {
            $($context,)*
        }

        /// In the order of the guide.
        pub static CONTEXTS: &[Row] = &[$(Row {
            context: Context::$context,
            word: $word,
            type_name: $ty,
            scalar: Scalar::$scalar,
            shape: $shape,
            decode: $decode,
            in_programs: $programs,
            in_modules: $modules,
            doc: $doc,
        },)*];

        impl Context {
            pub fn row(self) -> &'static Row {
                &CONTEXTS[self as usize]
            }
        }
    };
}

use Shape::{One, Text};
use Shown::{Plain, Stack, Texts as Enum, Thread};

// Context, word, type, machine type, shape, decoding, whether programs have it, whether modules
// have it, description.
contexts! {
    Tid    "tid"    "int" I32 One, Thread, true true "thread id"
    Tgid   "tgid"   "int" I32 One, Plain,  true true "process id"
    Prio   "prio"   "int" I32 One, Plain,  false true
        "kernel priority: 0 to 99 real time, 100 to 139 others"
    Cgroup "cgroup" "u64" U64 One, Plain,  false true "id of the control group"
    Ppid   "ppid"   "int" I32 One, Plain,  true true
        "process id of the parent, which may change"
    Irq    "irq"    "u8"  U8  One, Enum(&IRQ_LEVELS), true true
        "what ran: thread, softirq, hardirq or nmi"
    Netns  "netns"  "uint" U32 One, Plain, false true "inode number of the network namespace"
    PidnsTid "pidns_tid" "int" I32 One, Plain, true true "thread id in its own pid namespace"
    Comm   "comm"   "string[16]" U8 Text(16), Plain, true true "name of the thread"
    Memcg  "memcg"  "u64" U64 One, Plain,  false true "id of the memory control group"
    Stack  "stack"  "uint" U32 One, Stack, false true "number of the kernel stack"
    UserStack "user_stack" "uint" U32 One, Stack, false true "number of the user stack"
    OtelTrace "otel_trace" "string[32]" U8 Text(32), Plain, false false
        "trace id of the request, of OpenTelemetry"
    OtelSpan "otel_span" "string[16]" U8 Text(16), Plain, false false
        "span id of the request, of OpenTelemetry"
}

/// A word for several contexts.
pub const TOGETHER: &[(&str, &[Context])] = &[("otel", &[Context::OtelTrace, Context::OtelSpan])];

/// All words that may stand after `context`.
pub fn words() -> impl Iterator<Item = &'static str> {
    CONTEXTS.iter().map(|row| row.word).chain(TOGETHER.iter().map(|(word, _)| *word))
}

/// The contexts that a word stands for; none if it is unknown.
pub fn of(word: &str) -> Vec<Context> {
    match TOGETHER.iter().find(|(name, _)| *name == word) {
        Some((_, contexts)) => contexts.to_vec(),
        None => Context::of(word).into_iter().collect(),
    }
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
            assert_eq!(of(row.word), [row.context]);
        }
    }

    #[test]
    fn a_word_for_several_contexts_is_no_context() {
        for (word, contexts) in TOGETHER {
            assert_eq!((Context::of(word), of(word).as_slice()), (None, *contexts));
        }
        assert_eq!(of("otel_spam"), []);
    }
}
