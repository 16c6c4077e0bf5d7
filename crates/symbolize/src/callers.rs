// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The frames of a stack, from what was recorded of it.
//!
//! The kernel follows frame pointers, and leaves out the callers of functions that have none. The
//! unwind tables of the files tell for each function which word of the stack its return address is.
//! If that word was recorded, the caller is certain, and so on for the caller's caller. Where a
//! function has a frame, and the frame pointer is that which the kernel followed, its frames are
//! certain as well. All else is a gap, after which what the kernel found further out may follow.

use crate::unwind::{Caller, End, Rule, Saved};
use klogger_log::code::{Code, Place, Raw, UserStack, WordIs};
use std::collections::{BTreeMap, BTreeSet};

type Rules = BTreeMap<Place, Rule>;

/// As many as are printed of a stack.
const FRAMES_MAX: usize = 256;
/// In how many bytes above the stack pointer the recorder looks for words at least, unless it has
/// found so many: `config.h`. Of samples it looks at more.
const NEAR: u64 = 8 * 128;
const KEPT: usize = 24;

/// Finds the frames of stacks of which files were not looked at before, and says which are missing.
pub fn settle(code: &mut Code, rules: &Rules) {
    for stack in &mut code.stacks {
        frames(stack, rules);
    }
    // What a later look at other files may need is used as well.
    let used: BTreeSet<Place> = code.stacks.iter().flat_map(UserStack::places).copied().collect();
    code.names.retain(|(file, at), _| used.contains(&Place::File(*file, *at)));
}

fn frames(stack: &mut UserStack, rules: &Rules) {
    if stack.raw.is_none() && stack.gaps.is_some() {
        return;
    }
    let innermost = stack.frames.first().and_then(|place| rules.get(place));
    // Its file may be found later.
    if innermost.is_none_or(|rule| *rule == Rule::Unknown) {
        stack.is_whole |= !stack.cut && ends(&stack.frames, rules);
        return;
    }
    let mut raw = stack.raw.clone().unwrap_or_default();
    if raw.kernel.is_empty() {
        raw.kernel.clone_from(&stack.frames);
    }
    let mut walk = Walk::new(&raw, rules);
    while walk.frames.len() < FRAMES_MAX && walk.step() {}
    let Walk { frames, gaps, unread, last, .. } = walk;
    let full = frames.len() >= FRAMES_MAX;
    // Other files may have been there before.
    let before = stack.gaps.as_ref().map(|gaps| reach(&stack.frames, gaps));
    if before.is_some_and(|before| before > reach(&frames, &gaps)) {
        return;
    }
    stack.is_whole = ends(&frames, rules);
    // Files that are found later may lead to the last frame of the kernel's.
    stack.cut = full || stack.cut && (unread || last && !stack.is_whole);
    stack.raw = unread.then(|| raw.clone());
    (stack.frames, stack.gaps) = (frames, Some(gaps));
}

/// Whether the last frame is where its thread begins.
fn ends(frames: &[Place], rules: &Rules) -> bool {
    let last = frames.last().and_then(|place| rules.get(place));
    last.is_some_and(|rule| rule.is_beginning())
}

/// How many frames are known before one is missing, and in all.
fn reach(frames: &[Place], gaps: &[usize]) -> (usize, usize) {
    (gaps.first().copied().unwrap_or(frames.len()), frames.len())
}

/// What is known of the frame pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FramePointer {
    /// In bytes above the stack pointer of the innermost function.
    at: Option<u64>,
    /// It is the one by which the kernel found the frame with this index.
    finds: Option<usize>,
}

/// From one function to its caller. Positions in the stack are in bytes above the stack pointer of
/// the innermost function.
struct Walk<'a> {
    raw: &'a Raw,
    rules: &'a Rules,
    /// The frame pointers that the kernel followed, as far as they are known; the first one finds
    /// the frame with this index.
    chain: Vec<u64>,
    first: usize,
    frames: Vec<Place>,
    gaps: Vec<usize>,
    /// Of the function that was reached.
    stack: Option<u64>,
    frame: FramePointer,
    /// A file was not looked at that tells more.
    unread: bool,
    /// The last frame of the kernel's was reached.
    last: bool,
}

impl<'a> Walk<'a> {
    fn new(raw: &'a Raw, rules: &'a Rules) -> Walk<'a> {
        let mut walk = Walk {
            raw,
            rules,
            chain: raw.frame.into_iter().collect(),
            first: 1,
            frames: raw.kernel.first().copied().into_iter().collect(),
            gaps: Vec::new(),
            stack: Some(0),
            frame: FramePointer::default(),
            unread: false,
            last: raw.kernel.len() < 2,
        };
        while let Some(at) = walk.chain.last()
            && let Some(next) = walk.saved(*at).filter(|next| next > at)
        {
            walk.chain.push(next);
        }
        walk.first = walk.first();
        walk.frame = match raw.frame {
            Some(at) => walk.frame_at(Some(at)),
            None => FramePointer { at: None, finds: walk.unknown() },
        };
        walk
    }

    /// The index of the frame that the first frame pointer finds. At the entry of a function that
    /// has a probe, the kernel takes the word at the stack pointer before it follows frame
    /// pointers.
    fn first(&self) -> usize {
        let second = self.raw.kernel.get(1);
        let by_frame = self.chain.first().and_then(|at| self.address(at.saturating_add(8)));
        let before = match by_frame {
            Some(place) => second != Some(&place),
            None => self.is_at_entry() && self.address(0).as_ref() == second,
        };
        1 + usize::from(before)
    }

    /// The frame that the frame pointer of the innermost function finds, in a log of an older
    /// version, which has one word at most, and no frame pointer. In others it points elsewhere
    /// than into the stack, and what the kernel found by it may be anything.
    fn unknown(&self) -> Option<usize> {
        let is_older = self.raw.frame.is_none() && self.raw.words.len() <= 1;
        Some(self.first).filter(|index| is_older && *index < self.raw.kernel.len())
    }

    /// Whether the innermost function has not used the stack yet.
    fn is_at_entry(&self) -> bool {
        let rule = self.frames.first().and_then(|place| self.rules.get(place));
        matches!(rule, Some(Rule::Caller(Caller { end: End::Stack(8), .. })))
    }

    /// The return address in a word.
    fn address(&self, at: u64) -> Option<Place> {
        let word = self.raw.words.iter().filter(|word| word.at == at);
        word.into_iter().find_map(|word| match word.is {
            WordIs::Return(place) => Some(place),
            WordIs::Frame(_) => None,
        })
    }

    /// The frame pointer in a word.
    fn saved(&self, at: u64) -> Option<u64> {
        let word = self.raw.words.iter().filter(|word| word.at == at);
        word.into_iter().find_map(|word| match word.is {
            WordIs::Frame(frame) => Some(frame),
            WordIs::Return(_) => None,
        })
    }

    fn frame_at(&self, at: Option<u64>) -> FramePointer {
        let followed = at.and_then(|at| self.chain.iter().position(|frame| *frame == at));
        let finds = followed.map(|n| self.first + n).filter(|n| self.confirms(*n));
        FramePointer { at, finds }
    }

    /// Whether the kernel's frame is what the stack has there, if the word was recorded.
    fn confirms(&self, index: usize) -> bool {
        let at = index.checked_sub(self.first).and_then(|n| self.chain.get(n));
        let word = at.and_then(|at| self.address(at.saturating_add(8)));
        word.is_none_or(|word| self.raw.kernel.get(index) == Some(&word))
    }

    /// One caller. Returns whether there may be more.
    fn step(&mut self) -> bool {
        let Some(place) = self.frames.last().copied() else { return false };
        let found = match (self.rules.get(&place).copied(), place) {
            (Some(Rule::Outermost), _) => return false,
            (Some(Rule::Caller(caller) | Rule::Begins(caller)), _) => self.by_tables(caller),
            (Some(Rule::Absent | Rule::Restorer), _) | (None, Place::Address(_)) => false,
            // As in code that programs make, which has frames.
            (Some(Rule::Unknown) | None, _) => {
                self.unread = true;
                match self.frame.finds {
                    Some(index) if index < self.raw.kernel.len() => self.by_frame(index),
                    // How the stack ends is not known.
                    Some(_) => return false,
                    None => false,
                }
            }
        };
        if !found {
            self.gaps.push(self.frames.len() - 1);
        }
        found || self.after_gap()
    }

    fn by_tables(&mut self, Caller { end, frame }: Caller) -> bool {
        let end_at = match end {
            End::Stack(bytes) => self.stack.and_then(|at| at.checked_add(bytes)),
            End::Frame(bytes) => self.frame.at.and_then(|at| at.checked_add(bytes)),
        };
        // The stack of each caller is further up.
        if end_at.is_some_and(|end| self.stack.is_some_and(|stack| end <= stack)) {
            return false;
        }
        if let Some(end) = end_at
            && let Some(place) = end.checked_sub(8).and_then(|at| self.address(at))
        {
            self.frame = match frame {
                Saved::Kept => self.frame,
                Saved::Lost => FramePointer::default(),
                Saved::Below(bytes) => match end.checked_sub(bytes).and_then(|at| self.saved(at)) {
                    Some(saved) => self.frame_at(Some(saved)),
                    None => self.next_frame(end, bytes),
                },
            };
            self.stack = Some(end);
            self.last |= self.frame.finds == Some(self.raw.kernel.len());
            self.frames.push(place);
            return true;
        }
        match (end, frame, self.frame.finds) {
            (End::Frame(16), Saved::Below(16), Some(index)) => self.by_frame(index),
            _ => false,
        }
    }

    /// The frame pointer that was saved where the kernel has read the next one, if it was.
    fn next_frame(&self, end: u64, bytes: u64) -> FramePointer {
        let is_at = self.frame.at == end.checked_sub(bytes) && bytes == 16;
        let finds = self.frame.finds.filter(|_| is_at).map(|index| index + 1);
        FramePointer { at: None, finds }
    }

    /// What the kernel found by the frame pointer with this index.
    fn by_frame(&mut self, index: usize) -> bool {
        let Some(place) = self.raw.kernel.get(index) else {
            self.last = true;
            return false;
        };
        let at = index.checked_sub(self.first).and_then(|n| self.chain.get(n));
        self.stack = at.and_then(|at| at.checked_add(16));
        let next = at.and_then(|at| self.saved(*at));
        self.frame = FramePointer { at: next, finds: Some(index + 1) };
        self.last |= index + 1 == self.raw.kernel.len();
        self.frames.push(*place);
        true
    }

    /// What the kernel found further out than a function whose caller is missing, unless it
    /// obviously took another value for a frame pointer.
    fn after_gap(&mut self) -> bool {
        let Some(index) = self.frame.finds.or_else(|| self.outer()) else { return false };
        let at = index.checked_sub(self.first).and_then(|n| self.chain.get(n));
        let unlike = |at: &u64| {
            let second = at.saturating_add(8);
            second < self.looked_at() && self.address(second).is_none()
        };
        if at.is_some_and(unlike) {
            return false;
        }
        let place = self.raw.kernel.get(index);
        if !matches!(place, Some(Place::File(..)))
            || place.and_then(|place| self.rules.get(place)) == Some(&Rule::Absent)
        {
            return false;
        }
        self.by_frame(index)
    }

    /// How far the recorder has looked for words.
    fn looked_at(&self) -> u64 {
        match self.raw.words.last() {
            Some(last) if self.raw.words.len() >= KEPT || last.at > NEAR => last.at,
            _ => NEAR,
        }
    }

    /// The first of the kernel's frames beyond the part of the stack that is known.
    fn outer(&self) -> Option<usize> {
        if self.chain.is_empty() {
            let is_new = |index: &usize| !self.frames.contains(&self.raw.kernel[*index]);
            return self.unknown().filter(is_new);
        }
        let stack = self.stack?;
        let n = self.chain.iter().position(|at| *at >= stack)?;
        Some(self.first + n).filter(|index| self.confirms(*index))
    }
}

#[cfg(test)]
mod tests;
