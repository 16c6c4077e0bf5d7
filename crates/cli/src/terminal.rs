// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Standard output: its width, and the pager that shows it on a terminal.

use klogger_os::terminal;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Columns where there is no terminal, so that a file looks the same everywhere.
const WIDTH: usize = 100;
/// Nothing can be laid out in less, and nobody reads longer lines.
const NARROWEST: usize = 40;

/// Whether a pager shows what is printed, so that standard output is a pipe and yet a terminal.
static PAGED: AtomicBool = AtomicBool::new(false);

/// Columns of what is printed: `$COLUMNS`, else those of the terminal, else 100; not more.
pub fn width() -> usize {
    columns(std::io::stdout()).unwrap_or(WIDTH).min(WIDTH)
}

/// `$COLUMNS`, else those of the terminal, if the stream is one.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|word| word.parse().ok());
    let size = || terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into());
    asked.or_else(size).map(|found: usize| found.max(NARROWEST))
}

/// Whether people read what is printed.
pub fn is_terminal() -> bool {
    PAGED.load(Ordering::Relaxed) || std::io::stdout().is_terminal()
}

/// A program that shows the output. When this is dropped, it has shown all of it.
pub struct Pager(Child);

impl Pager {
    /// Starts `$KLOGGER_PAGER`, else `$PAGER`, else less. None if standard output is no terminal
    /// that can show one, if the pager is called `cat` or nothing, and if there is none.
    pub fn start() -> Option<Pager> {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        let named = ["KLOGGER_PAGER", "PAGER"].iter().find_map(std::env::var_os);
        let pager = named.unwrap_or_else(|| "less".into());
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        if is_dumb || pager.is_empty() || pager == "cat" {
            return None;
        }
        let width = width().to_string();
        let mut command = Command::new("sh");
        command.arg("-c").arg(&pager).stdin(Stdio::piped());
        // As git does: less shows a short text and ends, and leaves the terminal as it is.
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        let mut child = command.spawn().ok()?;
        terminal::redirect_output(child.stdin.take()?).ok()?;
        // The pipe is as wide as the terminal that it leads to.
        // SAFETY: klogger has no other thread yet.
        unsafe { std::env::set_var("COLUMNS", width) };
        terminal::ignore_interrupts();
        PAGED.store(true, Ordering::Relaxed);
        Some(Pager(child))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // It may have been left before the end.
        let _ = std::io::stdout().flush();
        terminal::close_output();
        let _ = self.0.wait();
    }
}
