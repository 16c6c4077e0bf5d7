// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Instructions of programs: where they begin, which of them the kernel can probe, and what it does
//! when such a probe is hit.

#[cfg(not(target_arch = "x86_64"))]
mod arm64;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(target_arch = "x86_64"))]
pub use arm64::{begins, hit, is_at_entry, next_fit, returns, unfit};
#[cfg(target_arch = "x86_64")]
pub use x86::{begins, hit, is_at_entry, next_fit, returns, unfit};

/// What the kernel does with the instruction of a probe, beside running the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// It changes the registers as the instruction would.
    Emulated,
    /// It has put a call in the place of a no-op, so that there is no trap.
    Optimised,
    /// It lets the CPU execute a copy of it, with a second trap.
    SingleStepped,
}

impl Hit {
    /// For lists.
    pub fn word(self) -> &'static str {
        match self {
            Hit::Emulated => "emulated",
            Hit::Optimised => "optimised",
            Hit::SingleStepped => "single-stepped",
        }
    }
}

/// Why there can be no probe at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// With its article.
    pub what: &'static str,
    /// What the kernel would do.
    pub why: &'static str,
}

/// Where a function can return.
#[derive(Debug, PartialEq, Eq)]
pub enum Returns {
    /// Its return instructions: bytes from its beginning.
    At(Vec<u64>),
    /// Why there may be others.
    Unknown(&'static str),
}
