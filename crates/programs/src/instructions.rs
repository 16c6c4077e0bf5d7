// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether an instruction begins at an address. A probe in the middle of one would make the program
//! execute something else.

/// Whether one begins `at` so many bytes into the code of a function.
#[cfg(target_arch = "x86_64")]
pub fn begins(code: &[u8], at: u64) -> bool {
    use iced_x86::{Decoder, DecoderOptions};
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while (decoder.position() as u64) < at && decoder.can_decode() {
        if decoder.decode().is_invalid() {
            return false;
        }
    }
    decoder.position() as u64 == at && at < code.len() as u64
}

/// All have 4 bytes.
#[cfg(not(target_arch = "x86_64"))]
pub fn begins(code: &[u8], at: u64) -> bool {
    at % 4 == 0 && at < code.len() as u64
}

/// Whether some code begins with a vector instruction: one with a VEX, EVEX or XOP prefix.
///
/// The kernel goes by the first byte of the opcode as if there were no such prefix: `vpcmpeqb` has
/// that of a conditional jump, which it executes instead. For `vmovd` it sets no probe, and says
/// nothing. Others, such as `vxorps`, are executed rightly, but which these are differs by kernel.
#[cfg(target_arch = "x86_64")]
pub fn is_vector(code: &[u8]) -> bool {
    // Segments, and the size of addresses.
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67);
    let mut bytes = code.iter().skip_while(|byte| is_prefix(byte));
    match (bytes.next(), bytes.next()) {
        (Some(0x62 | 0xc4 | 0xc5), _) => true,
        // With a map below 8 it is pop.
        (Some(0x8f), Some(map)) => map & 0x1f >= 8,
        _ => false,
    }
}

/// The kernel handles all.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_vector(_code: &[u8]) -> bool {
    false
}

/// Where the first instruction is that is no vector instruction; none of these jumps.
#[cfg(target_arch = "x86_64")]
pub fn first_plain(code: &[u8]) -> Option<u64> {
    use iced_x86::{Decoder, DecoderOptions};
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        let at = decoder.position();
        if decoder.decode().is_invalid() {
            return None;
        }
        if !is_vector(&code[at..]) {
            return Some(at as u64);
        }
    }
    None
}

/// Any.
#[cfg(not(target_arch = "x86_64"))]
pub fn first_plain(_code: &[u8]) -> Option<u64> {
    Some(0)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{begins, first_plain, is_vector};

    #[test]
    fn vector_instructions() {
        // vpbroadcastb zmm16, esi; mov rax, rdi
        let evex = [0x62, 0xe2, 0x7d, 0x48, 0x7a, 0xc6, 0x48, 0x89, 0xf8];
        assert_eq!(first_plain(&evex), Some(6));
        assert!(is_vector(&evex) && !is_vector(&evex[6..]) && !is_vector(&[]));
        // pop rax as 8f c0; vpcmov xmm0, xmm0, xmm0, xmm0; pop with a segment.
        assert!(!is_vector(&[0x8f, 0xc0]) && is_vector(&[0x8f, 0xe8, 0x78, 0xa2, 0xc0, 0]));
        assert!(is_vector(&[0x65, 0xc5, 0xf9]) && !is_vector(&[0x65, 0x8f, 0xc0]));
        // vmovd xmm5, edi; movd xmm5, edi
        assert_eq!(first_plain(&[0xc5, 0xf9, 0x6e, 0xef, 0x66, 0x0f, 0x6e, 0xef]), Some(4));
        assert_eq!(first_plain(&[0x55]), Some(0));
        assert_eq!(first_plain(&evex[..6]), None);
        // Cut.
        assert_eq!(first_plain(&evex[..5]), None);
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
