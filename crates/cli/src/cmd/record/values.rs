// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parses values of the options of `klogger record`: times, sizes, rates, modes. Each error says
//! what to write instead.

use klogger_os::cgroups::{self, Cgroup};
use klogger_os::processes::NAME_MAX;
use klogger_os::users;
use klogger_recorder::{BUFFER_MAX, BUFFER_MIN, RateLimit, USER_BUFFER_MAX, USER_BUFFER_MIN, User};
use std::ops::RangeInclusive;
use std::time::Duration;

/// `500ms`, `30s`, `5m`, `1h`, or a bare number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("the time must be more than 0".into()),
        time => Ok(time),
    }
}

/// Seconds. Far longer times cannot be added to one of the machine's clocks.
const LONGEST: f64 = 100.0 * 366.0 * 86400.0;

/// The same, or 0.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a number and a unit: 500ms, 30s, 5m, 1h".into()),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| "write a number and a unit: 500ms, 30s, 5m, 1h".to_string())?
        * scale;
    if seconds > LONGEST {
        return Err("the time must be at most 100 years".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| "the time must be more than 0".into())
}

/// An element of `-p`.
pub fn process(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("ids of processes begin with 1; -a records all processes".into()),
        Ok(id) => Ok(id),
        Err(_) => Err("write ids of processes: 4711, or 4711,4712; for those with a name: \
                       -p $(pgrep -d, NAME)"
            .into()),
    }
}

/// An element of `--cpu`: `3` or `2-5`.
pub fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let cpu = |word: &str| word.parse::<u32>().ok();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = cpu(first).zip(cpu(last)).map(|(first, last)| first..=last);
    let range = range.filter(|range| !range.is_empty() && *range.end() < u32::from(u16::MAX));
    range.ok_or_else(|| "write numbers of CPUs, and ranges: 0-3,5".into())
}

/// A value of `--comm`.
pub fn comm(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a name cannot be empty".into()),
        _ if text.len() > NAME_MAX => {
            let cut = text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= NAME_MAX);
            let cut: String = cut.map(|(_, c)| c).collect();
            Err(format!("names of threads have at most {NAME_MAX} bytes; the kernel has '{cut}'"))
        }
        _ => Ok(text.into()),
    }
}

/// An element of `--uid`: the number or the name of a user.
pub fn user(text: &str) -> Result<User, String> {
    let id = text.parse().ok().or_else(|| users::id_of(text));
    let id = id.ok_or("there is no such user; write a number, or a name of /etc/passwd")?;
    Ok(User { name: text.into(), id })
}

/// A value of `--cgroup`.
pub fn cgroup(text: &str) -> Result<Cgroup, String> {
    cgroups::find(text).map_err(|e| match e.help {
        Some(help) => format!("{}; {help}", e.message),
        None => e.message,
    })
}

/// The highest rate per second: intervals between events are counted in sixteenths of a nanosecond.
const RATE_MAX: u64 = 100_000_000;

/// `EVENT=100/s`, `EVENT=10K/s`
pub fn rate(text: &str) -> Result<RateLimit, String> {
    let wrong = || {
        format!(
            "write EVENT=N/s, with N from 1 to {}M: FORK=100/s, 'PAGE_*=10K/s'",
            RATE_MAX / 1_000_000
        )
    };
    let (event, rate) =
        text.split_once('=').filter(|(event, _)| !event.is_empty()).ok_or_else(wrong)?;
    let rate = rate.strip_suffix("/s").ok_or_else(wrong)?;
    let (digits, scale) = match rate.as_bytes().last() {
        Some(b'K' | b'k') => (&rate[..rate.len() - 1], 1_000),
        Some(b'M' | b'm') => (&rate[..rate.len() - 1], 1_000_000),
        _ => (rate, 1),
    };
    let digits =
        Some(digits).filter(|d| d.bytes().all(|c| c.is_ascii_digit())).ok_or_else(wrong)?;
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
    let per_second = number.filter(|n| (1..=RATE_MAX).contains(n)).ok_or_else(wrong)?;
    Ok(RateLimit { event: event.into(), per_second })
}

/// `0640`: octal, as for chmod. The owner of a log must be able to read and write it.
pub fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o777 && m & 0o600 == 0o600);
    mode.ok_or_else(|| {
        "write three octal digits, of which the first is 6 or 7: 600, 640, 644".into()
    })
}

/// The size of a CPU's ring.
pub fn size(text: &str) -> Result<u64, String> {
    ring(text, BUFFER_MIN, BUFFER_MAX)
}

/// The size of the ring of a thread of a program.
pub fn user_size(text: &str) -> Result<u64, String> {
    ring(text, USER_BUFFER_MIN, USER_BUFFER_MAX)
}

/// Rounded up to a power of two.
fn ring(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let possible = || format!("choose from {}K to {}M", least >> 10, most >> 20);
    let bytes =
        bytes(text).map_err(|e| format!("{e}; {}", possible()))?.checked_next_power_of_two();
    bytes.filter(|b| (least..=most).contains(b)).ok_or_else(possible)
}

/// `64K`, `4M`, `1G`, or bytes; more than 0.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(format!("unknown unit '{unit}'")),
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|n| n.checked_mul(1 << shift)).filter(|b| *b > 0);
    bytes.ok_or_else(|| "write a number and a unit: 64K, 4M, 1G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("64K"), Ok(64 << 10));
        assert_eq!(size("3m"), Ok(4 << 20));
        assert_eq!(size("65536"), Ok(65536));
        for bad in ["0", "0M", "1G", "1", "x", "4Q", "99999999999999999999", "17179869184G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!(mode("0600"), Ok(0o600));
        assert_eq!(mode("644"), Ok(0o644));
        for bad in ["", "9", "u+r", "0", "444", "4755", "-600"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        let limit = |event: &str, per_second| Ok(RateLimit { event: event.into(), per_second });
        assert_eq!(rate("FORK=100/s"), limit("FORK", 100));
        assert_eq!(rate("PAGE_*=10K/s"), limit("PAGE_*", 10_000));
        assert_eq!(rate("*=1m/s"), limit("*", 1_000_000));
        for bad in [
            "", "FORK", "FORK=", "FORK=100", "=1/s", "F=0/s", "F=/s", "F=K/s", "F=-1/s", "F=+1/s",
            "F=1.5/s", "F=101M/s",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processes() {
        assert_eq!(process("4711"), Ok(4711));
        assert!(process("0").unwrap_err().contains("-a records all"));
        for bad in ["", "-1", "x", "1 2", "4294967296"] {
            assert!(process(bad).unwrap_err().contains("pgrep"), "{bad}");
        }
    }

    #[test]
    fn names_and_users_of_threads() {
        assert_eq!(comm("kworker/0:1"), Ok("kworker/0:1".into()));
        assert_eq!(comm("systemd-journal"), Ok("systemd-journal".into()));
        let long = "names of threads have at most 15 bytes; the kernel has 'systemd-journal'";
        assert_eq!(comm("systemd-journald"), Err(long.into()));
        assert!(comm("aaaaaaaaaaaaaa\u{fc}").unwrap_err().ends_with("has 'aaaaaaaaaaaaaa'"));
        assert!(comm("").is_err());
        assert_eq!(user("root").map(|u| u.id), Ok(0));
        assert_eq!(user("65534").map(|u| u.id), Ok(65534));
        assert!(user("-1").is_err() && user("").is_err() && user("no:such").is_err());
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("3"), Ok(3..=3));
        assert_eq!(cpus("0-3"), Ok(0..=3));
        for bad in ["", "-", "3-", "-3", "3-2", "x", "1-2-3", "0,1", "65535", "4294967296"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "0", "0s", "s", "1d", "-1", "1e400", "10000000000000000000s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
