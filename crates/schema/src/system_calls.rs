// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls: their numbers, and the decoding `as syscall`.

pub mod classes;

use crate::model::Decoding;
use std::collections::BTreeMap;
use syscalls::{aarch64, arm, x86, x86_64};

/// The name of the decoding, which needs no declaration.
pub const TABLE: &str = "syscall";
/// Added to the number of a 32-bit program's call, whose numbers are others: `KLOGGER_CALL_32` of
/// the runtime.
pub const CALL_32: u64 = 0x2000_0000;

/// The names and numbers of all calls; the iterator leaves the last one out.
macro_rules! named {
    ($machine:ident) => {{
        use $machine::Sysno;
        let all = Sysno::iter().chain([Sysno::last()]);
        all.map(|call| (call.name(), call.id() as u32)).collect()
    }};
}

/// The calls of a machine, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86,
    Arm,
}

impl Machine {
    /// The one for which klogger was compiled.
    pub fn here() -> Machine {
        if cfg!(target_arch = "aarch64") { Machine::Arm } else { Machine::X86 }
    }

    /// As `uname -m` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Machine::X86 => "x86_64",
            Machine::Arm => "aarch64",
        }
    }

    /// The names and numbers of all calls of 64-bit programs.
    pub fn calls(self) -> BTreeMap<&'static str, u32> {
        match self {
            Machine::X86 => named!(x86_64),
            Machine::Arm => named!(aarch64),
        }
    }

    /// Those of 32-bit programs.
    fn calls_32(self) -> BTreeMap<&'static str, u32> {
        match self {
            Machine::X86 => named!(x86),
            Machine::Arm => named!(arm),
        }
    }

    /// By the number of a 32-bit program's call, that of the 64-bit call of the same name.
    pub fn named_as_32(self) -> BTreeMap<u32, u32> {
        let own = self.calls();
        let same = |(name, number): (&str, u32)| Some((number, *own.get(name)?));
        self.calls_32().into_iter().filter_map(same).collect()
    }

    pub fn number(self, name: &str) -> Option<u32> {
        self.calls().get(name).copied()
    }

    /// What prefixes the names of a 32-bit program's calls.
    fn prefix_32(self) -> &'static str {
        match self {
            Machine::X86 => "i386",
            Machine::Arm => "arm",
        }
    }
}

/// The names of all calls of this machine, by the number that a probe of all calls gets.
pub fn table() -> Decoding {
    let machine = Machine::here();
    let own = machine.calls().into_iter().map(|(name, n)| (u64::from(n), name.to_string()));
    let other = machine.calls_32().into_iter();
    let other =
        other.map(|(name, n)| (CALL_32 | u64::from(n), format!("{}:{name}", machine.prefix_32())));
    let mut values: Vec<(u64, String)> = own.chain(other).collect();
    values.sort_unstable();
    values.dedup_by_key(|(number, _)| *number);
    Decoding { name: TABLE.into(), flags: false, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_number_for_each_kind_of_program() {
        assert_eq!(Machine::X86.number("openat"), Some(257));
        assert_eq!(Machine::Arm.number("openat"), Some(56));
        assert_eq!(Machine::Arm.number("open"), None);
        assert_eq!(Machine::X86.number("sys_openat"), None);
        // The last ones of the tables.
        let last = [Machine::X86, Machine::Arm].map(|machine| machine.number("file_setattr"));
        assert_eq!(last, [Some(469); 2]);
        // openat, getpid; and mmap2, which 64-bit programs do not have.
        let same = Machine::X86.named_as_32();
        let found = [295, 20, 192].map(|n| same.get(&n).copied());
        assert_eq!(found, [Some(257), Some(39), None]);
        assert_eq!(Machine::Arm.named_as_32().get(&322), Some(&56));
    }

    #[test]
    fn a_number_of_the_table_means_one_call() {
        let table = table();
        let name = |number| table.values.iter().find(|(n, _)| *n == number).map(|(_, t)| &t[..]);
        let numbers: Vec<u64> = table.values.iter().map(|(number, _)| *number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        let getpid = Machine::here().number("getpid").map(u64::from).unwrap();
        assert_eq!(name(getpid), Some("getpid"));
        let other = format!("{}:getpid", Machine::here().prefix_32());
        assert_eq!(name(CALL_32 | 20), Some(other.as_str()));
    }
}
