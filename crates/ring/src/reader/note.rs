// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The position of a reader, stored in its ring, so that another reader can continue if it is
//! killed.

use super::RingReader;
use crate::layout::ring::{NOTE, NOTE_MAIN, NOTE_NESTED, NOTE_SERIALS, TURN};
use std::sync::atomic::Ordering;

/// The position of a reader, stored in the ring for the next reader if this one is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Bytes taken out of the main ring, and of the nested one.
    pub main: u64,
    pub nested: u64,
    /// Serial numbers taken by the records in those bytes.
    pub serials: u64,
}

/// Offsets of the words of a position: of the first slot or, if `turn` is 1, of the second.
fn note_at(turn: u64) -> [usize; 3] {
    [NOTE_MAIN, NOTE_NESTED, NOTE_SERIALS].map(|at| at + NOTE * turn as usize)
}

impl RingReader {
    /// Stores the position before anything is zeroed. There are two slots, so that one is valid
    /// whenever the reader is killed.
    pub fn leave(&self, note: Note) {
        if !self.trusted {
            return;
        }
        let turn = (self.word(TURN).load(Ordering::Relaxed) & 1) ^ 1;
        for (at, word) in note_at(turn).into_iter().zip([note.main, note.nested, note.serials]) {
            self.word(at).store(word, Ordering::Relaxed);
        }
        // Pairs with the load in note().
        self.word(TURN).store(turn, Ordering::Release);
    }

    /// The position of the last reader of this ring.
    pub fn note(&self) -> Note {
        let turn = self.word(TURN).load(Ordering::Acquire) & 1;
        let [main, nested, serials] = note_at(turn).map(|at| self.word(at).load(Ordering::Relaxed));
        Note { main, nested, serials }
    }
}
