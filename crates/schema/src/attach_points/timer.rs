// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe timer 99Hz()`: time has passed, on each CPU.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong};

pub(super) static TIMER: Row = Row {
    word: "timer",
    noun: "timer",
    example: "probe timer 99Hz()",
    elsewhere: &["profile", "interval"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong,
};

/// The largest number of samples per second. More would be of no use.
pub(super) const HZ_MAX: u64 = 10_000;
/// Nanoseconds between two of them.
pub(super) const PERIOD_MIN_NS: u64 = 1_000_000_000 / HZ_MAX;

fn wrong(name: &str) -> Option<Wrong> {
    period_ns(name).is_none().then(|| {
        let example = ProbeKind::Timer.for_example();
        (
            "not a rate or an interval",
            format!("{example}: 1 to 10000 Hz, or 1 to 3600 s, or ms, or us of at least 100"),
        )
    })
}

/// The interval of a timer, from `99Hz` or `10ms`: between 100 us and an hour.
pub fn period_ns(name: &str) -> Option<u64> {
    if let Some(hz) = hz(name) {
        return Some(1_000_000_000 / hz);
    }
    let digits = name.find(|c: char| !c.is_ascii_digit())?;
    let n: u64 = name[..digits].parse().ok()?;
    let unit = match &name[digits..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    n.checked_mul(unit).filter(|ns| (PERIOD_MIN_NS..=3_600_000_000_000).contains(ns))
}

/// `99Hz`, `1kHz`
pub(super) fn hz(name: &str) -> Option<u64> {
    let hz = match name.strip_suffix("kHz") {
        Some(thousands) => number(thousands)?.checked_mul(1000)?,
        None => number(name.strip_suffix("Hz")?)?,
    };
    (1..=HZ_MAX).contains(&hz).then_some(hz)
}

/// Digits only, without a sign.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (name, ns) in [
            ("1Hz", 1_000_000_000),
            ("99Hz", 10_101_010),
            ("10000Hz", 100_000),
            ("10kHz", 100_000),
            ("100us", 100_000),
            ("1ms", 1_000_000),
            ("3600s", 3_600_000_000_000),
        ] {
            assert_eq!(period_ns(name), Some(ns), "{name}");
        }
        for bad in [
            "",
            "Hz",
            "0Hz",
            "10001Hz",
            "11kHz",
            "99us",
            "3601s",
            "1h",
            "1 s",
            "99999999999999999999s",
            "99999999999999999kHz",
            "-1s",
            "+1Hz",
        ] {
            assert_eq!(period_ns(bad), None, "{bad}");
        }
    }
}
