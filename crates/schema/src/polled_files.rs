// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which files a schema may have the recorder read, and how often.
//!
//! A schema is untrusted, and the recorder is root. So only files of the system as a whole can be
//! polled: nothing of single processes, no image of memory, and nothing that reading takes away.

/// Below these everything else is refused, too.
const ROOTS: [&str; 2] = ["/proc/", "/sys/"];
/// What is refused below them.
const REFUSED: [(&str, &str); 10] = [
    ("/proc/self", "a file of one process"),
    ("/proc/thread-self", "a file of one process"),
    ("/proc/kcore", "an image of memory"),
    ("/proc/vmcore", "an image of memory"),
    ("/proc/kmsg", "reading it takes its contents away"),
    ("/proc/kpage", "not a text"),
    ("/proc/acpi", "reading it may take its contents away"),
    ("/sys/kernel/debug", "its files may change the kernel when they are read"),
    ("/sys/kernel/tracing", "reading it may take its contents away"),
    ("/sys/firmware", "not a text"),
];
const HELP: &str = "a schema can poll texts about the whole system below `/proc` and `/sys`, such \
                    as `/proc/vmstat`";

/// Why a file cannot be polled, in a few words, and the remedy.
pub fn wrong(path: &str) -> Option<(&'static str, &'static str)> {
    let parts = || path.split('/').skip(1);
    let of_process =
        path.starts_with("/proc/") && parts().nth(1).is_some_and(|p| p.parse::<u32>().is_ok());
    let what = if !ROOTS.iter().any(|root| path.starts_with(root)) {
        "not below `/proc` or `/sys`"
    } else if path.len() > 255 || parts().any(|p| p.is_empty() || p == "." || p == "..") {
        "not a plain path"
    } else if of_process {
        "a file of one process"
    } else {
        REFUSED.iter().find(|(refused, _)| path.starts_with(refused))?.1
    };
    Some((what, HELP))
}

/// `100ms`, `1s`, `5min`: between 10 ms and an hour.
pub fn interval_ns(written: &str) -> Option<u64> {
    let digits = written.find(|c: char| !c.is_ascii_digit())?;
    let unit = match &written[digits..] {
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let ns = written[..digits].parse::<u64>().ok()?.checked_mul(unit)?;
    (10_000_000..=3_600_000_000_000).contains(&ns).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_about_the_whole_system() {
        for good in ["/proc/vmstat", "/proc/net/dev", "/sys/class/net/lo/statistics/rx_bytes"] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in [
            "/etc/shadow",
            "/proc",
            "/proc/1/environ",
            "/proc/self/mem",
            "/proc/kmsg",
            "/proc/kcore",
            "/proc/../etc/shadow",
            "/proc//1/mem",
            "/proc/./1/mem",
            "/sys/kernel/tracing/trace_pipe",
            "/sys/kernel/debug/x",
            "vmstat",
            "",
        ] {
            assert!(wrong(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn intervals() {
        assert_eq!(interval_ns("10ms"), Some(10_000_000));
        assert_eq!(interval_ns("1h"), Some(3_600_000_000_000));
        for bad in ["9ms", "2h", "1", "s", "1 s", "99999999999999999999s", "1us", "-1s"] {
            assert_eq!(interval_ns(bad), None, "{bad}");
        }
    }
}
