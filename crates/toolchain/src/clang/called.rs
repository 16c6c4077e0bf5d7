// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks which helpers of the kernel a compiled schema calls. A probe only observes; other helpers
//! write to programs, send signals, or change what the kernel returns.

use elf::ElfBytes;
use elf::abi::SHF_EXECINSTR;
use elf::endian::AnyEndian;
use klogger_codegen::RUNTIME;
use klogger_os::Error;
use klogger_schema::Diagnostic;
use klogger_schema::model::Span;

/// Bytes of an instruction: opcode, registers (the source in the upper half), offset, and a number
/// of 4 bytes. See the kernel's Documentation/bpf/standardization/instruction-set.rst.
const INSTRUCTION: usize = 8;
const CALL: u8 = 0x85;
/// The source register of a call by number. Others call functions of the object, or of the kernel
/// by name.
const HELPER: u8 = 0;

/// The first helper in an object that the runtime has no use for.
pub(super) fn not_allowed(object: &[u8]) -> Result<Option<u32>, Error> {
    let allowed = allowed();
    let called = called(object)
        .map_err(|e| Error::new(format!("cannot read the object that clang has made: {e}")))?;
    Ok(called.into_iter().find(|number| !allowed.contains(number)))
}

pub(super) fn complaint(number: u32) -> Diagnostic {
    let message = format!("the C of this schema calls function {number} of bpf");
    Diagnostic::error(Span { start: 0, end: 0 }, message).help(
        "a probe only observes, and has the functions that it needs for that: see 'The C code of a \
               schema is untrusted' in docs/language/code.md",
    )
}

/// Those that the runtime declares: `NAME(...) = (void *)NUMBER;`
fn allowed() -> Vec<u32> {
    let helpers = RUNTIME.iter().filter(|(name, _)| *name == "helpers.h");
    let numbers = helpers.flat_map(|(_, text)| text.split("= (void *)").skip(1));
    numbers.filter_map(|rest| rest.split(';').next()?.parse().ok()).collect()
}

fn called(object: &[u8]) -> Result<Vec<u32>, elf::ParseError> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(object)?;
    let little = !matches!(file.ehdr.endianness, AnyEndian::Big);
    let mut numbers = Vec::new();
    for section in file.section_headers().into_iter().flatten() {
        if section.sh_flags & u64::from(SHF_EXECINSTR) == 0 {
            continue;
        }
        let (code, _) = file.section_data(&section)?;
        numbers.extend(code.chunks_exact(INSTRUCTION).filter_map(|i| helper(i, little)));
    }
    Ok(numbers)
}

fn helper(instruction: &[u8], little: bool) -> Option<u32> {
    let [CALL, registers, _, _, number @ ..] = instruction else { return None };
    let source = if little { registers >> 4 } else { registers & 15 };
    let number = <[u8; 4]>::try_from(number).ok()?;
    let number = if little { u32::from_le_bytes(number) } else { u32::from_be_bytes(number) };
    (source == HELPER).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_names_what_is_allowed() {
        let allowed = allowed();
        // Look-up in a map, time, read; and the one whose number is on a line of its own.
        assert!([1, 5, 113, 55].iter().all(|n| allowed.contains(n)), "{allowed:?}");
        // probe_write_user, override_return, send_signal, send_signal_thread.
        assert!([36, 58, 109, 117].iter().all(|n| !allowed.contains(n)), "{allowed:?}");
    }

    #[test]
    fn calls_by_number() {
        assert_eq!(helper(&[0x85, 0, 0, 0, 109, 0, 0, 0], true), Some(109));
        assert_eq!(helper(&[0x85, 0, 0, 0, 0, 0, 0, 109], false), Some(109));
        assert_eq!(helper(&[0x85, 0x10, 0, 0, 5, 0, 0, 0], true), None);
        assert_eq!(helper(&[0x05, 0, 0, 0, 5, 0, 0, 0], true), None);
        assert!(not_allowed(b"no object").is_err());
    }
}
