// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How far a reader is, noted in its ring: a recording goes on although its reader has died.

use super::RingReader;
use crate::layout::ring::{NOTE, NOTE_MAIN, NOTE_NESTED, NOTE_SERIALS, TURN};
use std::sync::atomic::Ordering;

/// How far a reader had come. It is noted in the ring, for whoever goes on when the reader has
/// died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Bytes taken out of the main ring, and of the nested one.
    pub main: u64,
    pub nested: u64,
    /// Numbers that the records took which were in those bytes.
    pub serials: u64,
}

/// Where the words of a note are: of the first one or, if `turn` is 1, of the second.
fn note_at(turn: u64) -> [usize; 3] {
    [NOTE_MAIN, NOTE_NESTED, NOTE_SERIALS].map(|at| at + NOTE * turn as usize)
}

impl RingReader {
    /// Says how far the reader is, before anything is zeroed. There are two places, so that one is
    /// valid whenever the reader may die.
    pub fn leave(&self, note: Note) {
        if !self.trusted {
            return;
        }
        let turn = (self.word(TURN).load(Ordering::Relaxed) & 1) ^ 1;
        for (at, word) in note_at(turn).into_iter().zip([note.main, note.nested, note.serials]) {
            self.word(at).store(word, Ordering::Relaxed);
        }
        // Pairs with the load of note().
        self.word(TURN).store(turn, Ordering::Release);
    }

    /// How far the last reader of this ring had come.
    pub fn note(&self) -> Note {
        let turn = self.word(TURN).load(Ordering::Acquire) & 1;
        let [main, nested, serials] = note_at(turn).map(|at| self.word(at).load(Ordering::Relaxed));
        Note { main, nested, serials }
    }
}
