// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe breakpoint jiffies:8 w()`: memory is written or read, or an instruction is executed.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_symbol};

pub(super) static BREAKPOINT: Row = Row {
    word: "breakpoint",
    noun: "breakpoint",
    example: "probe breakpoint jiffies:8 w(u64 ip)",
    elsewhere: &["watchpoint", "asyncwatchpoint", "mem"],
    parameters: PARAMETERS_MAX,
    phrase: true,
    wrong,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint<'a> {
    pub at: Place<'a>,
    /// Bytes: 1, 2, 4 or 8.
    pub length: u64,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    Address(u64),
    /// Of the kernel.
    Symbol(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Write,
    ReadWrite,
    Execute,
}

/// From `jiffies:8 w`, `0x7ffd12345678:4 rw` or `vfs_read x`.
pub fn breakpoint(name: &str) -> Option<Breakpoint<'_>> {
    parse(name).ok()
}

fn wrong(name: &str) -> Option<Wrong> {
    parse(name).err()
}

fn parse(name: &str) -> Result<Breakpoint<'_>, Wrong> {
    let example = || {
        let example = ProbeKind::Breakpoint.for_example();
        format!("{example}; after the address `w`, `rw` or `x`: written, also read, executed")
    };
    let words: Vec<&str> = name.split(' ').collect();
    let [what, access] = words[..] else {
        return Err(("needs an address, and what is done there", example()));
    };
    let access = match access {
        "w" => Access::Write,
        "rw" => Access::ReadWrite,
        "x" => Access::Execute,
        "r" => {
            let help = "write `rw`: CPUs cannot tell reads from accesses of both kinds";
            return Err(("no CPU can do this", help.into()));
        }
        _ => return Err(("not what is done there", example())),
    };
    let (place, length) = match (what.split_once(':'), access) {
        (None, Access::Execute) => (what, 8),
        (Some(_), Access::Execute) => {
            return Err(("an instruction has no length here", "omit the `:` and it".into()));
        }
        (Some((place, length)), _) if ["1", "2", "4", "8"].contains(&length) => {
            (place, length.parse().unwrap_or(8))
        }
        _ => return Err(("without its length", "write `SYMBOL:8`, or 1, 2 or 4 bytes".into())),
    };
    let at = match place.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(address)) => Place::Address(address),
        None if is_symbol(place) => Place::Symbol(place),
        Some(Err(_)) | None => return Err(("not an address", example())),
    };
    match at {
        Place::Address(address) if access != Access::Execute && address % length != 0 => {
            let help = format!("CPUs watch {length} bytes at a multiple of {length}");
            Err(("not aligned", help))
        }
        at => Ok(Breakpoint { at, length, access }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let symbol = Place::Symbol("jiffies");
        let found = breakpoint("jiffies:8 w");
        assert_eq!(found, Some(Breakpoint { at: symbol, length: 8, access: Access::Write }));
        let at = Place::Address(0x7f00_0000_1004);
        let found = breakpoint("0x7f0000001004:4 rw");
        assert_eq!(found, Some(Breakpoint { at, length: 4, access: Access::ReadWrite }));
        let found = breakpoint("vfs_read x").map(|b| (b.at, b.access));
        assert_eq!(found, Some((Place::Symbol("vfs_read"), Access::Execute)));
        for bad in [
            "",
            "jiffies",
            "jiffies w",
            "jiffies:8",
            "jiffies:3 w",
            "jiffies:8 r",
            "jiffies:8 rwx",
            "jiffies:8 x",
            "0x1001:4 w",
            "0xz:4 w",
            "0x:4 w",
            "1000:4 w",
            "a b:4 w",
        ] {
            assert_eq!(breakpoint(bad), None, "{bad}");
        }
    }
}
