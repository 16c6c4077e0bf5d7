// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What programs write that make code: `/tmp/perf-PID.map`, lines `ADDRESS SIZE NAME`. Such a file
//! can have millions of lines: only what was asked for is kept of it.

use crate::worker::NAME_MAX;
use klogger_log::code::Function;
use std::io::{self, BufRead, Read};

/// Larger maps are not read: what is behind a cut may have replaced what is before it.
pub const BYTES_MAX: u64 = 128 << 20;
/// All maps of a log together.
pub const ALL_MAX: u64 = 512 << 20;
/// Of a line, the rest is left out.
const LINE_MAX: u64 = 4096;

struct Line {
    start: u64,
    size: u64,
    name: String,
}

/// The function at each of the addresses, which are in ascending order. Of several functions at one
/// address, the last one counts: code is made anew where other code was.
pub fn find(mut map: impl BufRead, addresses: &[u64]) -> io::Result<Vec<Option<Function>>> {
    // The last function that begins after the address before, and not after this one.
    let mut nearest: Vec<Option<Line>> = addresses.iter().map(|_| None).collect();
    let mut text = Vec::new();
    while next_line(&mut map, &mut text)? {
        let Some((start, size, name)) = read(&text) else { continue };
        let at = addresses.partition_point(|address| *address < start);
        let Some(nearest) = nearest.get_mut(at) else { continue };
        if nearest.as_ref().is_none_or(|known| known.start <= start) {
            let name = String::from_utf8_lossy(name).chars().take(NAME_MAX).collect();
            *nearest = Some(Line { start, size, name });
        }
    }
    let mut last = None;
    let mut found = Vec::new();
    for (address, own) in addresses.iter().zip(&nearest) {
        last = own.as_ref().or(last);
        let line = last.filter(|line| address - line.start < line.size);
        found.push(line.map(|line| super::plain(&line.name, address - line.start)));
    }
    Ok(found)
}

/// False: there are no more.
fn next_line(map: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    Read::by_ref(map).take(LINE_MAX).read_until(b'\n', text)?;
    if text.last() != Some(&b'\n') {
        map.skip_until(b'\n')?;
    }
    Ok(!text.is_empty())
}

fn read(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = line.trim_ascii_end().splitn(3, |b| *b == b' ');
    let mut hex = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (hex()?, hex()?);
    let name = words.next().filter(|name| !name.is_empty())?;
    Some((start, size, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_map_are_found_by_address() {
        let map = b"2000 10 LazyCompile:f a.js:1\nbad\n0x1000 20 g\n2000 8 newer\n";
        let addresses = [5, 0x101f, 0x1020, 0x2003, 0x2007, 0x200c];
        let found = find(&map[..], &addresses).unwrap();
        let at = |name: &str, offset| Some(crate::plain(name, offset));
        let newer = |offset| at("newer", offset);
        assert_eq!(found, [None, at("g", 0x1f), None, newer(3), newer(7), None]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut map = format!("1000 20 {}", "x".repeat(3 * LINE_MAX as usize)).into_bytes();
        map.extend_from_slice(b"\n2000 10 next");
        let found = find(map.as_slice(), &[0x1000, 0x2001]).unwrap();
        assert_eq!(found[0].as_ref().unwrap().name, "x".repeat(NAME_MAX));
        assert_eq!(found[1], Some(crate::plain("next", 1)));
    }
}
