// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! No bundled program takes more stack than the verifier of Linux 6.1 allows: 512 bytes, for a
//! program with all functions that it calls, each of which takes a multiple of 32. Later verifiers
//! count in the same way, or allow more. So a program that is refused there is found without a
//! kernel of that age.

use elf::ElfBytes;
use elf::abi::{SHF_EXECINSTR, SHT_REL, STT_FUNC, STT_SECTION};
use elf::endian::LittleEndian;
use elf::symbol::Symbol;
use klogger_toolchain::bundled;
use std::collections::{HashMap, HashSet};

/// `MAX_BPF_STACK` of the kernel.
const MOST: u32 = 512;
/// The register of the frame: offsets from it are negative.
const FRAME: u8 = 10;

struct Function {
    name: String,
    frame: u32,
    /// By their places: index of the section, and offset.
    calls: HashSet<(usize, u64)>,
}

struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    fn read(bytes: &[u8]) -> Instruction {
        Instruction {
            code: bytes[0],
            to: bytes[1] & 15,
            from: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            value: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// A register to which it writes.
    fn written(&self) -> Option<u8> {
        match self.code & 7 {
            0 | 1 | 4 | 7 => Some(self.to),
            _ => None,
        }
    }
}

/// How far below its end the frame of a function is used: by loads and stores, and where its
/// address is taken.
fn frame(code: &[u8]) -> u32 {
    let mut deepest = 0;
    let mut is_frame = HashSet::from([FRAME]);
    for instruction in code.chunks_exact(8).map(Instruction::read) {
        let (base, at) = match instruction.code & 7 {
            1 => (instruction.from, i32::from(instruction.offset)),
            2 | 3 => (instruction.to, i32::from(instruction.offset)),
            _ => (instruction.to, if instruction.code == 0x07 { instruction.value } else { 0 }),
        };
        if is_frame.contains(&base) {
            deepest = deepest.max(at.min(0).unsigned_abs());
        }
        match (instruction.code, instruction.written()) {
            (0xbf, _) if instruction.from == FRAME => _ = is_frame.insert(instruction.to),
            (_, Some(register)) if register != FRAME => _ = is_frame.remove(&register),
            _ => {}
        }
    }
    deepest
}

/// The functions of an object, by section and offset.
fn functions(object: &[u8]) -> HashMap<(usize, u64), Function> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(object).expect("an ELF object");
    let (symbols, names) = file.symbol_table().expect("readable").expect("a symbol table");
    let sections = file.section_headers().expect("sections");
    let mut found = HashMap::new();
    for symbol in symbols.iter().filter(|s| s.st_symtype() == STT_FUNC) {
        let section = sections.get(symbol.st_shndx.into()).expect("the section of a function");
        let (code, _) = file.section_data(&section).expect("code");
        let begin = usize::try_from(symbol.st_value).expect("an offset");
        let end = begin + usize::try_from(symbol.st_size).expect("a size");
        let name = names.get(symbol.st_name as usize).expect("a name").to_string();
        let function = Function { name, frame: frame(&code[begin..end]), calls: HashSet::new() };
        found.insert((symbol.st_shndx.into(), symbol.st_value), function);
    }
    for header in sections.iter().filter(|s| s.sh_type == SHT_REL) {
        let section = sections.get(header.sh_info as usize).expect("the section that it is of");
        if section.sh_flags & u64::from(SHF_EXECINSTR) == 0 {
            continue;
        }
        let (code, _) = file.section_data(&section).expect("code");
        for relocation in file.section_data_as_rels(&header).expect("relocations") {
            let symbol = symbols.get(relocation.r_sym as usize).expect("a symbol");
            let at = usize::try_from(relocation.r_offset).expect("an offset");
            let instruction = Instruction::read(&code[at..at + 8]);
            let Some(callee) = callee(&symbol, &instruction) else { continue };
            if !found.contains_key(&callee) {
                continue; // data
            }
            let (_, caller) = found
                .iter_mut()
                .filter(|((of, begin), _)| {
                    *of == header.sh_info as usize && *begin <= relocation.r_offset
                })
                .max_by_key(|((_, begin), _)| *begin)
                .expect("a call is in a function");
            caller.calls.insert(callee);
        }
    }
    found
}

/// What is called, or given to a helper that calls it, by an instruction with a relocation.
fn callee(symbol: &Symbol, instruction: &Instruction) -> Option<(usize, u64)> {
    let of = usize::from(symbol.st_shndx);
    // A call is relative to the instruction behind it; the address of a function is a number.
    let within = match instruction.code {
        0x85 => i64::from(instruction.value + 1) * 8,
        _ => i64::from(instruction.value),
    };
    match symbol.st_symtype() {
        STT_FUNC => Some((of, symbol.st_value)),
        STT_SECTION => Some((of, u64::try_from(within).ok()?)),
        _ => None,
    }
}

/// The deepest way down from a function, and how much it takes.
fn deepest(all: &HashMap<(usize, u64), Function>, at: (usize, u64)) -> (u32, Vec<String>) {
    let function = &all[&at];
    let below = function.calls.iter().map(|callee| deepest(all, *callee)).max();
    let (depth, mut way) = below.unwrap_or_default();
    way.insert(0, format!("{} ({})", function.name, function.frame));
    (depth + function.frame.max(1).next_multiple_of(32), way)
}

#[test]
fn programs_need_no_more_stack_than_the_oldest_kernel_has() {
    let mut programs = 0;
    let mut too_deep = Vec::new();
    for schema in bundled::all() {
        let object = schema.load().expect(schema.name).object.expect("an object");
        let all = functions(&object);
        let called: HashSet<_> = all.values().flat_map(|f| f.calls.iter().copied()).collect();
        for at in all.keys().filter(|at| !called.contains(at)) {
            programs += 1;
            let (depth, way) = deepest(&all, *at);
            if depth > MOST {
                too_deep.push(format!("{}: {depth} bytes: {}", schema.name, way.join(" -> ")));
            }
        }
    }
    assert!(programs > 100, "{programs}");
    assert!(too_deep.is_empty(), "{}", too_deep.join("\n"));
}

#[test]
fn the_frame_of_a_function_is_what_it_uses() {
    // r1 = r10; r1 += -40; *(u64 *)(r10 - 16) = r2; r3 += -400 (another register)
    let code = [
        [0xbf, 0xa1, 0, 0, 0, 0, 0, 0],
        [0x07, 0x01, 0, 0, 0xd8, 0xff, 0xff, 0xff],
        [0x7b, 0x2a, 0xf0, 0xff, 0, 0, 0, 0],
        [0x07, 0x03, 0, 0, 0x70, 0xfe, 0xff, 0xff],
    ];
    assert_eq!(frame(&code.concat()), 40);
    assert_eq!(frame(&code[2..].concat()), 16);
}
