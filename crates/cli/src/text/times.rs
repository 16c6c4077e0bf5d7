// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Formats and parses times.

use klogger_log::filter::parse::number;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// A moment given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// ns after the log's start.
    AfterStart(u64),
    /// ns before the log's end.
    BeforeEnd(u64),
    /// ns of the day, UTC.
    WallClock(u64),
}

/// Reads `1.5`, `1.5s`, `200ms`, `-1s` or `12:34:56.5`.
pub fn moment(text: &str) -> Result<Moment, String> {
    let found = if text.contains(':') { wall_clock(text) } else { distance(text) };
    found.ok_or_else(|| {
        "write seconds (1.5), a number with a unit (200ms), a distance from the \
                         end (-1s), or a time of day in UTC (12:34:56)"
            .into()
    })
}

fn distance(text: &str) -> Option<Moment> {
    let (end, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let bare = text.ends_with(|c: char| c.is_ascii_digit());
    let ns = u64::try_from(number(&if bare { format!("{text}s") } else { text.into() })?).ok()?;
    Some(if end { Moment::BeforeEnd(ns) } else { Moment::AfterStart(ns) })
}

fn wall_clock(text: &str) -> Option<Moment> {
    let mut parts = text.splitn(3, ':');
    let hours: u64 = parts.next()?.parse().ok()?;
    let minutes: u64 = parts.next()?.parse().ok()?;
    let seconds = u64::try_from(number(&format!("{}s", parts.next().unwrap_or("0")))?).ok()?;
    let fits = hours < 24 && minutes < 60 && seconds < 60 * SECOND;
    fits.then(|| Moment::WallClock((hours * 60 + minutes) * 60 * SECOND + seconds))
}

impl Moment {
    /// The moment in ns of the log clock. `start_realtime`: the wall clock (ns since 1970) at
    /// `start`.
    pub fn resolve(self, start: u64, end: u64, start_realtime: u64) -> u64 {
        match self {
            Moment::AfterStart(ns) => start.saturating_add(ns),
            Moment::BeforeEnd(ns) => end.saturating_sub(ns),
            Moment::WallClock(of_day) => {
                let after = (of_day + DAY - start_realtime % DAY) % DAY;
                // On the next day only if the recording lasted until then; otherwise before its
                // start on the same day.
                if after <= end.saturating_sub(start) || after < DAY / 2 {
                    start.saturating_add(after)
                } else {
                    start.saturating_sub(DAY - after)
                }
            }
        }
    }
}

/// `2026-01-31 12:34:56 UTC`, for ns since 1970.
pub fn date(realtime_ns: u64) -> String {
    let (days, second) = (realtime_ns / DAY, realtime_ns % DAY / SECOND);
    let (year, month, day) = civil(days);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day, counted from 1970-01-01. Years begin in March here, so that the leap day
/// comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// `1.234 s`, `12.3 ms`, `5 ns`.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        1_000_000..SECOND => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        assert_eq!(moment("1.5"), Ok(Moment::AfterStart(1_500_000_000)));
        assert_eq!(moment("200ms"), Ok(Moment::AfterStart(200_000_000)));
        assert_eq!(moment("-2s"), Ok(Moment::BeforeEnd(2 * SECOND)));
        assert_eq!(moment("01:00:00.5"), Ok(Moment::WallClock(3600 * SECOND + SECOND / 2)));
        for wrong in ["", "x", "1h", "25:00:00", "1:2:99", "--1"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_day_is_on_the_next_day_if_the_recording_lasted_until_then() {
        let (hour, start) = (3600 * SECOND, 100 * DAY);
        let start_realtime = 10 * DAY + 23 * hour + 410_000_000;
        let resolve = |of_day, length| {
            Moment::WallClock(of_day).resolve(start, start + length, start_realtime)
        };
        assert_eq!(resolve(23 * hour + SECOND, SECOND), start + SECOND - 410_000_000);
        // Past midnight, in the recording and after it.
        assert_eq!(resolve(hour, 3 * hour), start + 2 * hour - 410_000_000);
        assert_eq!(resolve(hour, hour), start + 2 * hour - 410_000_000);
        // The second in which it began, and an hour before.
        assert_eq!(resolve(23 * hour, SECOND), start - 410_000_000);
        assert_eq!(resolve(22 * hour, SECOND), start - hour - 410_000_000);
        assert_eq!(resolve(22 * hour, DAY), start + 23 * hour - 410_000_000);
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400 * SECOND), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_700_000_000 * SECOND), "2023-11-14 22:13:20 UTC");
    }
}
