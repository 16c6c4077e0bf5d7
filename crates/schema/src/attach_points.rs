// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kinds of attach points that a probe can name: `probe KIND NAME(parameters)`. One row each.
//!
//! A row has what the language knows of a kind. Each engine has its own table of how it attaches
//! the kind; an engine without a row refuses such probes with a message. `docs/adding.md` describes
//! how to add a kind.

mod breakpoint;
mod function;
pub mod program;
mod sample;
mod snapshot;
pub mod syscall;
mod timer;
mod trace_event;
mod tracepoint;
mod usdt;
mod user;

pub use breakpoint::{Access, Breakpoint, Place, breakpoint};
pub use sample::{Only, Rate, Sample, sample};
pub use timer::period_ns;

use crate::names::is_identifier;
use crate::wildcard::{WILDCARDS, is_pattern};

/// Bytes of a name at most: a path and a symbol.
const NAME_MAX: usize = 512;
/// The largest number of parameters of a tracepoint.
const PARAMETERS_MAX: usize = 12;

/// Attach points of a probe at most. Each has a program or an event of its own: to load, attach and
/// detach it takes some milliseconds.
pub const PLACES_MAX: usize = 256;
/// The same in programs, where one link has all places of a file.
pub const PLACES_IN_PROGRAMS_MAX: usize = 1024;
/// Of system calls there are fewer: one program serves all.
const CALLS_MAX: usize = 512;

/// What is wrong with a name, in a few words, and the remedy.
pub type Wrong = (&'static str, String);

/// What the language knows of a kind.
struct Row {
    /// The word in a schema, or two words with a space.
    word: &'static str,
    /// What such an attach point is, in messages.
    noun: &'static str,
    /// A valid probe up to its body.
    example: &'static str,
    /// What other tools call the kind.
    elsewhere: &'static [&'static str],
    /// Parameters of a probe at most.
    parameters: usize,
    /// A name has several words, with one space between two of them.
    phrase: bool,
    /// Why a name of printable characters cannot be that of such an attach point.
    wrong: fn(name: &str) -> Option<Wrong>,
}

macro_rules! kinds {
    ($($kind:ident: $row:path,)*) => {
        /// A kind of attach point.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProbeKind {
            $($kind,)*
        }

        impl ProbeKind {
            pub const ALL: [ProbeKind; [$(stringify!($kind)),*].len()] = [$(ProbeKind::$kind),*];

            fn row(self) -> &'static Row {
                match self {
                    $(ProbeKind::$kind => &$row,)*
                }
            }
        }
    };
}

kinds! {
    Tracepoint: tracepoint::TRACEPOINT,
    TraceEvent: trace_event::TRACE_EVENT,
    Function: function::FUNCTION,
    Return: function::RETURN,
    Syscall: syscall::SYSCALL,
    ReturnSyscall: syscall::RETURN_SYSCALL,
    User: user::USER,
    ReturnUser: user::RETURN_USER,
    Usdt: usdt::USDT,
    Timer: timer::TIMER,
    Sample: sample::SAMPLE,
    Breakpoint: breakpoint::BREAKPOINT,
    Start: snapshot::START,
    End: snapshot::END,
}

impl ProbeKind {
    /// The kind with this word, or these two with a space.
    pub fn of(word: &str) -> Option<ProbeKind> {
        ProbeKind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The kind that another tool calls by this word.
    pub fn of_other_tools(word: &str) -> Option<ProbeKind> {
        ProbeKind::ALL.into_iter().find(|kind| kind.row().elsewhere.contains(&word))
    }

    pub fn word(self) -> &'static str {
        self.row().word
    }

    pub fn noun(self) -> &'static str {
        self.row().noun
    }

    pub fn example(self) -> &'static str {
        self.row().example
    }

    /// Parameters of such a probe at most.
    pub fn parameters_max(self) -> usize {
        self.row().parameters
    }

    /// A name of this kind has several words.
    pub fn is_phrase(self) -> bool {
        self.row().phrase
    }

    /// Whether a probe may name several such attach points, by a list or by wildcards.
    pub fn takes_many(self) -> bool {
        match self {
            ProbeKind::Tracepoint
            | ProbeKind::TraceEvent
            | ProbeKind::Function
            | ProbeKind::Return
            | ProbeKind::Syscall
            | ProbeKind::ReturnSyscall
            | ProbeKind::User
            | ProbeKind::ReturnUser
            | ProbeKind::Usdt => true,
            ProbeKind::Timer
            | ProbeKind::Sample
            | ProbeKind::Breakpoint
            | ProbeKind::Start
            | ProbeKind::End => false,
        }
    }

    /// Whether its places are system calls: its programs are reached by way of one for all calls.
    pub fn is_system_call(self) -> bool {
        matches!(self, ProbeKind::Syscall | ProbeKind::ReturnSyscall)
    }

    /// Whether the places of such a probe are in programs and libraries.
    pub fn is_in_program(self) -> bool {
        matches!(self, ProbeKind::User | ProbeKind::ReturnUser | ProbeKind::Usdt)
    }

    /// Whether a program of such a probe finds out at a hit at which of its places it is.
    /// Otherwise each place has a program of its own, with its number as a constant.
    pub fn finds_place(self) -> bool {
        self.takes_many()
            && !matches!(self, ProbeKind::Tracepoint | ProbeKind::Function | ProbeKind::Return)
    }

    /// Attach points of a probe of this kind at most.
    pub fn places_max(self) -> usize {
        match self {
            ProbeKind::User | ProbeKind::ReturnUser | ProbeKind::Usdt => PLACES_IN_PROGRAMS_MAX,
            kind if kind.is_system_call() => CALLS_MAX,
            _ => PLACES_MAX,
        }
    }

    /// Whether a name, which may be a list, means several attach points.
    pub(crate) fn is_many(self, name: &str) -> bool {
        let all_calls = self.is_system_call() && name == syscall::ALL_CALLS;
        self.takes_many() && !all_calls && (name.contains(", ") || is_pattern(name))
    }

    /// Why a name cannot be that of an attach point of this kind, and the remedy.
    pub fn wrong(self, name: &str) -> Option<Wrong> {
        let plain = name.replace(WILDCARDS, "_");
        self.wrong_name(if self.is_many(name) { &plain } else { name })
    }

    fn wrong_name(self, name: &str) -> Option<Wrong> {
        let space = |c: char| c == ' ' && self.is_phrase();
        let graphic = |c: char| space(c) || c.is_ascii_graphic() && !"\\'`$".contains(c);
        if name.len() > NAME_MAX || !name.chars().all(graphic) {
            return Some(("not the characters of a name", self.for_example()));
        }
        (self.row().wrong)(name)
    }

    fn for_example(self) -> String {
        format!("for example `{}`", self.example())
    }
}

/// A function's name: that of C, with what compilers append, such as `.isra.0`.
fn is_symbol(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.@+-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_valid() {
        for kind in ProbeKind::ALL {
            let begin = format!("probe {} ", kind.word());
            let rest = kind.example().strip_prefix(&begin).unwrap();
            assert_eq!(kind.wrong(rest.split('(').next().unwrap()), None);
        }
    }

    #[test]
    fn a_word_means_one_kind() {
        for kind in ProbeKind::ALL {
            assert_eq!(ProbeKind::of(kind.word()), Some(kind));
            for word in kind.row().elsewhere {
                assert_eq!(ProbeKind::of_other_tools(word), Some(kind));
                assert_eq!(ProbeKind::of(word), None);
            }
        }
    }
}
