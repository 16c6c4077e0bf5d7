// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Places in programs and libraries, for probes of user space: where a function or a static probe
//! is in which file, and where its arguments are.
//!
//! Programs are untrusted: whatever a file contains, the result is a place or a message.

pub mod arguments;
mod elf;
mod find;
mod instructions;
mod libraries;
mod list;
mod packed;
mod returns;
mod several;
mod static_probes;
mod symbols;
pub mod thread_local;
pub mod variables;
mod which;

pub use find::{Found, Location};
pub use instructions::Hit;
pub use list::{InFile, is_program, list};
pub use which::{Of, Programs};

use klogger_codegen::Refusal;

/// What is wrong with a file, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    message: String,
    help: Option<String>,
}

impl Wrong {
    fn new(message: impl Into<String>) -> Wrong {
        Wrong { message: message.into(), help: None }
    }

    fn help(self, help: impl Into<String>) -> Wrong {
        Wrong { help: Some(help.into()), ..self }
    }

    /// In half a line.
    pub fn why(&self) -> &str {
        &self.message
    }

    /// Of the file with this path.
    fn of(self, path: &str) -> Refusal {
        Refusal::of_this_kernel(format!("cannot probe {path}: {}", self.message), self.help)
    }
}
