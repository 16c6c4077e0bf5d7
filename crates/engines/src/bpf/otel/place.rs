// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where a process has the variable, from what its file says and its loader has noted in its
//! memory.

use klogger_programs::thread_local::{Access, Note};
use klogger_ring::layout::bpf as layout;

/// Modules of a process with variables of threads have numbers up to this.
const MODULES: u64 = 4096;
/// The variables of a module take no more.
const BLOCK: u64 = 1 << 32;
/// Addresses of programs are below this.
const ADDRESSES: u64 = 1 << 47;

/// Where the threads of a process have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariablePlace {
    /// From the thread pointer; or, of a module that was loaded late, in its block.
    pub offset: u64,
    /// Its number, from 1 on.
    pub module: Option<u32>,
    pub generation: u64,
}

impl VariablePlace {
    fn fixed(offset: u64) -> VariablePlace {
        VariablePlace { offset, module: None, generation: 0 }
    }

    /// As the programs of the kernel read it. `stack`: tells the program that the process runs from
    /// others that it has run, or will run.
    pub fn bytes(&self, stack: u64) -> [u8; layout::OTEL_PLACE] {
        let mut bytes = [0; layout::OTEL_PLACE];
        let mut set = |at: usize, value: &[u8]| bytes[at..][..value.len()].copy_from_slice(value);
        set(layout::OTEL_PLACE_STACK, &stack.to_ne_bytes());
        set(layout::OTEL_PLACE_OFFSET, &self.offset.to_ne_bytes());
        set(layout::OTEL_PLACE_GENERATION, &self.generation.to_ne_bytes());
        set(layout::OTEL_PLACE_MODULE, &self.module.unwrap_or(0).to_ne_bytes());
        bytes
    }
}

/// The place, or `None`: it is not known yet, because the loader has not noted it. `base`: where
/// the file begins. `glibc`: blocks of modules are found as it has them. `word`: of the memory of
/// the process.
pub fn place(
    access: &Access,
    base: u64,
    glibc: bool,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<VariablePlace> {
    let notes = match access {
        Access::Fixed(offset) => return Some(VariablePlace::fixed(*offset)),
        Access::Noted(notes) => notes,
    };
    let noted = |note: &Note| match *note {
        Note::Offset(at) => below(word(base.wrapping_add(at))?),
        Note::Descriptor(at) => {
            let at = base.wrapping_add(at);
            let (function, argument) = (word(at)?, word(at.wrapping_add(8))?);
            if function == 0 {
                return None;
            }
            below(argument).or_else(|| {
                if !(8..ADDRESSES).contains(&argument) || !glibc {
                    return None;
                }
                in_module(word(argument)?, word(argument + 8)?, word(argument + 16)?)
            })
        }
        Note::Module(at, offset) => {
            if !glibc {
                return None;
            }
            // Since when the module has this number is not noted: a thread that has not used it
            // yet may have the block of a library that was unloaded before.
            let at = base.wrapping_add(at);
            in_module(word(at)?, offset.map_or_else(|| word(at.wrapping_add(8)), Some)?, 0)
        }
    };
    notes.iter().find_map(noted)
}

/// Where all threads have it: below the thread pointer.
fn below(distance: u64) -> Option<VariablePlace> {
    (distance.wrapping_neg().wrapping_sub(1) < BLOCK).then(|| VariablePlace::fixed(distance))
}

/// A descriptor that is not used yet may point to something else.
fn in_module(number: u64, offset: u64, generation: u64) -> Option<VariablePlace> {
    let module = u32::try_from(number).ok().filter(|_| (1..=MODULES).contains(&number))?;
    (offset < BLOCK).then_some(VariablePlace { offset, module: Some(module), generation })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(note: Note, memory: &[(u64, u64)], glibc: bool) -> Option<VariablePlace> {
        let memory: HashMap<u64, u64> = memory.iter().copied().collect();
        place(&Access::Noted(vec![note]), 0x1000, glibc, &|at| memory.get(&at).copied())
    }

    fn module(offset: u64, number: u32, generation: u64) -> Option<VariablePlace> {
        Some(VariablePlace { offset, module: Some(number), generation })
    }

    #[test]
    fn the_place_in_a_program_is_known_from_its_file() {
        let fixed = Access::Fixed(-16i64 as u64);
        assert_eq!(place(&fixed, 0, false, &|_| None), Some(VariablePlace::fixed(-16i64 as u64)));
    }

    #[test]
    fn what_the_loader_has_not_noted_is_not_known_yet() {
        let distance = -64i64 as u64;
        let offset = Note::Offset(0x20);
        assert_eq!(found(offset, &[(0x1020, 0)], true), None);
        assert_eq!(found(offset, &[(0x1020, 5)], true), None);
        assert_eq!(found(offset, &[], true), None);
        assert_eq!(
            found(offset, &[(0x1020, distance)], false),
            Some(VariablePlace::fixed(distance))
        );
        let of_module = Note::Module(0x20, Some(8));
        assert_eq!(found(of_module, &[(0x1020, 0)], true), None);
        assert_eq!(found(of_module, &[(0x1020, 3)], true), module(8, 3, 0));
        assert_eq!(found(of_module, &[(0x1020, 3)], false), None);
        let of_any = Note::Module(0x20, None);
        assert_eq!(found(of_any, &[(0x1020, 3)], true), None);
        assert_eq!(found(of_any, &[(0x1020, 3), (0x1028, 16)], true), module(16, 3, 0));
    }

    #[test]
    fn a_descriptor_has_a_distance_or_a_module() {
        let note = Note::Descriptor(0x20);
        let with = |function, argument, more: &[(u64, u64)], glibc| {
            let mut memory = vec![(0x1020, function), (0x1028, argument)];
            memory.extend(more);
            found(note, &memory, glibc)
        };
        let distance = -8i64 as u64;
        assert_eq!(with(0, distance, &[], true), None);
        assert_eq!(with(1, distance, &[], false), Some(VariablePlace::fixed(distance)));
        let block = [(0x5000, 2), (0x5008, 24), (0x5010, 7)];
        assert_eq!(with(1, 0x5000, &block, true), module(24, 2, 7));
        assert_eq!(with(1, 0x5000, &block, false), None);
        // A relocation: what was not used yet points to it.
        let relocation = [(0x5000, 0x3fe0), (0x5008, 5 << 32 | 36), (0x5010, 0)];
        assert_eq!(with(1, 0x5000, &relocation, true), None);
        assert_eq!(with(1, 0x5000, &[], true), None);
    }

    proptest::proptest! {
        /// Programs write what they like where the loader's notes are.
        #[test]
        fn any_memory_has_a_place_of_a_sound_size_or_none(
            base: u64, at: u64, offset in proptest::option::of(0u64..64), words: [u64; 4],
            kind in 0u8..3, glibc: bool,
        ) {
            let note = match kind {
                0 => Note::Offset(at),
                1 => Note::Descriptor(at),
                _ => Note::Module(at, offset),
            };
            let word = |at: u64| Some(words[(at / 8 % 4) as usize]);
            if let Some(place) = place(&Access::Noted(vec![note]), base, glibc, &word) {
                match place.module {
                    None => proptest::prop_assert!((place.offset as i64) < 0),
                    Some(n) => proptest::prop_assert!(n > 0 && place.offset < BLOCK),
                }
            }
        }
    }
}
