// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Colours of a terminal.

/// `--color`
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless $NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy)]
pub enum Colour {
    Red,
    Cyan,
    Bold,
}

/// Whether texts are coloured.
pub struct Paint(bool);

impl Paint {
    pub fn new(when: When, is_terminal: bool) -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(match when {
            When::Always => true,
            When::Never => false,
            When::Auto => !refused && is_terminal,
        })
    }

    pub fn begin(&self, colour: Colour, out: &mut Vec<u8>) {
        let code: &[u8] = match colour {
            Colour::Red => b"\x1b[31m",
            Colour::Cyan => b"\x1b[36m",
            Colour::Bold => b"\x1b[1m",
        };
        if self.0 {
            out.extend_from_slice(code);
        }
    }

    pub fn end(&self, out: &mut Vec<u8>) {
        if self.0 {
            out.extend_from_slice(b"\x1b[0m");
        }
    }

    /// A text without characters that control a terminal.
    pub fn push(&self, colour: Colour, text: &[u8], out: &mut Vec<u8>) {
        self.begin(colour, out);
        out.extend_from_slice(text);
        self.end(out);
    }
}
