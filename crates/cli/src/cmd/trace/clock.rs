// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The times at the beginning of lines.

use klogger_log::text::push_seconds;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Digits that are cut off: times are shown in us.
const CUT: usize = 3;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Seconds since the beginning.
    SinceStart,
    /// Seconds since the line before.
    SinceLast,
    /// The time of the day, UTC; with or without us.
    OfDay { us: bool },
    /// Seconds since 1970.
    Epoch,
}

/// Writes times.
pub struct Clock {
    pub style: Style,
    /// The wall clock (ns since 1970) when recording began.
    pub start_realtime_ns: u64,
    /// The time of the line before.
    last_ns: Option<u64>,
}

impl Clock {
    pub fn new(style: Style) -> Clock {
        Clock { style, start_realtime_ns: 0, last_ns: None }
    }

    /// Appends a time of the log clock and a space. `start_ns`: when recording began.
    pub fn push(&mut self, time_ns: u64, start_ns: u64, out: &mut Vec<u8>) {
        let since = time_ns.wrapping_sub(start_ns) as i64;
        let wall = self.start_realtime_ns.wrapping_add_signed(since);
        let last = self.last_ns.replace(time_ns).unwrap_or(time_ns);
        match self.style {
            Style::SinceStart => seconds(out, since, 13),
            Style::SinceLast => seconds(out, time_ns.wrapping_sub(last) as i64, 13),
            Style::Epoch => seconds(out, wall as i64, 0),
            Style::OfDay { us } => {
                let second = wall % DAY / SECOND;
                let (hour, minute) = (second / 3600, second / 60 % 60);
                let text = format!("{hour:02}:{minute:02}:{:02}", second % 60);
                out.extend_from_slice(text.as_bytes());
                if us {
                    out.extend_from_slice(format!(".{:06}", wall % SECOND / 1000).as_bytes());
                }
            }
        }
        out.push(b' ');
    }
}

fn seconds(out: &mut Vec<u8>, ns: i64, width: usize) {
    push_seconds(out, ns, width);
    out.truncate(out.len() - CUT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles() {
        let of = |style| {
            let mut clock =
                Clock { start_realtime_ns: 1_700_000_000 * SECOND, ..Clock::new(style) };
            let mut out = Vec::new();
            clock.push(SECOND, SECOND, &mut out);
            clock.push(2 * SECOND + 1_234_567, SECOND, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(Style::SinceStart), "  0.000000   1.001234 ");
        assert_eq!(of(Style::SinceLast), "  0.000000   1.001234 ");
        assert_eq!(of(Style::OfDay { us: false }), "22:13:20 22:13:21 ");
        assert_eq!(of(Style::OfDay { us: true }), "22:13:20.000000 22:13:21.001234 ");
        assert_eq!(of(Style::Epoch), "1700000000.000000 1700000001.001234 ");
    }
}
