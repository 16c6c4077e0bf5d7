// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Facts about this machine, from /proc and /sys.

use crate::{self as os, Error, cgroup_memory, missed};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

/// From now on this process creates files that only those users can read who can read `file`.
pub fn write_as_private_as(file: &Path) {
    if let Ok(found) = file.metadata() {
        let mode = found.permissions().mode();
        let hidden = |read, all| if mode & read == 0 { all } else { 0 };
        os::files::withhold(hidden(0o040, 0o070) | hidden(0o004, 0o007));
    }
}

/// A file of one line; empty if it is not there, or cannot be read, which the ledger says.
pub fn line(path: &str) -> String {
    let text = missed::noting_unless_gone(path, fs::read_to_string(path));
    text.map(|t| t.trim().to_string()).unwrap_or_default()
}

/// Numbers of the CPUs that are online.
pub fn online_cpus() -> Result<Vec<u32>, Error> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|e| {
        Error::new(format!("cannot tell which CPUs are online: {path}: {e}"))
            .help("mount it: mount -t sysfs sysfs /sys")
    })?;
    let unknown =
        || Error::new(format!("cannot tell which CPUs are online from '{}'", text.trim()));
    parse_cpu_list(text.trim()).ok_or_else(unknown)
}

/// How many the kernel makes room for, in what it has for each CPU; at least those that are online.
pub fn possible_cpus() -> u64 {
    let possible = parse_cpu_list(&line("/sys/devices/system/cpu/possible"));
    let cpus = possible.or_else(online_cpus_now);
    cpus.map_or(1, |cpus| cpus.len() as u64)
}

/// The same while recording: `None` if it cannot be read, which the ledger says.
pub fn online_cpus_now() -> Option<Vec<u32>> {
    let found = online_cpus().map_err(|e| io::Error::other(e.message));
    missed::noting("CPUs that are online", found)
}

/// `0-3,5`
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        cpus.extend((first..=last).take(65_535));
    }
    Some(cpus)
}

/// As the kernel writes them: `0-3,5`. `cpus` are in ascending order.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            Some(_) | None => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The hardware from which the kernel derives its clocks; `None` if it cannot be read, which the
/// ledger says.
pub fn clock_source() -> Option<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Some(missed::noting(path, fs::read_to_string(path))?.trim().into())
}

/// Bytes of memory that this process can allocate without swapping: what the machine has, and the
/// control groups leave.
pub fn memory_available() -> Option<u64> {
    let group = cgroup_memory::left().map(|left| left.bytes);
    free_memory().into_iter().chain(group).min()
}

fn free_memory() -> Option<u64> {
    let text = missed::noting("/proc/meminfo", fs::read_to_string("/proc/meminfo"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The kernel's functions and variables, one per line: address, kind, name, perhaps module.
pub fn all_symbols() -> String {
    missed::noting("/proc/kallsyms", fs::read_to_string("/proc/kallsyms")).unwrap_or_default()
}

/// Addresses and names in such a text. All addresses are 0 if the kernel hides them.
pub fn symbols_in(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?))
    })
}

/// The kernel's symbols in ascending order, one per line: address in hexadecimal, a space, name.
/// Empty if the kernel hides them.
pub fn symbols() -> String {
    let text = all_symbols();
    let mut symbols: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|l| {
            let mut words = l.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            (matches!(kind, "t" | "T" | "w" | "W") && address != 0)
                .then_some((address, words.next()?))
        })
        .collect();
    symbols.sort_unstable();
    symbols.iter().map(|(address, name)| format!("{address:x} {name}\n")).collect()
}

/// An address farther than this from the variable before it is not in it.
const VARIABLE_MAX: u64 = 1 << 20;

/// The kernel's symbols, to find variables: address, whether it is a variable, name.
pub struct Variables(Vec<(u64, bool, String)>);

impl Variables {
    pub fn read() -> Variables {
        Variables::of(&all_symbols())
    }

    fn of(text: &str) -> Variables {
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?.chars().next()?;
            (address != 0).then_some((address, kind, words.next()?.to_string()))
        };
        let all: Vec<_> = text.lines().filter_map(symbol).collect();
        // A kernel without CONFIG_KALLSYMS_ALL has only the symbols of its linker script.
        let has_variables = all.iter().any(|(_, kind, _)| matches!(kind, 'd' | 'b'));
        let is_variable = |kind| has_variables && "dDbBrRvV".contains(kind);
        let all = all.into_iter().map(|(address, kind, name)| (address, is_variable(kind), name));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        Variables(all)
    }

    /// The kernel tells no addresses.
    pub fn is_hidden(&self) -> bool {
        self.0.is_empty()
    }

    /// The variable at an address, and how far into it; `None`: there is none, as in memory that
    /// the kernel has allocated.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.0.partition_point(|(start, ..)| *start <= address);
        let (start, is_variable, name) = self.0.get(after.checked_sub(1)?)?;
        // Behind the last symbol of all it is not known where that ends.
        let is_within = after < self.0.len() && address - start < VARIABLE_MAX;
        (*is_variable && is_within).then_some((name, address - start))
    }
}

#[cfg(test)]
mod tests {
    use super::Variables;

    #[test]
    fn an_address_is_in_the_variable_before_it() {
        let text = "ffffffff81000000 T function\nffffffff82000000 D tasklist_lock\n\
                    ffffffff82000008 b table\nffffffff90000000 d far\n";
        let variables = Variables::of(text);
        assert_eq!(variables.find(0xffff_ffff_8200_0000), Some(("tasklist_lock", 0)));
        assert_eq!(variables.find(0xffff_ffff_8200_0018), Some(("table", 16)));
        assert_eq!(variables.find(0xffff_ffff_8300_0000), None);
        assert_eq!(variables.find(0xffff_ffff_8100_0010), None);
        assert_eq!(variables.find(0xffff_8880_0000_0000), None);
        assert_eq!(variables.find(0xffff_ffff_9000_0008), None);
        let linker = "ffffffff82000000 D __start_rodata\nffffffff83000000 T _end\n";
        assert_eq!(Variables::of(linker).find(0xffff_ffff_8200_0010), None);
        assert!(Variables::of("0000000000000000 D hidden\n").is_hidden());
    }

    use super::{cpu_list, parse_cpu_list};

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list(""), None);
    }

    #[test]
    fn lists_are_written_as_they_are_read() {
        for list in ["0", "0-3,5", "1,3,5-6"] {
            assert_eq!(cpu_list(&parse_cpu_list(list).unwrap()), list);
        }
        assert_eq!(cpu_list(&[]), "");
    }
}
