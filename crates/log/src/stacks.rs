// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Kernel stacks, by the numbers that events have.

use std::collections::BTreeMap;

/// The largest number of frames; a longer line is invalid.
const FRAMES_MAX: usize = 256;

/// The stacks of a log. If a number occurs twice, its first line counts.
#[derive(Clone, Debug, Default)]
pub struct Stacks(BTreeMap<u64, Frames>);

/// One stack, from the innermost frame on: `FUNCTION+0xOFFSET`, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames(Vec<u8>);

impl Stacks {
    /// Reads lines `NUMBER FRAME FRAME ...`; a line of another form is skipped.
    pub fn new(text: &[u8]) -> Stacks {
        let mut stacks = BTreeMap::new();
        for line in text.split(|b| *b == b'\n') {
            let Some(space) = line.iter().position(|b| *b == b' ') else { continue };
            let number = std::str::from_utf8(&line[..space]).ok().and_then(|n| n.parse().ok());
            let frames = &line[space + 1..];
            if let Some(number) = number
                && frames.iter().filter(|b| **b == b' ').count() < FRAMES_MAX
            {
                stacks.entry(number).or_insert_with(|| Frames(frames.to_vec()));
            }
        }
        Stacks(stacks)
    }

    pub fn find(&self, number: u64) -> Option<&Frames> {
        self.0.get(&number)
    }

    /// In ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Frames)> {
        self.0.iter().map(|(number, frames)| (*number, frames))
    }
}

impl Frames {
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b' ').filter(|f| !f.is_empty())
    }

    /// The frames without their offsets.
    pub fn functions(&self) -> impl Iterator<Item = &[u8]> {
        self.frames().map(|f| f.iter().position(|b| *b == b'+').map_or(f, |plus| &f[..plus]))
    }

    /// Appends the frames, `<` between them: each was called by the next.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        for (i, frame) in self.frames().enumerate() {
            if i > 0 {
                out.push(b'<');
            }
            out.extend_from_slice(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_stack() {
        let stacks = Stacks::new(
            b"7 inner+0x1f outer+0x2 ffffffff81000000\nnonsense\n7 again+0x1\n3 lone+0x0\n",
        );
        let numbers: Vec<u64> = stacks.iter().map(|s| s.0).collect();
        assert_eq!(numbers, [3, 7]);
        let frames = stacks.find(7).unwrap();
        let functions: Vec<&[u8]> = frames.functions().collect();
        assert_eq!(functions, [&b"inner"[..], b"outer", b"ffffffff81000000"]);
        let mut text = Vec::new();
        frames.push_text(&mut text);
        assert_eq!(text, b"inner+0x1f<outer+0x2<ffffffff81000000");
        assert!(stacks.find(8).is_none());
    }
}
