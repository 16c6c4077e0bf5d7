// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! /proc/PID/maps: what a process has mapped.

use crate::files::FileId;
use crate::{patient, processes};
use std::io;

/// The text; empty: a kernel thread, or a process that has ended. If the first thread has ended
/// before the others, only their entries have it.
pub fn text_of(pid: u32) -> io::Result<String> {
    let whole = |text: &io::Result<Vec<u8>>| text.as_ref().is_ok_and(|text| !text.is_empty());
    let own = patient::read(pid, "maps");
    let of_another = || {
        let threads = processes::threads_of(pid).into_iter();
        threads.map(|tid| patient::read(pid, &format!("task/{tid}/maps"))).find(whole)
    };
    let found = if whole(&own) { own } else { of_another().unwrap_or(own) };
    Ok(String::from_utf8_lossy(&found?).into_owned())
}

/// The link to the file that is mapped from `start` to `end`.
pub fn link_to(pid: u32, start: u64, end: u64) -> String {
    format!("/proc/{pid}/map_files/{start:x}-{end:x}")
}

/// A line of it: `START-END MODE OFFSET DEVICE INODE   PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    /// As in `r-xp`.
    pub mode: &'a str,
    /// In the file.
    pub offset: u64,
    /// Memory without a file has inode 0.
    pub file: FileId,
    /// With the kernel's remark if it was deleted; or empty, or a word in brackets.
    pub path: &'a str,
}

impl<'a> Line<'a> {
    pub fn read(line: &'a str) -> Option<Line<'a>> {
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let (mode, offset) = (words.next()?, hex(words.next()?)?);
        let (major, minor) = words.next()?.split_once(':')?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let device = libc::makedev(number(major)?, number(minor)?);
        let file = FileId { device, inode: words.next()?.parse().ok()? };
        let path = words.next().unwrap_or_default().trim_start();
        Some(Line { start: hex(start)?, end: hex(end)?, mode, offset, file, path })
    }

    /// The path of a file, whether or not it was deleted.
    pub fn file_path(&self) -> Option<&'a str> {
        let path = Some(self.path).filter(|path| path.starts_with('/'))?;
        Some(path.strip_suffix(" (deleted)").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "5581a000-5581c000 r-xp 00002000 08:01 1234     /opt/a b/prog (deleted)";
        let file = FileId { device: libc::makedev(8, 1), inode: 1234 };
        let (start, end, path) = (0x5581_a000, 0x5581_c000, "/opt/a b/prog (deleted)");
        let found = Line { start, end, mode: "r-xp", offset: 0x2000, file, path };
        assert_eq!(Line::read(line), Some(found));
        assert_eq!(found.file_path(), Some("/opt/a b/prog"));
        for path in ["", "                          [heap]"] {
            let line = format!("7f0000-7f1000 rwxp 00000000 00:00 0 {path}");
            let found = Line::read(&line).unwrap();
            assert_eq!((found.file.inode, found.file_path()), (0, None));
        }
        assert_eq!(Line::read("7f0000-7f1000 rwxp 00000000 00:00"), None);
    }

    #[test]
    fn links_are_without_leading_zeros() {
        for (range, link) in [("00400000-00452000", "400000-452000"), ("7f00-7f10", "7f00-7f10")] {
            let line = format!("{range} r-xp 00000000 08:01 1234 /prog");
            let found = Line::read(&line).unwrap();
            assert_eq!(link_to(7, found.start, found.end), format!("/proc/7/map_files/{link}"));
        }
    }

    #[test]
    fn the_own_program_is_mapped() {
        let text = text_of(std::process::id()).unwrap();
        let exe = FileId::of(&std::fs::metadata("/proc/self/exe").unwrap());
        assert!(text.lines().filter_map(Line::read).any(|line| line.file.inode == exe.inode));
        assert!(text_of(u32::MAX / 2).is_err());
    }
}
