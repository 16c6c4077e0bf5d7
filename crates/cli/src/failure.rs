// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The error of a command: one message, and a remedy if there is one.

use klogger_codegen::Refusal;
use std::fmt::{self, Display};
use std::process::ExitCode;

/// What a command comes to.
pub type Outcome = Result<ExitCode, Failure>;

/// Printed as `klogger: MESSAGE`, then `  help: REMEDY`; exit code 2.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub help: Option<String>,
    /// The message has been printed already (diagnostics of a schema are many).
    pub silent: bool,
}

impl Failure {
    pub fn new(message: impl Display) -> Failure {
        Failure { message: message.to_string(), help: None, silent: false }
    }

    /// For when the messages have been printed already.
    pub fn printed() -> Failure {
        Failure { message: String::new(), help: None, silent: true }
    }

    pub fn help(mut self, remedy: impl Display) -> Failure {
        self.help = Some(remedy.to_string());
        self
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure { message: refusal.message, help: refusal.help, silent: false }
    }
}

impl From<klogger_os::Error> for Failure {
    fn from(error: klogger_os::Error) -> Failure {
        Failure { message: error.message, help: error.help, silent: false }
    }
}
