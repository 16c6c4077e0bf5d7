// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The callers of functions without a frame.
//!
//! The kernel follows frame pointers. If the innermost function has no frame, or not yet, the frame
//! pointer is that of its caller, so that the kernel finds the caller's caller, and the caller is
//! left out. Where the return address of the innermost function is, the unwind tables of its file
//! tell; if it is the word that was stored with the stack, the caller is certain. The others are
//! gaps, which are known as well.

use crate::unwind::Rule;
use klogger_log::code::{Code, Place, UserStack};
use std::collections::{BTreeMap, BTreeSet};

type Rules = BTreeMap<Place, Rule>;

/// Adds the callers that are certain, and says which are missing.
pub fn settle(code: &mut Code, rules: &Rules) {
    for stack in &mut code.stacks {
        if stack.gaps.is_none() {
            innermost(stack, rules);
        }
        outer(stack, rules);
    }
    let used: BTreeSet<Place> = code.stacks.iter().flat_map(UserStack::places).copied().collect();
    code.names.retain(|(file, at), _| used.contains(&Place::File(*file, *at)));
}

/// Of a stack that was not looked at.
fn innermost(stack: &mut UserStack, rules: &Rules) {
    let rule = stack.frames.first().and_then(|place| rules.get(place)).copied();
    let gaps = match rule.unwrap_or_default() {
        // Its file may be found later.
        Rule::Unknown => return,
        Rule::Frame | Rule::Outermost => Vec::new(),
        Rule::Stack { above, kept } => match stack.caller {
            Some(caller) if caller.above == above => {
                // Since Linux 6.12 the kernel finds it at uprobes.
                if stack.frames.get(1) != Some(&caller.place) {
                    stack.frames.insert(1, caller.place);
                }
                if kept { Vec::new() } else { vec![1] }
            }
            _ => vec![0],
        },
    };
    stack.caller = None;
    stack.gaps = Some(gaps);
}

/// Of the functions further out, those without a frame hide their callers.
fn outer(stack: &mut UserStack, rules: &Rules) {
    let Some(gaps) = &mut stack.gaps else { return };
    let hides = |place| matches!(rules.get(place), Some(Rule::Stack { .. }));
    let found = stack.frames.iter().enumerate().skip(1).filter(|(_, place)| hides(place));
    gaps.extend(found.map(|(n, _)| n));
    // After the last frame there is nothing to be missing: how the stack ends says that.
    let last = stack.frames.len().saturating_sub(1);
    gaps.retain(|gap| *gap < last);
    gaps.sort_unstable();
    gaps.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::code::Caller;

    const LEAF: Place = Place::File(0, 0x10);
    const CALLER: Place = Place::File(0, 0x20);
    const FRAMED: Place = Place::File(0, 0x30);
    const START: Place = Place::File(0, 0x40);

    /// The frames and gaps of a stack that begins in LEAF, for which this is the rule.
    fn settled(leaf: Rule, caller: Option<(Place, u64)>) -> (Vec<Place>, Option<Vec<usize>>) {
        let caller = caller.map(|(place, above)| Caller { place, above });
        let frames = vec![LEAF, FRAMED, START];
        let stack = UserStack { frames, caller, ..UserStack::default() };
        let mut code = Code { stacks: vec![stack], ..Code::default() };
        let rules = [(LEAF, leaf), (CALLER, Rule::Frame), (FRAMED, Rule::Frame)];
        settle(&mut code, &rules.into());
        let once = code.clone();
        settle(&mut code, &rules.into());
        assert_eq!(code, once);
        let stack = code.stacks.remove(0);
        (stack.frames, stack.gaps)
    }

    #[test]
    fn a_caller_is_added_only_if_it_is_certain() {
        let leaf = Rule::Stack { above: 8, kept: true };
        let without = vec![LEAF, FRAMED, START];
        let with = vec![LEAF, CALLER, FRAMED, START];
        assert_eq!(settled(leaf, Some((CALLER, 8))), (with.clone(), Some(vec![])));
        // A word elsewhere is another call's.
        assert_eq!(settled(leaf, Some((CALLER, 0))), (without.clone(), Some(vec![0])));
        assert_eq!(settled(leaf, None), (without.clone(), Some(vec![0])));
        assert_eq!(settled(Rule::Frame, Some((CALLER, 8))), (without.clone(), Some(vec![])));
        // The kernel has found it already.
        assert_eq!(settled(leaf, Some((FRAMED, 8))), (without.clone(), Some(vec![])));
        // What comes after it was found by a frame pointer that had another value.
        let lost = Rule::Stack { above: 8, kept: false };
        assert_eq!(settled(lost, Some((CALLER, 8))), (with, Some(vec![1])));
        assert_eq!(settled(Rule::Unknown, Some((CALLER, 8))), (without, None));
    }

    #[test]
    fn functions_without_a_frame_hide_their_callers() {
        let mut code = Code {
            stacks: vec![UserStack {
                frames: vec![LEAF, CALLER, FRAMED, START],
                ..UserStack::default()
            }],
            ..Code::default()
        };
        let stack = |above| Rule::Stack { above, kept: true };
        let rules = [(LEAF, Rule::Frame), (CALLER, stack(8)), (START, stack(16))];
        settle(&mut code, &rules.into());
        assert_eq!(code.stacks[0].gaps, Some(vec![1]));
    }
}
