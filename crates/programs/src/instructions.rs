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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::begins;

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
