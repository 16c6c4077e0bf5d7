// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A straight line between two pairs, prepared for many times on it.

use super::{Pair, line};

/// A line, prepared for many times on it.
pub struct Segment {
    a: Pair,
    b: Pair,
    /// ns per tick, as a fixed-point number with 32 fractional bits, so that a time is at most 1 ns
    /// too early; 0 if the line is too long for that.
    slope: u64,
}

impl Segment {
    pub fn new((a, b): (Pair, Pair)) -> Segment {
        let (ticks, ns) = (b.ticks - a.ticks, b.ns - a.ns);
        let short = (1..1 << 32).contains(&ticks) && ns < 1 << 32;
        Segment { a, b, slope: if short { (ns << 32) / ticks } else { 0 } }
    }

    pub fn holds(&self, ticks: u64) -> bool {
        (self.a.ticks..=self.b.ticks).contains(&ticks)
    }

    /// Multiplies, because a division would cost as much as all other steps for a record.
    pub fn at(&self, ticks: u64) -> u64 {
        match self.slope != 0 && self.holds(ticks) {
            true => {
                self.a.ns
                    + ((u128::from(ticks - self.a.ticks) * u128::from(self.slope)) >> 32) as u64
            }
            false => line(self.a, self.b, ticks),
        }
    }
}
