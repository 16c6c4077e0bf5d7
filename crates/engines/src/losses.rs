// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Losses that an engine counts, and the recorder writes into the ledger.

/// The skipped hits of one probe.
pub struct MissedHits {
    pub schema: String,
    pub place: String,
    pub count: u64,
    /// When they occurred, if known.
    pub spans: Vec<Span>,
    /// The likely reason, if one is known.
    pub why: String,
    /// They are samples, whose number is known from what was counted.
    pub sampled: bool,
}

/// Skipped hits between two times, in ns of the log clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub count: u64,
}

/// Events of an id on a CPU that a rate limit left out, and the times of the first and the last of
/// them, in ns of the log clock.
pub struct LeftOut {
    pub id: u16,
    pub cpu: u16,
    pub count: u64,
    pub first: u64,
    pub last: u64,
}

/// Hits of a trigger, and the times of the first and the last of them, in ns of the log clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    pub hits: u64,
    pub first: u64,
    pub last: u64,
}
