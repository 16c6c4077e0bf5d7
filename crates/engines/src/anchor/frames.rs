// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The physical pages of memory that is shared with the kernel, from /proc/self/pagemap.

use klogger_os::{Mapping, memory};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

const PRESENT: u64 = 1 << 63;
/// The page frame number in an entry; 0 for a process without the right to read it.
const NUMBER: u64 = (1 << 55) - 1;

/// Finds page frame numbers; `page` is the size of a page.
pub struct PageMap {
    file: File,
    pub page: usize,
}

impl PageMap {
    pub fn open() -> io::Result<PageMap> {
        Ok(PageMap { file: File::open("/proc/self/pagemap")?, page: memory::page_size() })
    }

    /// The frames of `length` bytes from `offset` on, which is a multiple of the page size.
    pub fn frames(&self, mapping: &Mapping, offset: usize, length: usize) -> io::Result<Vec<u64>> {
        let at = mapping.at(offset, length).addr();
        if !at.is_multiple_of(self.page) {
            return Err(io::Error::other(format!(
                "rings do not begin at pages of {} bytes",
                self.page
            )));
        }
        let count = length.div_ceil(self.page);
        // A page that was never touched has no entry.
        for n in 0..count {
            black_box(mapping.word(offset + n * self.page).load(Ordering::Relaxed));
        }
        let mut bytes = vec![0; 8 * count];
        self.file.read_exact_at(&mut bytes, 8 * (at / self.page) as u64)?;
        let (words, _) = bytes.as_chunks();
        words.iter().map(|w| frame(u64::from_ne_bytes(*w))).collect()
    }
}

fn frame(entry: u64) -> io::Result<u64> {
    match (entry & PRESENT != 0, entry & NUMBER) {
        (false, _) => Err(io::Error::other("a page is not in memory")),
        (true, 0) => {
            Err(io::Error::new(ErrorKind::PermissionDenied, "the kernel hides physical addresses"))
        }
        (true, number) => Ok(number),
    }
}
