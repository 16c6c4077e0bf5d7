// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The functions that Fedora and others leave in stripped programs (MiniDebugInfo): the section
//! `.gnu_debugdata` is an ELF file with a symbol table, packed with xz. Programs are untrusted, so
//! what unpacking takes is bounded, and what is damaged has no functions.

use crate::elf::Elf;
use crate::symbols::{Function, of_table};
use elf::abi::SHT_SYMTAB;
use lzma_rust2::XzReader;
use std::io::{self, Read};

const SECTION: &str = ".gnu_debugdata";
/// Bytes of the unpacked file at most; that of the largest programs has a tenth.
const UNPACKED_MAX: u64 = 256 << 20;
/// KiB that the decoder may need; the highest level of xz needs a quarter more than its window of
/// 64 MiB.
const MEMORY_MAX: u32 = 96 << 10;

/// None, if the program has no such section.
pub fn functions(elf: &Elf) -> Vec<Function> {
    let Ok(Some((_, packed))) = elf.section(SECTION) else { return Vec::new() };
    let unpacked = unpacked(&packed).ok().and_then(|file| Elf::open(file).ok());
    unpacked.and_then(|elf| of_table(&elf, SHT_SYMTAB).ok()).unwrap_or_default()
}

/// In a file without a name.
fn unpacked(packed: &[u8]) -> io::Result<std::fs::File> {
    let mut file = tempfile::tempfile()?;
    let mut reader = XzReader::new_mem_limit(packed, false, MEMORY_MAX).take(UNPACKED_MAX + 1);
    match io::copy(&mut reader, &mut file)? {
        0..=UNPACKED_MAX => Ok(file),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut xz = Command::new("xz");
        let mut child = xz.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
        let done = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(done.status.success());
        done.stdout
    }

    #[test]
    fn what_is_too_large_or_damaged_is_refused() {
        let mut whole = xz(b"an ELF file");
        assert_eq!(unpacked(&whole).unwrap().metadata().unwrap().len(), 11);
        let at = whole.len() / 2;
        whole[at] ^= 0xff;
        assert!(unpacked(&whole).is_err());
        assert!(unpacked(&whole[..at]).is_err());
        // 38 KiB, that become more than is allowed.
        let zeros = xz(&vec![0; UNPACKED_MAX as usize + 1]);
        assert_eq!(unpacked(&zeros).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
