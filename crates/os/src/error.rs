// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Errors: what failed, why, and the remedy.

use std::fmt;

#[derive(Clone, Debug)]
pub struct Error {
    pub message: String,
    pub help: Option<String>,
}

impl Error {
    pub fn new(message: impl fmt::Display) -> Error {
        Error { message: message.to_string(), help: None }
    }

    pub fn help(mut self, remedy: impl fmt::Display) -> Error {
        self.help = Some(remedy.to_string());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
