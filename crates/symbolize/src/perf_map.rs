// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What programs write that make code: `/tmp/perf-PID.map`, lines `ADDRESS SIZE NAME`.

use klogger_log::code::Function;

/// Larger maps are read up to this.
pub const BYTES_MAX: u64 = 256 << 20;
const LINES_MAX: usize = 4 << 20;

/// The functions of a map, in ascending order. Of several at one address, the last one counts: code
/// is made anew where other code was.
pub struct PerfMap(Vec<(u64, u64, String)>);

impl PerfMap {
    pub fn new(text: &[u8]) -> PerfMap {
        let line = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut words = line.trim_end().splitn(3, ' ');
            let mut hex = || {
                let word = words.next()?;
                u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
            };
            let (start, size) = (hex()?, hex()?);
            let name = words.next().filter(|name| !name.is_empty())?;
            Some((start, size, name.to_string()))
        };
        let lines = text.split(|b| *b == b'\n').filter_map(line).take(LINES_MAX);
        let mut found: Vec<_> = lines.collect();
        found.sort_by_key(|f| f.0);
        PerfMap(found)
    }

    pub fn find(&self, address: u64) -> Option<Function> {
        let after = self.0.partition_point(|f| f.0 <= address);
        let (start, size, name) = self.0.get(after.checked_sub(1)?)?;
        let offset = address - start;
        (offset < *size).then(|| super::plain(name, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_map_are_found_by_address() {
        let map = PerfMap::new(b"2000 10 LazyCompile:f a.js:1\nbad\n0x1000 20 g\n2000 8 newer\n");
        assert_eq!(map.find(0x101f).unwrap(), crate::plain("g", 0x1f));
        assert_eq!(map.find(0x2003).unwrap(), crate::plain("newer", 3));
        assert!(map.find(0x1020).is_none() && map.find(0x200c).is_none() && map.find(5).is_none());
    }
}
