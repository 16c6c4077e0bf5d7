// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of user stacks, which programs fill, and the record of what processes have mapped.

use super::load::map_memory;
use crate::user_code::{Mappings, Stack, UserCode};
use klogger_log::code::{Word, WordIs};
use klogger_os::{Error, Mapping};
use klogger_ring::layout::bpf as layout;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// The user stacks of probe hits.
pub struct UserStacks {
    table: Mapping,
}

impl UserStacks {
    pub(super) fn new(table: &OwnedFd) -> Result<UserStacks, Error> {
        Ok(UserStacks { table: map_memory(table, layout::USER_STACKS)? })
    }

    fn word(&self, at: usize) -> u64 {
        self.table.word(at).load(Ordering::Acquire)
    }

    fn read(&self) -> Vec<Stack> {
        let slot = |n: usize| {
            let place = layout::USER_STACKS_SLOT + layout::USER_SLOT * n + layout::USER_SLOT_PLACE;
            let at = usize::try_from(self.word(place)).ok()?.checked_sub(1)?;
            let word = |n: usize| self.word(layout::USER_STACKS_WORD + 8 * (at + n));
            let (time, head, frame) = (word(0), word(1), word(2));
            let frames = (head as u8 as usize).min(layout::USER_FRAMES);
            let kept = ((head >> 8) as u8 as usize).min(layout::USER_KEPT_DEEP);
            Some(Stack {
                number: (layout::STACKS_MAX + 1 + n) as u64,
                time,
                pid: (head >> 32) as u32,
                cut: frames == layout::USER_FRAMES,
                addresses: (0..frames).map(|n| word(3 + n)).collect(),
                frame: Some(frame).filter(|frame| *frame != layout::USER_NO_FRAME),
                words: (0..kept).map(|n| kept_word(word(3 + frames + n))).collect(),
            })
        };
        (0..layout::USER_STACKS_MAX).filter_map(slot).collect()
    }

    /// The stacks, with what their addresses refer to.
    pub fn code(&self, mappings: &Mappings) -> UserCode {
        let lost = ["no slot was free", "the table was full", "the kernel could not walk them"];
        let count = |n: usize| self.word(layout::USER_STACKS_LOST + 8 * n);
        let unnumbered = lost.iter().enumerate().map(|(n, why)| (*why, count(n)));
        mappings.code(&self.read(), unnumbered.filter(|(_, n)| *n > 0).collect())
    }
}

/// A word as the kernel's side keeps it.
fn kept_word(word: u64) -> Word<u64> {
    let (at, value) = (8 * (word >> layout::USER_AT), word & (layout::USER_IS_FRAME - 1));
    let is = match word & layout::USER_IS_FRAME {
        0 => WordIs::Return(value),
        _ => WordIs::Frame(value),
    };
    Word { at, is }
}
