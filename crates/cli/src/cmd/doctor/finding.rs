// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What one look has found.

use crate::text::layout::paragraph;
use klogger_os::Error;
use klogger_os::confine::find_program;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ok,
    /// It works, and something of it is slower or less than it could be.
    Limited,
    /// Some recordings do not work.
    Missing,
    /// Events of the kernel cannot be recorded at all.
    Refused,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing | State::Refused => "missing",
        }
    }
}

#[derive(Debug)]
pub struct Finding {
    /// What was looked at, in one or two words.
    pub name: &'static str,
    pub state: State,
    /// What was found, in a line.
    pub found: String,
    /// What does not work without it.
    pub without: Option<&'static str>,
    /// The remedy.
    pub help: Option<String>,
}

impl Finding {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, state: State::Ok, found: found.into(), without: None, help: None }
    }

    /// What does not work `without` it is a part of klogger.
    pub fn missing(name: &'static str, found: impl Into<String>, without: &'static str) -> Finding {
        Finding { state: State::Missing, without: Some(without), ..Finding::ok(name, found) }
    }

    pub fn limited(name: &'static str, found: impl Into<String>, without: &'static str) -> Finding {
        Finding { state: State::Limited, ..Finding::missing(name, found, without) }
    }

    pub fn help(self, remedy: impl Into<String>) -> Finding {
        Finding { help: Some(remedy.into()), ..self }
    }

    /// The same, unless it is well.
    pub fn help_if_lacking(self, remedy: &str) -> Finding {
        if self.state == State::Ok { self } else { self.help(remedy) }
    }

    /// Without it, no event of the kernel is recorded.
    pub fn refused(name: &'static str, error: &Error) -> Finding {
        Finding { state: State::Refused, ..Finding::of_error(name, error, "recording the kernel") }
    }

    pub fn of_error(name: &'static str, error: &Error, without: &'static str) -> Finding {
        let found = Finding::missing(name, &*error.message, without);
        Finding { help: error.help.clone(), ..found }
    }

    /// What was found, or why it was not, and what does not work `without` it.
    pub fn of(
        name: &'static str,
        found: Result<impl Into<String>, Error>,
        without: &'static str,
    ) -> Finding {
        match found {
            Ok(found) => Finding::ok(name, found),
            Err(e) => Finding::of_error(name, &e, without),
        }
    }

    /// A program that klogger runs. `package`: of Debian, where it is.
    pub fn of_program(
        name: &'static str,
        program: &str,
        without: &'static str,
        package: &str,
    ) -> Finding {
        match find_program(program) {
            Some(path) => Finding::ok(name, path.display().to_string()),
            None => {
                let found = format!("there is no program {program} on the PATH");
                Finding::missing(name, found, without).help(format!("apt-get install {package}"))
            }
        }
    }

    pub fn records(&self) -> bool {
        self.state != State::Refused
    }

    pub fn json(&self, group: &str) -> Value {
        json!({
            "group": group,
            "name": self.name,
            "state": self.state.word(),
            "needed": self.state == State::Refused,
            "found": self.found,
            "without": self.without,
            "help": self.help,
        })
    }

    /// `indent`: the columns of its state and its name.
    pub fn print(&self, out: &mut String, indent: usize, width: usize) {
        let label = format!("  {:<8} {:<20} ", self.state.word(), self.name);
        paragraph(out, &label, &self.found, indent, width);
        let after = " ".repeat(indent);
        let width = width.max(indent + 20);
        if let Some(without) = self.without {
            paragraph(out, &format!("{after}affects: "), without, indent + 9, width);
        }
        if let Some(help) = &self.help {
            paragraph(out, &format!("{after}help: "), help, indent + 6, width);
        }
    }
}
