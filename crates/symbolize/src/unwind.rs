// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where functions keep their return addresses, from the unwind tables that programs have for
//! exceptions (`.eh_frame`). The file is untrusted: if its tables are damaged, nothing is known.

use crate::elf::{EH_FRAME, LOAD, Segment, X86_64, facts, segments};
use crate::worker::address;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow, X86_64 as Registers,
};
use klogger_os::files::open_regular;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where the return address is, at one instruction of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    #[default]
    Unknown,
    /// The function has set up its frame: what follows frame pointers finds its caller.
    Frame,
    /// So many bytes above the stack pointer; and whether the frame pointer is still that of the
    /// caller.
    Stack { above: u64, kept: bool },
    /// It was called by none.
    Outermost,
}

/// Tables that are longer are not read.
const TABLE_MAX: u64 = 512 << 20;
const INDEX_MAX: u64 = 64 << 20;

/// For each offset in the file; the segments are those of the file that ran, if they are known.
pub fn rules(path: &Path, loads: &[(u64, u64, u64)], offsets: &[u64]) -> Vec<Rule> {
    found(path, loads, offsets).unwrap_or_else(|| vec![Rule::Unknown; offsets.len()])
}

fn found(path: &Path, loads: &[(u64, u64, u64)], offsets: &[u64]) -> Option<Vec<Rule>> {
    let file = open_regular(path).ok()?;
    let (machine, segments) = segments(&file)?;
    let own = if loads.is_empty() { facts(&file)?.loads } else { loads.to_vec() };
    let index = segments.iter().find(|s| s.kind == EH_FRAME && s.length <= INDEX_MAX)?;
    if machine != X86_64 {
        return None;
    }
    let index_bytes = read(&file, index, index.address)?;
    let mut bases = BaseAddresses::default().set_eh_frame_hdr(index.address);
    let index = EhFrameHdr::new(&index_bytes, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(at) = index.eh_frame_ptr() else { return None };
    let within = |s: &&Segment| s.kind == LOAD && at.wrapping_sub(s.address) < s.length;
    let table_bytes = read(&file, segments.iter().find(within)?, at)?;
    bases = bases.set_eh_frame(at);
    let table = EhFrame::new(&table_bytes, LittleEndian);
    let mut context = UnwindContext::new();
    let mut rule = |offset: &u64| {
        let address = address(*offset, &own)?;
        let entry = index
            .table()?
            .fde_for_address(&table, &bases, address, EhFrame::cie_from_offset)
            .ok()?;
        let row = entry.unwind_info_for_address(&table, &bases, &mut context, address).ok()?;
        Some(rule_of(row, address.wrapping_sub(entry.initial_address())))
    };
    Some(offsets.iter().map(|offset| rule(offset).unwrap_or_default()).collect())
}

/// What a segment has from an address on.
fn read(file: &File, segment: &Segment, from: u64) -> Option<Vec<u8>> {
    let skipped = from.checked_sub(segment.address)?;
    let length = segment.length.checked_sub(skipped)?.min(TABLE_MAX);
    let there = file.metadata().ok()?.len().checked_sub(segment.offset.checked_add(skipped)?)?;
    let mut bytes = vec![0; usize::try_from(length.min(there)).ok()?];
    file.read_exact_at(&mut bytes, segment.offset + skipped).ok()?;
    Some(bytes)
}

/// From a row of the tables, `into` bytes into the function.
fn rule_of(row: &UnwindTableRow<usize>, into: u64) -> Rule {
    let saved = |register: Register| match row.register(register) {
        Some(RegisterRule::Offset(at)) => Some(at),
        _ => None,
    };
    if row.register(Registers::RA) == Some(RegisterRule::Undefined) {
        return Rule::Outermost;
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return Rule::Unknown };
    let Some(at) = saved(Registers::RA) else { return Rule::Unknown };
    let frame = saved(Registers::RBP);
    match register {
        Registers::RBP if (offset, at, frame) == (16, -8, Some(-16)) => Rule::Frame,
        Registers::RSP => match u64::try_from(offset.saturating_add(at)) {
            Ok(above) => Rule::Stack { above, kept: is_kept(frame, offset, into) },
            Err(_) => Rule::Unknown,
        },
        _ => Rule::Unknown,
    }
}

/// Whether the frame pointer is the caller's: it was never saved, or it was restored from what is
/// now below the stack pointer, or it has only just been saved, by the first instruction.
fn is_kept(saved: Option<i64>, cfa: i64, into: u64) -> bool {
    // push %rbp, perhaps after endbr64
    let first = cfa == 16 && (into == 1 || into == 5);
    saved.is_none_or(|at| cfa.saturating_add(at) < 0) || first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function whose frame is set up, of this program; and no function.
    #[test]
    fn this_program_has_unwind_tables() {
        let path = std::env::current_exe().unwrap();
        let loads = facts(&File::open(&path).unwrap()).unwrap().loads;
        let offsets: Vec<u64> = (loads[0].0..loads[0].0 + loads[0].1).step_by(64).collect();
        let known = rules(&path, &[], &offsets);
        assert_eq!(known, rules(&path, &loads, &offsets));
        if cfg!(target_arch = "x86_64") {
            let stack = known.iter().filter(|r| matches!(r, Rule::Stack { .. })).count();
            assert!(stack * 10 > offsets.len(), "{stack} of {}", offsets.len());
        }
        assert_eq!(rules(&path, &[], &[u64::MAX, 3]), [Rule::Unknown; 2]);
        assert_eq!(rules(Path::new("/proc/self/status"), &[], &[1]), [Rule::Unknown]);
    }

    #[test]
    fn a_frame_pointer_is_the_callers_until_it_may_have_another_value() {
        assert!(is_kept(None, 8, 4));
        // After its only push, at the beginning and later.
        assert!(is_kept(Some(-16), 16, 1) && is_kept(Some(-16), 16, 5));
        assert!(!is_kept(Some(-16), 16, 9));
        // After it was restored, at the end of the function.
        assert!(is_kept(Some(-16), 8, 40));
        assert!(!is_kept(Some(-16), 64, 40));
    }
}
