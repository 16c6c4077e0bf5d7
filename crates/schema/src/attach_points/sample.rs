// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe sample page-faults every 1000()`: the kernel or the CPU has counted so many of something.

use super::timer::{PERIOD_MIN_NS, hz, number};
use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong};
use crate::counted::{self, Counted};
use crate::names::shorten;
use crate::nearest::did_you_mean;

pub(super) static SAMPLE: Row = Row {
    word: "sample",
    noun: "sample",
    example: "probe sample page-faults every 1000(u64 ip, u64 address)",
    elsewhere: &["software", "hardware", "perf"],
    parameters: PARAMETERS_MAX,
    phrase: true,
    wrong,
};

/// What is counted, and how often a sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub counted: Counted,
    pub only: Only,
    pub rate: Rate,
}

/// In which mode of the CPU it is counted, by the modifier that perf has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    Both,
    /// `minor-faults:u`: while the code of a program runs.
    User,
    /// `minor-faults:k`
    Kernel,
}

impl Only {
    /// The modifier, and the name before it.
    fn split(event: &str) -> (&str, Only) {
        let modes = [(":u", Only::User), (":k", Only::Kernel)];
        let found =
            modes.into_iter().find_map(|(end, only)| Some((event.strip_suffix(end)?, only)));
        found.unwrap_or((event, Only::Both))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// `every 1000`: each time that so many more have been counted.
    Every(u64),
    /// `at 99Hz`: about so many times a second; the kernel chooses the number.
    Hz(u64),
}

/// From `page-faults every 1000` or `cycles at 99Hz`.
pub fn sample(name: &str) -> Option<Sample> {
    parse(name).ok()
}

fn wrong(name: &str) -> Option<Wrong> {
    parse(name).err()
}

fn parse(name: &str) -> Result<Sample, Wrong> {
    let words: Vec<&str> = name.split(' ').collect();
    let [event, how, rate] = words[..] else {
        return Err(("needs an event, and how often", ProbeKind::Sample.for_example()));
    };
    let (event, only) = Only::split(event);
    let counted = Counted::of(event).ok_or_else(|| {
        let all = counted::names();
        let near = did_you_mean(event, all.iter().map(String::as_str));
        let other = "'perf list' has the names: page-faults, cycles, LLC-load-misses, r01c2, ...";
        ("nothing that is counted", near.unwrap_or_else(|| other.into()))
    })?;
    let rate = match how {
        "every" => thousands(rate).map(Rate::Every),
        "at" => hz(rate).map(Rate::Hz),
        _ => None,
    };
    let rate = rate.ok_or_else(|| {
        let event = shorten(event);
        let help = format!(
            "write `{event} every 1000`, `every 10k` or `every 1M`; or `{event} at 99Hz`, at most \
             10 kHz"
        );
        ("not how often a sample is taken", help)
    })?;
    match rate {
        Rate::Every(n) if counted.is_clock() && n < PERIOD_MIN_NS => {
            let help = "it counts nanoseconds: write `every 100k` or more, or `probe timer 99Hz()`";
            Err(("too often", help.into()))
        }
        rate => Ok(Sample { counted, only, rate }),
    }
}

/// `1000`, `10k`, `1M`, `1G`
fn thousands(text: &str) -> Option<u64> {
    let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let unit = units.into_iter().find_map(|(c, unit)| Some((text.strip_suffix(c)?, unit)));
    let (digits, unit) = unit.unwrap_or((text, 1));
    // The kernel refuses periods with the highest bit.
    number(digits)?.checked_mul(unit).filter(|n| (1..1 << 63).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let every = |name| sample(name).map(|s| s.rate);
        assert_eq!(every("page-faults every 1"), Some(Rate::Every(1)));
        assert_eq!(every("cs every 10k"), Some(Rate::Every(10_000)));
        assert_eq!(every("cycles every 1M"), Some(Rate::Every(1_000_000)));
        assert_eq!(every("instructions every 2G"), Some(Rate::Every(2_000_000_000)));
        assert_eq!(every("cycles at 99Hz"), Some(Rate::Hz(99)));
        assert_eq!(every("cycles at 4kHz"), Some(Rate::Hz(4000)));
        assert_eq!(every("cpu-clock every 100k"), Some(Rate::Every(100_000)));
        let only = |name| sample(name).map(|s| s.only);
        assert_eq!(only("minor-faults every 1"), Some(Only::Both));
        assert_eq!(only("minor-faults:u every 1"), Some(Only::User));
        assert_eq!(only("cycles:k at 99Hz"), Some(Only::Kernel));
        for bad in [
            "",
            "cycles:x every 1",
            ":u every 1",
            "cycles",
            "cycles every",
            "cycles every 0",
            "cycles every -1",
            "cycles every 1m",
            "cycles every 1 M",
            "cycles every 9223372036854775808",
            "cycles every 99999999999G",
            "cycles at 99",
            "cycles at 11kHz",
            "cycles by 1",
            "cpu-clock every 99999",
            "cycels every 1",
        ] {
            assert_eq!(sample(bad), None, "{bad}");
        }
    }
}
