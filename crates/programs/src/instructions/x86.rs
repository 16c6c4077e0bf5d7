// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Instructions of x86-64. What the kernel does with them is in its arch/x86/kernel/uprobes.c.

use super::{Hit, Returns, Unfit};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use std::collections::BTreeSet;

fn decoder(code: &[u8]) -> Decoder<'_> {
    Decoder::new(64, code, DecoderOptions::NONE)
}

fn first(code: &[u8]) -> Instruction {
    decoder(code).decode()
}

/// Whether one begins `at` so many bytes into the code of a function.
pub fn begins(code: &[u8], at: u64) -> bool {
    let mut decoder = decoder(code);
    while (decoder.position() as u64) < at && decoder.can_decode() {
        if decoder.decode().is_invalid() {
            return false;
        }
    }
    decoder.position() as u64 == at && at < code.len() as u64
}

/// Prefixes of instructions of old: of segments, sizes, repetitions, and `lock`.
fn is_prefix(byte: &u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// Those of an instruction, and what follows.
fn split(code: &[u8]) -> (&[u8], &[u8]) {
    code.split_at(code.iter().take_while(|byte| is_prefix(byte)).count())
}

/// Whether some code begins with a vector instruction: one with a VEX, EVEX or XOP prefix.
///
/// The kernel goes by the first byte of the opcode as if there were no such prefix: `vpcmpeqb` has
/// that of a conditional jump, which it executes instead. For `vmovd` it sets no probe, and says
/// nothing. Others, such as `vxorps`, are executed rightly, but which these are differs by kernel.
fn is_vector(code: &[u8]) -> bool {
    let mut bytes = split(code).1.iter();
    match (bytes.next(), bytes.next()) {
        (Some(0x62 | 0xc4 | 0xc5), _) => true,
        // With a map below 8 it is pop.
        (Some(0x8f), Some(map)) => map & 0x1f >= 8,
        _ => false,
    }
}

/// What at the beginning of some code cannot be probed. A probe of which the kernel says nothing
/// would never be hit: it refuses the instruction only when a program maps the file.
pub fn unfit(code: &[u8]) -> Option<Unfit> {
    const NO_PROBE: &str = "it would set no probe, and say nothing";
    let unfit = |what, why| Some(Unfit { what, why });
    if is_vector(code) {
        let why = "it would execute another one, or set no probe";
        return unfit("a vector instruction", why);
    }
    let (prefixes, _) = split(code);
    let found = first(code);
    // A copy of `syscall` that is single-stepped goes on at a wrong address.
    if matches!(found.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) {
        return unfit("a system call", "the program would go on at a wrong address");
    }
    let traps = matches!(found.flow_control(), FlowControl::Interrupt | FlowControl::Exception);
    if found.is_invalid() || found.is_privileged() || traps {
        return unfit("an instruction that traps", NO_PROBE);
    }
    if prefixes.contains(&0xf0) {
        return unfit("an instruction with the prefix 'lock'", NO_PROBE);
    }
    // As in no-ops of many bytes, and in `notrack jmp`.
    if prefixes.iter().any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e)) {
        return unfit("an instruction with a segment prefix", NO_PROBE);
    }
    // As in calls for thread-local variables.
    if prefixes.contains(&0x66) && is_relative(&found) {
        return unfit("a call or jump with a size prefix", NO_PROBE);
    }
    None
}

/// A jump or call to an address that is in the instruction.
fn is_relative(found: &Instruction) -> bool {
    found.is_jcc_short_or_near() || found.is_jmp_short_or_near() || found.is_call_near()
}

/// Where the next instruction is that can be probed, if the code before it does not jump.
pub fn next_fit(code: &[u8]) -> Option<u64> {
    let mut decoder = decoder(code);
    while decoder.can_decode() {
        let at = decoder.position();
        let found = decoder.decode();
        if found.is_invalid() {
            return None;
        }
        if at > 0 && unfit(&code[at..]).is_none() && !is_no_op_of_five(&found) {
            return Some(at as u64);
        }
        if found.flow_control() != FlowControl::Next {
            return None;
        }
    }
    None
}

/// Changes nothing but the instruction pointer.
fn is_no_op(found: &Instruction) -> bool {
    match found.mnemonic() {
        Mnemonic::Nop => true,
        Mnemonic::Jmp => found.is_jmp_short_or_near() && found.near_branch64() == found.next_ip(),
        Mnemonic::Lea => {
            found.code() == Code::Lea_r64_m
                && found.op0_register() == found.memory_base()
                && found.memory_index() == Register::None
                && found.memory_displacement64() == 0
        }
        Mnemonic::Mov => {
            found.op0_register() == found.op1_register() && found.op0_register().is_gpr64()
        }
        _ => false,
    }
}

fn is_no_op_of_five(found: &Instruction) -> bool {
    found.len() == 5 && is_no_op(found)
}

/// What the kernel does at a hit. `address`: of the instruction, in memory or in the file;
/// `optimises`: `klogger_os::uprobes::optimises`.
pub fn hit(code: &[u8], address: u64, optimises: bool) -> Option<Hit> {
    const PAGE: u64 = 4096;
    let found = first(code);
    if found.is_invalid() {
        return None;
    }
    let one_page = address % PAGE + 5 <= PAGE;
    if optimises && one_page && is_no_op_of_five(&found) {
        return Some(Hit::Optimised);
    }
    // Of no-ops, older kernels emulate that of one byte.
    let no_op = found.mnemonic() == Mnemonic::Nop && (optimises || found.len() == 1);
    let push = found.code() == Code::Push_r64;
    match no_op || push || is_relative(&found) {
        true => Some(Hit::Emulated),
        false => Some(Hit::SingleStepped),
    }
}

/// Whether the stack is still as the caller of a function has left it after this code, from the
/// function's beginning on.
pub fn is_at_entry(before: &[u8]) -> bool {
    let harmless = |found: Instruction| is_no_op(&found) || found.mnemonic() == Mnemonic::Endbr64;
    decoder(before).into_iter().all(harmless)
}

/// Where a function with this code returns: what its jumps lead to, which must be all that looks
/// like a return. What else does is data, or the handler of an exception.
pub fn returns(code: &[u8]) -> Returns {
    let reached = match reached(code) {
        Ok(reached) => reached,
        Err(why) => return Returns::Unknown(why),
    };
    let is_return = |found: &Instruction| found.flow_control() == FlowControl::Return;
    let all: Vec<u64> = decoder(code).iter().filter(is_return).map(|found| found.ip()).collect();
    match all == reached {
        true if all.is_empty() => Returns::Unknown("it has no return instruction"),
        true => Returns::At(all),
        false => Returns::Unknown("not all of its code is reached by its jumps"),
    }
}

/// The return instructions that jumps lead to, in the order of their addresses; or why there may be
/// others.
fn reached(code: &[u8]) -> Result<Vec<u64>, &'static str> {
    let (mut seen, mut returns, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![0]);
    let mut decoder = decoder(code);
    while let Some(at) = next.pop() {
        if !seen.insert(at) {
            continue;
        }
        decoder.set_position(at as usize).map_err(|_| "it goes on in another function")?;
        decoder.set_ip(at);
        let found = decoder.decode();
        if found.is_invalid() {
            return Err("its code cannot be decoded, or goes on in another function");
        }
        let flow = found.flow_control();
        match flow {
            FlowControl::Return => drop(returns.insert(at)),
            FlowControl::IndirectBranch => return Err("it jumps to a computed address"),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = found.near_branch64();
                if target >= code.len() as u64 {
                    return Err("it jumps to another function");
                }
                next.push(target);
            }
            _ => {}
        }
        let ends = matches!(
            flow,
            FlowControl::Return
                | FlowControl::UnconditionalBranch
                | FlowControl::Interrupt
                | FlowControl::Exception
        );
        // What is called last need not return.
        let last_call = flow == FlowControl::Call && found.next_ip() == code.len() as u64;
        if !ends && !last_call && found.mnemonic() != Mnemonic::Hlt {
            next.push(found.next_ip());
        }
    }
    Ok(returns.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(code: &[u8]) -> Option<&'static str> {
        unfit(code).map(|unfit| unfit.what)
    }

    #[test]
    fn vector_instructions() {
        // vpbroadcastb zmm16, esi; mov rax, rdi
        let evex = [0x62, 0xe2, 0x7d, 0x48, 0x7a, 0xc6, 0x48, 0x89, 0xf8];
        assert_eq!(next_fit(&evex), Some(6));
        assert!(is_vector(&evex) && !is_vector(&evex[6..]) && !is_vector(&[]));
        // pop rax as 8f c0; vpcmov xmm0, xmm0, xmm0, xmm0; pop with a segment.
        assert!(!is_vector(&[0x8f, 0xc0]) && is_vector(&[0x8f, 0xe8, 0x78, 0xa2, 0xc0, 0]));
        assert!(is_vector(&[0x65, 0xc5, 0xf9]) && !is_vector(&[0x65, 0x8f, 0xc0]));
        // vmovd xmm5, edi; movd xmm5, edi
        assert_eq!(next_fit(&[0xc5, 0xf9, 0x6e, 0xef, 0x66, 0x0f, 0x6e, 0xef]), Some(4));
        assert_eq!(next_fit(&evex[..6]), None);
        // Cut.
        assert_eq!(next_fit(&evex[..5]), None);
    }

    #[test]
    fn what_the_kernel_does_not_probe() {
        // lock inc dword ptr [rax]; notrack jmp rax; nop word ptr cs:[rax + rax]; call with 66
        assert_eq!(what(&[0xf0, 0xff, 0]), Some("an instruction with the prefix 'lock'"));
        let segment = Some("an instruction with a segment prefix");
        assert_eq!(what(&[0x3e, 0xff, 0xe0]), segment);
        assert_eq!(what(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), segment);
        let sized = [0x66, 0x66, 0x48, 0xe8, 1, 0, 0, 0];
        assert_eq!(what(&sized), Some("a call or jump with a size prefix"));
        assert_eq!(what(&[0x0f, 0x05]), Some("a system call"));
        for traps in [&[0xcc][..], &[0x0f, 0x0b], &[0xf4], &[0xcd, 0x80], &[0x06]] {
            assert_eq!(what(traps), Some("an instruction that traps"), "{traps:x?}");
        }
        // push rbp; endbr64; nop dword ptr [rax + rax]; mov rax, fs:[0]; xchg ax, ax; call
        let good: [&[u8]; 6] = [
            &[0x55],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
            &[0x66, 0x90],
            &[0xe8, 0, 0, 0, 0],
        ];
        good.iter().for_each(|code| assert_eq!(what(code), None, "{code:x?}"));
        // What follows a jump is not next.
        assert_eq!(next_fit(&[0x3e, 0xff, 0xe0, 0x90]), None);
        assert_eq!(next_fit(&[0xf0, 0xff, 0, 0x90]), Some(3));
    }

    #[test]
    fn what_the_kernel_does_at_a_hit() {
        let five: [&[u8]; 4] = [
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x40, 0],
            &[0x48, 0x8d, 0x74, 0x26, 0],
            &[0xe9, 0, 0, 0, 0],
        ];
        for code in five {
            assert_eq!(hit(code, 0x1000, true), Some(Hit::Optimised), "{code:x?}");
            assert_ne!(hit(code, 0x1ffc, true), Some(Hit::Optimised), "on two pages");
            assert_ne!(hit(code, 0x1000, false), Some(Hit::Optimised));
        }
        // push r12; je +2; nop; nop of 4 bytes
        for code in [&[0x41, 0x54][..], &[0x74, 0x02], &[0x90], &[0x0f, 0x1f, 0x40, 0]] {
            assert_eq!(hit(code, 0, true), Some(Hit::Emulated), "{code:x?}");
        }
        // endbr64; ret; lea rsi, [rdi]
        for code in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xc3], &[0x48, 0x8d, 0x77, 0, 0]] {
            assert_eq!(hit(code, 0, true), Some(Hit::SingleStepped), "{code:x?}");
        }
    }

    #[test]
    fn where_the_stack_is_still_that_of_the_caller() {
        assert!(is_at_entry(&[]) && is_at_entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x90]));
        // mov [rsp - 8], rdi
        assert!(!is_at_entry(&[0x48, 0x89, 0x7c, 0x24, 0xf8]));
    }

    #[test]
    fn where_a_function_returns() {
        // test edi, edi; je 6; ret; nop; ret
        assert_eq!(returns(&[0x85, 0xff, 0x74, 0x02, 0xc3, 0x90, 0xc3]), Returns::At(vec![4, 6]));
        // A loop around a call, which is also last: call; jne 0; ret; call
        let call = [0xe8, 0, 0, 0, 0];
        let both = [&call[..], &[0x75, 0xf9, 0xc3], &call].concat();
        assert_eq!(returns(&both), Returns::At(vec![7]));
        // jmp elsewhere; je elsewhere; jmp rax; hlt; ret, and data like it; no end
        let unknown: [&[u8]; 6] = [
            &[0xeb, 0x10, 0xc3],
            &[0x74, 0x70, 0xc3],
            &[0xff, 0xe0, 0xc3],
            &[0xf4],
            &[0xc3; 2],
            &[0x90],
        ];
        for code in unknown {
            assert!(matches!(returns(code), Returns::Unknown(_)), "{code:x?}");
        }
    }

    #[test]
    fn boundaries() {
        // push rbp; mov rbp, rsp; lea rax, [rip + 0x1234]; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x05, 0x34, 0x12, 0, 0, 0xc3];
        let good: Vec<u64> = (0..20).filter(|at| begins(&code, *at)).collect();
        assert_eq!(good, [0, 1, 4, 11]);
        // Not an instruction.
        assert!(!begins(&[0x06, 0x90], 1));
    }
}
