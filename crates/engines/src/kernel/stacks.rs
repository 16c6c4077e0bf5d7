// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of kernel stacks, which modules fill.

use super::device::{
    STACK_COMPLETE, STACK_DEPTH, STACK_FRAME, STACK_SLOT, STACK_SLOTS, STACKS_BYTES, STACKS_HEAD,
};
use crate::stacks::{StackTable, Unnumbered};
use klogger_os::Mapping;
use std::sync::atomic::Ordering;

/// The table, mapped.
pub struct Stacks(Mapping);

impl Stacks {
    pub const BYTES: usize = STACKS_BYTES;

    /// The mapping is [`Stacks::BYTES`] long.
    pub fn new(table: Mapping) -> Stacks {
        Stacks(table)
    }

    /// The frames of a slot, if it holds a complete stack.
    fn frames(&self, slot: usize) -> Option<Vec<u64>> {
        let at = STACKS_HEAD + slot * STACK_SLOT;
        // State and number of frames share a word. Pairs with the release store in
        // klogger_take_slot().
        let head = self.0.word(at).load(Ordering::Acquire);
        let (state, frames) = (head as u32, (head >> 32) as usize);
        let frame = |n: usize| self.0.word(at + STACK_FRAME + 8 * n).load(Ordering::Relaxed);
        (state == STACK_COMPLETE).then(|| (0..frames.min(STACK_DEPTH)).map(frame).collect())
    }
}

impl StackTable for Stacks {
    /// Those that are complete.
    fn read(&self) -> Vec<(u32, Vec<u64>)> {
        (0..STACK_SLOTS).filter_map(|n| Some((n as u32 + 1, self.frames(n)?))).collect()
    }

    /// What cannot be walked is not counted by modules.
    fn unnumbered(&self) -> Unnumbered {
        Unnumbered { no_slot: self.0.word(0).load(Ordering::Relaxed), not_walked: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::memory;
    use super::*;

    #[test]
    fn only_complete_stacks_are_read() {
        let table = Stacks::new(memory(Stacks::BYTES));
        let write = |slot: usize, state: u64, frames: &[u64]| {
            let at = STACKS_HEAD + slot * STACK_SLOT;
            table.0.word(at).store((frames.len() as u64) << 32 | state, Ordering::Relaxed);
            frames
                .iter()
                .enumerate()
                .for_each(|(i, f)| table.0.word(at + 8 + 8 * i).store(*f, Ordering::Relaxed));
        };
        write(0, 2, &[10, 20]);
        write(1, 1, &[30]);
        write(STACK_SLOTS - 1, 2, &[40; STACK_DEPTH]);
        assert_eq!(table.frames(0), Some(vec![10, 20]));
        assert_eq!(table.frames(1), None);
        assert_eq!(table.frames(STACK_SLOTS - 1), Some(vec![40; STACK_DEPTH]));
    }
}
