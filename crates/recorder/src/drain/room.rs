// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether a ring has room for what comes while its reader is held up.

/// How long interrupts or a hypervisor, for example, may delay a reader.
const HELD_UP_NS: u64 = 50_000_000;
/// So long half of a ring must last, if being woken earlier is to be enough.
const AMPLE_NS: u64 = 2 * HELD_UP_NS;

/// What is done if a ring would be full before a delayed reader could drain it. To be woken when
/// half of it is full costs next to nothing; each event costs more in a larger ring, which writers
/// reach on their slow path.
#[derive(Debug, PartialEq, Eq)]
pub enum Remedy {
    Nothing,
    WakeEarlier,
    Grow,
}

impl Remedy {
    /// For a ring of `size` bytes, whose reader is woken when `reserve` are left, if `fill` came in
    /// the last `ns`.
    pub fn of(size: u64, reserve: u64, fill: u64, ns: u64) -> Remedy {
        if fill < size / 8 || holds_ns(reserve, fill, ns) >= HELD_UP_NS {
            Remedy::Nothing
        } else if reserve < size / 2 && holds_ns(size / 2, fill, ns) >= AMPLE_NS {
            Remedy::WakeEarlier
        } else {
            Remedy::Grow
        }
    }
}

/// How long `room` bytes last, if `fill` bytes came in the last `ns`.
fn holds_ns(room: u64, fill: u64, ns: u64) -> u64 {
    let holds = u128::from(room) * u128::from(ns) / u128::from(fill.max(1));
    holds.min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_grows_if_it_is_not_enough_to_be_woken_earlier() {
        const MIB: u64 = 1 << 20;
        // An eighth of 4 MiB, so that no division leaves a rest.
        const RESERVE: u64 = MIB / 2;
        let of = |reserve: u64, per_s: u64| Remedy::of(4 * MIB, reserve, per_s / 4, 250_000_000);
        assert_eq!(of(RESERVE, MIB), Remedy::Nothing, "too little to go by");
        assert_eq!(of(RESERVE, 10 * MIB), Remedy::Nothing);
        assert_eq!(of(RESERVE, 11 * MIB), Remedy::WakeEarlier);
        assert_eq!(of(RESERVE, 20 * MIB), Remedy::WakeEarlier);
        assert_eq!(of(RESERVE, 21 * MIB), Remedy::Grow);
        assert_eq!(of(2 * MIB, 40 * MIB), Remedy::Nothing);
        assert_eq!(of(2 * MIB, 41 * MIB), Remedy::Grow);
    }

    #[test]
    fn how_long_the_room_in_a_ring_lasts() {
        assert_eq!(holds_ns(1 << 20, 1 << 19, 1_000_000), 2_000_000);
        assert_eq!(holds_ns(4 << 20, 4 << 20, HELD_UP_NS), HELD_UP_NS);
        assert_eq!(holds_ns(1 << 20, 0, 1_000), 1_000 << 20);
        assert_eq!(holds_ns(1 << 28, 1, u64::MAX), u64::MAX);
    }
}
