// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the kernel's performance events count: their names, as `perf list` has them, and their
//! numbers in the kernel's interface (include/uapi/linux/perf_event.h).

/// A performance event: the `type` and the `config` of a `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Counted {
    pub kind: u32,
    pub config: u64,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const RAW: u32 = 4;

/// The CPU's clock, which is what timers use.
pub const CPU_CLOCK: Counted = Counted { kind: SOFTWARE, config: 0 };
const TASK_CLOCK: Counted = Counted { kind: SOFTWARE, config: 1 };

/// Counted by the kernel.
const OF_SOFTWARE: &[(&str, u64)] = &[
    ("cpu-clock", CPU_CLOCK.config),
    ("task-clock", TASK_CLOCK.config),
    ("page-faults", 2),
    ("context-switches", 3),
    ("cpu-migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("cgroup-switches", 11),
];

/// Counted by the CPU.
const OF_HARDWARE: &[(&str, u64)] = &[
    ("cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// Other names, as perf accepts them; and those of the original KLogger, on whose CPUs the second
/// cache was the last.
const ALIASES: &[(&str, &str)] = &[
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
    ("l2-cache-misses", "cache-misses"),
    ("l2-cache-references", "cache-references"),
];

/// Parts of names such as `L1-dcache-load-misses`: the cache, and what is done to it.
const CACHES: &[(&str, u64)] = &[
    ("L1-dcache", 0),
    ("L1-icache", 1),
    ("LLC", 2),
    ("dTLB", 3),
    ("iTLB", 4),
    ("branch", 5),
    ("node", 6),
];
const DONE: &[(&str, u64)] = &[
    ("loads", 0),
    ("load-misses", 1 << 16),
    ("stores", 1 << 8),
    ("store-misses", 1 << 8 | 1 << 16),
    ("prefetches", 2 << 8),
    ("prefetch-misses", 2 << 8 | 1 << 16),
];

impl Counted {
    /// What an event of this name counts. As in the original KLogger, `_` stands for `-`; `rNNN` is
    /// a number of the CPU's manual.
    pub fn of(name: &str) -> Option<Counted> {
        let name = &name.replace('_', "-");
        let name = same(ALIASES, name).unwrap_or(name);
        let software = same(OF_SOFTWARE, name).map(|config| (SOFTWARE, config));
        let hardware = || same(OF_HARDWARE, name).map(|config| (HARDWARE, config));
        let cache = || of_cache(name).map(|config| (CACHE, config));
        let raw = || of_cpu(name).map(|config| (RAW, config));
        let (kind, config) = software.or_else(hardware).or_else(cache).or_else(raw)?;
        Some(Counted { kind, config })
    }

    /// The kernel counts it, on every machine.
    pub fn is_software(self) -> bool {
        self.kind == SOFTWARE
    }

    /// It counts nanoseconds.
    pub fn is_clock(self) -> bool {
        self == CPU_CLOCK || self == TASK_CLOCK
    }
}

/// The names of all that has one, without other names for the same.
pub fn names() -> Vec<String> {
    let own = OF_SOFTWARE.iter().chain(OF_HARDWARE).map(|(name, _)| (*name).to_string());
    let cached = CACHES
        .iter()
        .flat_map(|(cache, _)| DONE.iter().map(move |(done, _)| format!("{cache}-{done}")));
    own.chain(cached).collect()
}

fn same<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

fn of_cache(name: &str) -> Option<u64> {
    CACHES.iter().find_map(|(cache, number)| {
        let (first, rest) = name.split_at_checked(cache.len())?;
        let done = rest.strip_prefix('-').filter(|_| first.eq_ignore_ascii_case(cache))?;
        same(DONE, done).map(|done| number | done)
    })
}

fn of_cpu(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r').filter(|d| d.bytes().all(|c| c.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let of = |name| Counted::of(name).map(|c| (c.kind, c.config));
        assert_eq!(of("page-faults"), Some((1, 2)));
        assert_eq!(of("cs"), Some((1, 3)));
        assert_eq!(of("cpu-cycles"), Some((0, 0)));
        assert_eq!(of("LLC-load-misses"), Some((3, 0x1_0002)));
        assert_eq!(of("l1-dcache-store-misses"), Some((3, 0x1_0100)));
        assert_eq!(of("dTLB-prefetches"), Some((3, 0x203)));
        assert_eq!(of("r01c2"), Some((4, 0x1c2)));
        assert_eq!(of("l2_cache_misses"), of("cache-misses"));
        for name in ["", "r", "rxyz", "r11112222333344445", "LLC", "LLC-", "page", "node-loadx"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn every_name_is_found_and_none_counts_what_another_does() {
        let mut all: Vec<_> = names().iter().map(|name| Counted::of(name).unwrap()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), names().len());
    }
}
