// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A description of the machine, for the log's preamble.

use klogger_log::preamble::{Clock, Host};
use klogger_os::Error;
use klogger_os::{self as os, machine, missed};
use std::fs;

pub fn host() -> Result<Host, Error> {
    let (kernel, kernel_version, machine, name) = os::uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo");
    let cpuinfo = missed::noting("/proc/cpuinfo", cpuinfo).unwrap_or_default();
    let model =
        cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
    Ok(Host {
        name,
        kernel,
        kernel_version,
        machine,
        cpu_model: model.map(|(_, m)| m.trim().to_string()).unwrap_or_default(),
        cpus: machine::online_cpus()?,
        mitigations: mitigations(),
        disks: disks(),
    })
}

/// So many at most.
const DISKS_MAX: usize = 1000;

/// Block devices that have a size.
fn disks() -> Vec<(String, String)> {
    let path = "/proc/partitions";
    let text = missed::noting_unless_gone(path, fs::read_to_string(path)).unwrap_or_default();
    disks_of(&text)
}

/// A line is "major minor blocks name", behind a header.
fn disks_of(partitions: &str) -> Vec<(String, String)> {
    let disk = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) =
            (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u32>().ok()?);
        Some((format!("{major}:{minor}"), words.nth(1)?.to_string()))
    };
    partitions.lines().filter_map(disk).take(DISKS_MAX).collect()
}

/// The kernel's mitigations for flaws of this CPU, without those that do not affect it: they change
/// what an event costs.
fn mitigations() -> Vec<(String, String)> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    // Older kernels have none.
    let entries = missed::noting_unless_gone(folder, fs::read_dir(folder)).into_iter().flatten();
    let entries = entries.filter_map(|entry| missed::noting(folder, entry));
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    let all = names.into_iter().map(|n| (machine::line(&format!("{folder}/{n}")), n));
    all.filter(|(state, _)| state != "Not affected" && !state.is_empty())
        .map(|(state, name)| (name, state))
        .collect()
}

/// The clock of all records, read now.
pub fn clock() -> Clock {
    let (start_ns, start_realtime_ns, uncertainty_ns) = os::clock_pair();
    let (name, source) = ("monotonic".into(), machine::clock_source().unwrap_or_default());
    Clock { name, source, start_ns, start_realtime_ns, uncertainty_ns, user: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_numbers_and_names() {
        let text = "major minor  #blocks  name\n\n   7        0      65536 loop0\n 259       1 \
                    1048576 nvme0n1p1\n 254 0\n";
        let found = disks_of(text);
        let named = |number: &str, name: &str| (number.to_string(), name.to_string());
        assert_eq!(found, [named("7:0", "loop0"), named("259:1", "nvme0n1p1")]);
    }
}
