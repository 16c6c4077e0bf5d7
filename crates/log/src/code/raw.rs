// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the frames of a user stack are found from.

use super::Place;
use std::fmt::Write;

/// Words of a stack that are read; a forged log may have more.
const WORDS_MAX: usize = 256;

/// What was recorded of a stack: callers of functions without frame pointers are found from it when
/// the files of these functions are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// The frames that the kernel has found, if they are not those of the stack.
    pub kernel: Vec<Place>,
    /// The frame pointer, in bytes above the stack pointer, if it points into the stack.
    pub frame: Option<u64>,
    /// Words of the stack, the nearest first.
    pub words: Vec<Word>,
}

/// A word of the stack that may be needed to find a caller. `P`: how a place in code is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<P = Place> {
    /// Where it is, in bytes above the stack pointer.
    pub at: u64,
    pub is: WordIs<P>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordIs<P = Place> {
    /// An address after a call, or of code that was not in memory; a [`Place`] is before it.
    Return(P),
    /// A frame pointer, in bytes above the stack pointer.
    Frame(u64),
}

impl<P> Word<P> {
    /// The same with another place.
    pub fn with_place<Q>(self, place: impl FnOnce(P) -> Q) -> Word<Q> {
        let is = match self.is {
            WordIs::Return(at) => WordIs::Return(place(at)),
            WordIs::Frame(frame) => WordIs::Frame(frame),
        };
        Word { at: self.at, is }
    }
}

impl Raw {
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.kernel.iter().chain(self.words.iter().filter_map(|word| word.is.place()))
    }

    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.kernel.iter_mut().chain(self.words.iter_mut().filter_map(|word| word.is.place_mut()))
    }

    pub(super) fn push(&mut self, word: Word) {
        if self.words.len() < WORDS_MAX {
            self.words.push(word);
        }
    }

    pub(super) fn lines(&self, stack: u64, text: &mut String) {
        if !self.kernel.is_empty() {
            let _ = write!(text, "k {stack}");
            for place in &self.kernel {
                let _ = write!(text, " {place}");
            }
            text.push('\n');
        }
        if let Some(frame) = self.frame {
            let _ = writeln!(text, "b {stack} - {frame}");
        }
        for Word { at, is } in &self.words {
            let _ = match is {
                WordIs::Return(place) => writeln!(text, "c {stack} {at} {place}"),
                WordIs::Frame(frame) => writeln!(text, "b {stack} {at} {frame}"),
            };
        }
    }
}

impl WordIs {
    fn place(&self) -> Option<&Place> {
        match self {
            WordIs::Return(place) => Some(place),
            WordIs::Frame(_) => None,
        }
    }

    fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            WordIs::Return(place) => Some(place),
            WordIs::Frame(_) => None,
        }
    }
}
