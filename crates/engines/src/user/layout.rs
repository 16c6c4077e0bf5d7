// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where things stand in the file that a program shares: the offsets of
//! `runtime/include/klogger/program_shm.h`.

use klogger_ring::{EVENTS_MAX, NESTED, Rings};

pub const MAGIC: u64 = 0x6c72_7463_6767_766b;
pub const VERSION: u32 = 1;
pub const SCHEMATA_MAX: usize = 15;
pub const TEXT_MAX: usize = 1 << 18;
/// Local id of the first event that is not klogger's own.
pub const LOCAL_BASE: u32 = 16;
pub const MARK_ID: u16 = 7;
pub const SLOTS_MAX: usize = 4096;
/// The kernel's note in `keeper` (FUTEX_OWNER_DIED).
pub const KEEPER_DIED: u32 = 0x4000_0000;
pub const RING_MIN: u64 = 1 << 14;
pub const RING_MAX: u64 = 1 << 26;

/// Bytes of the control page.
pub const CONTROL: usize = 4096;
pub const AT_MAGIC: usize = 0;
pub const AT_VERSION: usize = 8;
pub const AT_PID: usize = 12;
pub const AT_TOKEN: usize = 24;
pub const AT_SIZE: usize = 32;
pub const AT_SLOTS: usize = 40;
pub const AT_RING_SIZE: usize = 44;
pub const AT_SLOTS_AT: usize = 48;
pub const AT_SLOT_STRIDE: usize = 56;
pub const AT_CLOCK: usize = 64;
pub const AT_SCHEMATA: usize = 68;
pub const AT_FAILED: usize = 76;
pub const AT_ARMED: usize = 80;
pub const AT_SLOTS_ALLOWED: usize = 84;
pub const AT_FLIGHT: usize = 88;
pub const AT_CALL: usize = 92;
pub const AT_KEEPER: usize = 104;
pub const AT_ABANDONED: usize = 112;
pub const AT_SCHEMA: usize = 240;
pub const AT_ON: usize = AT_SCHEMA + SCHEMATA_MAX * SCHEMA;
pub const AT_FIRST_TEXTS: usize = AT_ON + EVENTS_MAX;

/// `struct klogger_module_schema`
pub const SCHEMA: usize = 64;
pub const SCHEMA_BASE: usize = 0;
pub const SCHEMA_EVENTS: usize = 4;
pub const SCHEMA_TEXT_AT: usize = 8;
pub const SCHEMA_LENGTH: usize = 12;
pub const SCHEMA_NAME: usize = 16;

pub const AT_LOST: usize = CONTROL + TEXT_MAX;
pub const AT_SLOT: usize = AT_LOST + 8 * EVENTS_MAX;
pub const SLOTS_AT: usize = AT_SLOT + SLOTS_MAX * SLOT;

/// `struct klogger_slot`
pub const SLOT: usize = 16;
pub const SLOT_USE: usize = 0;
pub const SLOT_TID: usize = 4;
pub const SLOT_EMPTIED: usize = 8;

/// Bytes of a slot whose main ring has `size`.
pub fn slot_bytes(size: usize) -> usize {
    Rings::stride(size) + Rings::stride(NESTED)
}

/// Memory that a thread takes whose ring has `size` bytes.
pub fn slot_memory(size: u64) -> u64 {
    slot_bytes(size as usize) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::process::Command;

    /// The C compiler says whether these are the header's offsets.
    #[test]
    fn offsets_are_those_of_the_header() {
        let members = [
            ("magic", AT_MAGIC),
            ("version", AT_VERSION),
            ("pid", AT_PID),
            ("token", AT_TOKEN),
            ("size", AT_SIZE),
            ("slots", AT_SLOTS),
            ("ring_size", AT_RING_SIZE),
            ("slots_at", AT_SLOTS_AT),
            ("slot_stride", AT_SLOT_STRIDE),
            ("clock", AT_CLOCK),
            ("schemata", AT_SCHEMATA),
            ("failed", AT_FAILED),
            ("armed", AT_ARMED),
            ("slots_allowed", AT_SLOTS_ALLOWED),
            ("flight", AT_FLIGHT),
            ("call", AT_CALL),
            ("keeper", AT_KEEPER),
            ("abandoned", AT_ABANDONED),
            ("schema", AT_SCHEMA),
            ("on", AT_ON),
            ("first_texts", AT_FIRST_TEXTS),
        ];
        let mut c = String::from("#include <stddef.h>\n#include \"klogger/program_shm.h\"\n");
        let mut assert = |what: &str, value: usize| {
            let _ = writeln!(c, "_Static_assert(({what}) == {value}ull, \"{value}\");");
        };
        for (name, offset) in members {
            assert(&format!("offsetof(struct klogger_control, {name})"), offset);
        }
        for (name, offset) in [
            ("base", SCHEMA_BASE),
            ("events", SCHEMA_EVENTS),
            ("text", SCHEMA_TEXT_AT),
            ("length", SCHEMA_LENGTH),
            ("name", SCHEMA_NAME),
        ] {
            assert(&format!("offsetof(struct klogger_module_schema, {name})"), offset);
        }
        assert("sizeof(struct klogger_module_schema)", SCHEMA);
        assert("CONTROL + offsetof(struct klogger_control_rest, lost)", AT_LOST);
        assert("CONTROL + offsetof(struct klogger_control_rest, slot)", AT_SLOT);
        assert("KLOGGER_SLOTS_AT", SLOTS_AT);
        for (name, offset) in [("use", SLOT_USE), ("tid", SLOT_TID), ("emptied", SLOT_EMPTIED)] {
            assert(&format!("offsetof(struct klogger_slot, {name})"), offset);
        }
        assert("sizeof(struct klogger_slot)", SLOT);
        assert("KLOGGER_SLOT_BYTES(1ull << 20)", slot_bytes(1 << 20));
        for (name, value) in [
            ("CONTROL_MAGIC", MAGIC as usize),
            ("CONTROL_VERSION", VERSION as usize),
            ("SCHEMATA_MAX", SCHEMATA_MAX),
            ("TEXT_MAX", TEXT_MAX),
            ("LOCAL_BASE", LOCAL_BASE as usize),
            ("MARK_ID", MARK_ID.into()),
            ("SLOTS_MAX", SLOTS_MAX),
            ("KEEPER_DIED", KEEPER_DIED as usize),
            ("USER_RING_MIN", RING_MIN as usize),
            ("USER_RING_MAX", RING_MAX as usize),
        ] {
            assert(&format!("KLOGGER_{name}"), value);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("offsets.c");
        std::fs::write(&file, c).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/include");
        let output = Command::new("cc")
            .args([
                "-std=c11",
                "-fsyntax-only",
                "-DCONTROL=sizeof(struct klogger_control)",
                "-I",
                include,
            ])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
