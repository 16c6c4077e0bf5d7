// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where functions keep their return addresses, from the unwind tables that programs have for
//! exceptions (`.eh_frame`). The file is untrusted: if its tables are damaged, nothing is known.

use crate::elf::{EH_FRAME, LOAD, Segment, X86_64, entry, facts, segments};
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

/// How the caller of a function is found, at one of its instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// Its file could not be read, or has no tables.
    #[default]
    Unknown,
    /// The tables say nothing of this place, or nothing that is understood.
    Absent,
    Caller(Caller),
    /// The same; it has called a program's `main` or the function of a thread: who called it tells
    /// nothing.
    Begins(Caller),
    /// It was called by none.
    Outermost,
    /// A signal handler returns to it: it was called by none, and further out is what the signal
    /// has interrupted.
    Restorer,
}

impl Rule {
    /// Whether a stack that ends there is whole.
    pub fn is_beginning(self) -> bool {
        matches!(self, Rule::Begins(_) | Rule::Outermost | Rule::Restorer)
    }
}

/// Where the callers are, of places in a file.
#[derive(Default)]
pub struct Rules {
    /// In the order of the places.
    pub rules: Vec<Rule>,
    /// What some of the places pass to this function, by its address, is the result of what they
    /// have called: if that function is `exit`, they have called `main`.
    pub pass_on: Vec<(usize, u64)>,
}

impl Rules {
    /// That the place with this index has called `main`.
    pub fn begins(&mut self, index: usize) {
        if let Some(rule) = self.rules.get_mut(index)
            && let Rule::Caller(caller) = *rule
        {
            *rule = Rule::Begins(caller);
        }
    }
}

/// The return address is in the 8 bytes below the end of the function's part of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub end: End,
    pub frame: Saved,
}

/// Where the part of the stack ends that belongs to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// So many bytes above the stack pointer.
    Stack(u64),
    /// So many bytes above the frame pointer.
    Frame(u64),
}

/// The frame pointer that the caller had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saved {
    /// It is in the register.
    Kept,
    /// So many bytes below the end of the function's part of the stack.
    Below(u64),
    Lost,
}

/// How far behind the entry of a file is still the code that begins the program.
const ENTRY: u64 = 64;
/// Tables that are longer are not read.
const TABLE_MAX: u64 = 512 << 20;
const INDEX_MAX: u64 = 64 << 20;

/// For each offset in the file; the segments are those of the file that ran, if they are known.
pub fn rules(path: &Path, loads: &[(u64, u64, u64)], offsets: &[u64]) -> Rules {
    let unknown = || Rules { rules: vec![Rule::Unknown; offsets.len()], ..Rules::default() };
    found(path, loads, offsets).unwrap_or_else(unknown)
}

fn found(path: &Path, loads: &[(u64, u64, u64)], offsets: &[u64]) -> Option<Rules> {
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
    let entry = entry(&file)?;
    let mut rule = |address: u64| {
        if entry != 0 && address.wrapping_sub(entry) < ENTRY {
            return Some(Rule::Outermost);
        }
        let entry = index
            .table()?
            .fde_for_address(&table, &bases, address, EhFrame::cie_from_offset)
            .ok()?;
        if entry.is_signal_trampoline() {
            return Some(Rule::Restorer);
        }
        let row = entry.unwind_info_for_address(&table, &bases, &mut context, address).ok()?;
        let end = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (*register, *offset),
            CfaRule::Expression(expression) => {
                (Registers::RSP, of_stub(expression.get(&table).ok()?.0.slice(), address)?)
            }
        };
        // Where the first instruction has just run, if the row begins there.
        let into = address.wrapping_sub(entry.initial_address());
        rule_of(row, end, Some(into).filter(|_| row.start_address() == address))
    };
    let mut all = Rules::default();
    for (index, offset) in offsets.iter().enumerate() {
        let address = address(*offset, &own);
        all.rules.push(address.and_then(&mut rule).unwrap_or(Rule::Absent));
        let code = |at: u64| {
            let within = |s: &&Segment| s.kind == LOAD && at.wrapping_sub(s.address) < s.length;
            read_code(&file, segments.iter().find(within)?, at)
        };
        match address.and_then(|address| after(address.wrapping_add(1), code)) {
            Some(After::Keeps) => all.begins(index),
            Some(After::PassesOn(to)) => all.pass_on.push((index, to)),
            None => {}
        }
    }
    Some(all)
}

/// What is done with the result of a call.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// It is kept in the thread's own memory, in which only the C library keeps anything at a fixed
    /// place.
    Keeps,
    /// It is passed to the function at this address.
    PassesOn(u64),
}

/// Of the call that returns to this address. The functions that call `main` and those of threads
/// have no names in most libraries.
fn after(mut address: u64, code: impl Fn(u64) -> Option<[u8; 9]>) -> Option<After> {
    for _ in 0..3 {
        let bytes = code(address)?;
        let jump = |at: usize| Some(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let target = |length: u64, distance: i32| {
            address.wrapping_add(length).wrapping_add_signed(distance.into())
        };
        address = match bytes {
            // mov %rax,%fs:...: in the C library's own description of the thread, which is above
            // what %fs leads to; variables of threads are below it.
            [0x64, 0x48, 0x89, 0x04, 0x25, .., 0..0x80] => return Some(After::Keeps),
            // mov %eax,%edi; call
            [0x89, 0xc7, 0xe8, ..] => return Some(After::PassesOn(target(7, jump(3)?))),
            // cltq
            [0x48, 0x98, ..] => address.wrapping_add(2),
            // jmp
            [0xe9, ..] => target(5, jump(1)?),
            [0xeb, near, ..] => target(2, i8::from_le_bytes([near]).into()),
            _ => return None,
        };
    }
    None
}

/// The next instructions.
fn read_code(file: &File, segment: &Segment, at: u64) -> Option<[u8; 9]> {
    let mut bytes = [0; 9];
    let offset = segment.offset.checked_add(at.checked_sub(segment.address)?)?;
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
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

/// The end of the stack's part in the stubs through which libraries are called, as bytes above the
/// stack pointer. All stubs of 16 bytes have one rule, with which linkers say that in the last ones
/// of them a word has been pushed: `8 + ((address & 15) >= N) * 8`.
fn of_stub(expression: &[u8], address: u64) -> Option<i64> {
    // breg7 (rsp) 8, breg16 (rip) 0, lit15, and, litN, ge, lit3, shl, plus
    const BEFORE: [u8; 6] = [0x77, 8, 0x80, 0, 0x3f, 0x1a];
    const AFTER: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];
    let (pushed, after) = expression.strip_prefix(&BEFORE)?.split_first()?;
    let pushed = pushed.checked_sub(0x30).filter(|n| *n < 16)?;
    (*after == AFTER).then(|| if address & 15 >= u64::from(pushed) { 16 } else { 8 })
}

/// From a row of the tables, with the end of its part of the stack. `into`: how many bytes into the
/// function, at the first instruction of the row.
fn rule_of(
    row: &UnwindTableRow<usize>,
    (register, end): (Register, i64),
    into: Option<u64>,
) -> Option<Rule> {
    let saved = |register: Register| match row.register(register) {
        None | Some(RegisterRule::SameValue) => Some(None),
        Some(RegisterRule::Offset(at)) => Some(Some(at)),
        // As well if it is undefined: the caller's value is lost.
        Some(_) => None,
    };
    if row.register(Registers::RA) == Some(RegisterRule::Undefined) {
        return Some(Rule::Outermost);
    }
    if saved(Registers::RA) != Some(Some(-8)) {
        return None;
    }
    let bytes = u64::try_from(end).ok().filter(|end| *end >= 8 && end % 8 == 0)?;
    let in_stack = register == Registers::RSP;
    let frame = match saved(Registers::RBP) {
        Some(None) => Saved::Kept,
        Some(Some(at)) if in_stack && is_kept(at, end, into) => Saved::Kept,
        Some(Some(at)) if at < 0 => Saved::Below(at.unsigned_abs()),
        _ => Saved::Lost,
    };
    let end = match register {
        Registers::RSP => End::Stack(bytes),
        Registers::RBP => End::Frame(bytes),
        _ => return None,
    };
    Some(Rule::Caller(Caller { end, frame }))
}

/// Whether a frame pointer that was saved is still in the register: it was restored from what is
/// now below the stack pointer, or it has only just been saved, by the first instruction.
fn is_kept(saved: i64, end: i64, into: Option<u64>) -> bool {
    // push %rbp, perhaps after endbr64
    let first = end == 16 && matches!(into, Some(1 | 5));
    end.saturating_add(saved) < 0 || first
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
        let known = rules(&path, &[], &offsets).rules;
        assert_eq!(known, rules(&path, &loads, &offsets).rules);
        if cfg!(target_arch = "x86_64") {
            let stack = known.iter().filter(|r| matches!(r, Rule::Caller(_))).count();
            assert!(stack * 10 > offsets.len(), "{stack} of {}", offsets.len());
        }
        let outside = if cfg!(target_arch = "x86_64") { Rule::Absent } else { Rule::Unknown };
        assert_eq!(rules(&path, &[], &[u64::MAX, 3]).rules, [outside; 2]);
        assert_eq!(rules(Path::new("/proc/self/status"), &[], &[1]).rules, [Rule::Unknown]);
    }

    /// The C library of this program has no name for the function that runs a thread's.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn in_the_c_library_a_thread_begins() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_libc = |path: &&str| path.rsplit('/').next().is_some_and(|n| n.starts_with("libc."));
        let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(is_libc);
        let path = Path::new(path.unwrap());
        let (at, size, _) = facts(&File::open(path).unwrap()).unwrap().loads[0];
        let bytes = std::fs::read(path).unwrap();
        let code = &bytes[at as usize..(at + size) as usize];
        // call *0x638(%rbx) or call *%fs:0x638 and the like, in some version of it.
        let calls = code
            .windows(2)
            .enumerate()
            .filter(|(_, two)| two[0] == 0xff && (two[1] & 0xf8 == 0x90 || two[1] == 0x14));
        let ends = calls.map(|(n, two)| at + n as u64 + if two[1] == 0x14 { 6 } else { 5 });
        let found = rules(path, &[], &Vec::from_iter(ends)).rules;
        let begins = found.iter().filter(|rule| matches!(rule, Rule::Begins(_))).count();
        assert!((1..8).contains(&begins), "{begins} of {}", found.len());
    }

    #[test]
    fn what_begins_a_thread_keeps_or_passes_on_its_result() {
        let found = |code: &[u8]| {
            after(0x100, |at| {
                let mut bytes = [0x90; 9];
                let rest = code.get(usize::try_from(at.checked_sub(0x100)?).ok()?..)?;
                let length = rest.len().min(9);
                bytes[..length].copy_from_slice(&rest[..length]);
                Some(bytes)
            })
        };
        let keeps = [0x64, 0x48, 0x89, 0x04, 0x25, 0x28, 6, 0, 0];
        assert_eq!(found(&keeps), Some(After::Keeps));
        assert_eq!(found(&[&[0x48, 0x98][..], &keeps[..]].concat()), Some(After::Keeps));
        assert_eq!(found(&[&[0xeb, 1, 0xcc][..], &keeps[..]].concat()), Some(After::Keeps));
        assert_eq!(found(&[&[0xe9, 0, 0, 0, 0][..], &keeps[..]].concat()), Some(After::Keeps));
        // A variable of the thread: mov %rax,%fs:-8.
        let variable = [0x64, 0x48, 0x89, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(found(&variable), None);
        let passes = [0x89, 0xc7, 0xe8, 0xf9, 0xff, 0xff, 0xff];
        assert_eq!(found(&passes), Some(After::PassesOn(0x100)));
        // test %eax,%eax, as after a comparison; a jump to itself.
        assert_eq!(found(&[0x85, 0xc0]), None);
        assert_eq!(found(&[0xeb, 0xfe]), None);
    }

    #[test]
    fn a_frame_pointer_is_the_callers_until_it_may_have_another_value() {
        // After its only push, at the beginning and later.
        assert!(is_kept(-16, 16, Some(1)) && is_kept(-16, 16, Some(5)));
        // A call that follows the push, at its last byte.
        assert!(!is_kept(-16, 16, None));
        assert!(!is_kept(-16, 16, Some(9)));
        // After it was restored, at the end of the function.
        assert!(is_kept(-16, 8, None));
        assert!(!is_kept(-16, 64, None));
    }

    #[test]
    fn stubs_of_libraries_have_pushed_a_word_at_their_end() {
        let rule = |pushed| [0x77, 8, 0x80, 0, 0x3f, 0x1a, pushed, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(of_stub(&rule(0x3b), 0x102a), Some(8));
        assert_eq!(of_stub(&rule(0x3b), 0x102b), Some(16));
        assert_eq!(of_stub(&rule(0x36), 0x1026), Some(16));
        assert_eq!(of_stub(&rule(0x50), 0x1026), None);
        assert_eq!(of_stub(&rule(0x3b)[..10], 0x102b), None);
        assert_eq!(of_stub(&[], 0), None);
    }
}
