// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe timer 99Hz()`: time has passed, on each CPU.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong};

pub(super) static TIMER: Row = Row {
    word: "timer",
    noun: "timer",
    example: "probe timer 99Hz()",
    elsewhere: &["profile", "interval"],
    parameters: PARAMETERS_MAX,
    wrong,
};

fn wrong(name: &str) -> Option<Wrong> {
    (!is_rate(name)).then(|| {
        let example = ProbeKind::Timer.for_example();
        (
            "not a rate or an interval",
            format!("{example}: 1 to 10000 Hz, or 1 to 3600 s, or ms, or us of at least 100"),
        )
    })
}

/// `99Hz`, `10ms`: between once an hour and 10,000 times a second. A faster timer would be of no
/// use.
fn is_rate(name: &str) -> bool {
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    let Ok(n) = name[..digits].parse::<u64>() else { return false };
    match &name[digits..] {
        "Hz" => (1..=10_000).contains(&n),
        "kHz" => (1..=10).contains(&n),
        "us" => (100..=3_600_000_000).contains(&n),
        "ms" => (1..=3_600_000).contains(&n),
        "s" => (1..=3_600).contains(&n),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for good in ["1Hz", "10000Hz", "10kHz", "100us", "1ms", "3600s"] {
            assert!(is_rate(good), "{good}");
        }
        for bad in [
            "",
            "Hz",
            "0Hz",
            "10001Hz",
            "99us",
            "3601s",
            "1h",
            "1 s",
            "99999999999999999999s",
            "-1s",
        ] {
            assert!(!is_rate(bad), "{bad}");
        }
    }
}
