// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Machines of 64 bits whose instructions have 4 bytes. The kernel probes all of them rightly, and
//! replaces none by a call.

use super::{Hit, Returns, Unfit};

/// Whether one begins `at` so many bytes into the code of a function.
pub fn begins(code: &[u8], at: u64) -> bool {
    at % 4 == 0 && at < code.len() as u64
}

pub fn unfit(_code: &[u8]) -> Option<Unfit> {
    None
}

pub fn next_fit(_code: &[u8]) -> Option<u64> {
    None
}

/// It depends on the kernel.
pub fn hit(_code: &[u8], _address: u64, _optimises: bool) -> Option<Hit> {
    None
}

pub fn is_at_entry(_before: &[u8]) -> bool {
    false
}

pub fn returns(_code: &[u8]) -> Returns {
    Returns::Unknown("klogger does not find them on this machine")
}
