// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What processes map as code, from the kernel: the records that perf uses.

use crate::files::FileId;
use crate::mapping::Mapping;
use crate::memory::page_size;
use crate::missed;
use crate::perf_events::{Attributes, Kernel, Opener};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Pages of a CPU's ring, a power of two; and if what is mapped as data is recorded as well: of a
/// library these are several mappings, and programs map memory without end.
const PAGES: usize = 64;
const PAGES_WITH_DATA: usize = 256;
/// Offsets in the ring's first page: `data_head` and `data_tail` of `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

const SAMPLE_TIME: u64 = 1 << 2;
/// Bits of `perf_event_attr`: mmap, comm, task, sample_id_all, mmap2, comm_exec, use_clockid,
/// build_id.
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 25 | 1 << 34;
/// mmap_data: mappings that are not code as well.
const DATA: u64 = 1 << 17;

/// Something that happened to the code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeEvent {
    /// ns of CLOCK_MONOTONIC.
    pub time: u64,
    pub pid: u32,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It mapped code, or data if these were asked for. Either the build id of the file is known,
    /// or which file it is.
    Map {
        start: u64,
        length: u64,
        offset: u64,
        kind: MapKind,
        path: String,
        build_id: Vec<u8>,
        file: Option<FileId>,
    },
    /// It runs another program: what it had mapped is gone.
    Exec,
    /// It began, with the mappings of this process.
    Fork { parent: u32 },
}

/// What is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    Code,
    /// Of this process alone, and cannot be written.
    Data,
    /// Of this process alone: where variables are.
    Variables,
    /// What processes that map the same file share.
    SharedData,
}

/// A ring for each CPU.
pub struct CodeEvents {
    rings: Vec<(OwnedFd, Mapping)>,
    /// Of each ring.
    pages: usize,
}

impl CodeEvents {
    /// Begins to record all processes. CPUs that cannot be opened are offline. `data`: what they
    /// map as data as well.
    pub fn new(cpus: usize, data: bool) -> io::Result<CodeEvents> {
        let (flags, pages) = if data { (FLAGS | DATA, PAGES_WITH_DATA) } else { (FLAGS, PAGES) };
        let attributes = Attributes::records(flags, SAMPLE_TIME, libc::CLOCK_MONOTONIC);
        let mut rings = Vec::new();
        let mut failure = None;
        for cpu in 0..cpus {
            match Kernel.open(&attributes, cpu as u32) {
                Ok(fd) => {
                    let ring = Mapping::new(fd.as_fd(), (1 + pages) * page_size())?;
                    rings.push((fd, ring));
                }
                Err(e) => {
                    // Offline CPUs have none.
                    if e.raw_os_error() != Some(libc::ENODEV) {
                        missed::note("what programs map on a CPU", &e);
                    }
                    failure = Some(e);
                }
            }
        }
        match failure {
            Some(e) if rings.is_empty() => Err(e),
            _ => Ok(CodeEvents { rings, pages }),
        }
    }

    /// Takes what has come since the last call, in the order of the times; and returns how many
    /// records the kernel has dropped meanwhile.
    pub fn take(&self, found: &mut Vec<CodeEvent>) -> u64 {
        let from = found.len();
        let mut lost = 0;
        for (_, ring) in &self.rings {
            let head = ring.word(HEAD).load(Ordering::Acquire);
            let mut tail = ring.word(TAIL).load(Ordering::Relaxed);
            while tail < head {
                let mut record = vec![0; 8];
                copy(ring, self.pages, tail, &mut record);
                let size = u16::from_ne_bytes([record[6], record[7]]);
                if size < 8 {
                    break;
                }
                record.resize(usize::from(size), 0);
                copy(ring, self.pages, tail, &mut record);
                lost += read(&record, found);
                tail += u64::from(size);
            }
            ring.word(TAIL).store(head, Ordering::Release);
        }
        found[from..].sort_by_key(|e| e.time);
        lost
    }
}

/// Copies from the ring, which records may wrap around. Records are multiples of 8 bytes.
fn copy(ring: &Mapping, pages: usize, from: u64, to: &mut [u8]) {
    let page = page_size();
    for (n, bytes) in to.chunks_mut(8).enumerate() {
        let at = (from as usize + 8 * n) % (pages * page);
        let word = ring.word(page + at).load(Ordering::Relaxed).to_ne_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Adds what a record says; returns how many records were lost before it.
fn read(record: &[u8], found: &mut Vec<CodeEvent>) -> u64 {
    let (word, long) = (|at| number32(record, at), |at| number64(record, at));
    let (kind, misc) = (word(0), word(4) as u16);
    let time = long(record.len().saturating_sub(8));
    let mut add = |what| found.push(CodeEvent { time, pid: word(8), what });
    match kind {
        // LOST
        2 => return long(16),
        // COMM, because of an exec
        3 if misc & 1 << 13 != 0 => add(What::Exec),
        // FORK of a process, not of a thread
        7 if word(8) != word(12) => add(What::Fork { parent: word(12) }),
        // MMAP2
        10 => {
            let name = record.get(72..record.len().saturating_sub(8)).unwrap_or_default();
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            let size = usize::from(record.get(40).copied().unwrap_or_default()).min(20);
            let has_id = misc & 1 << 14 != 0;
            let build_id = if has_id { record.get(44..44 + size) } else { None };
            let file = FileId {
                device: libc::makedev(word(40), word(44)),
                inode: if has_id { 0 } else { long(48) },
            };
            add(What::Map {
                start: long(16),
                length: long(24),
                offset: long(32),
                // MAP_SHARED or MAP_SHARED_VALIDATE, PROT_WRITE
                kind: match (misc & 1 << 13, word(68) & 3, word(64) & 2) {
                    (0, ..) => MapKind::Code,
                    (_, 1 | 3, _) => MapKind::SharedData,
                    (_, _, 0) => MapKind::Data,
                    (_, _, _) => MapKind::Variables,
                },
                path: String::from_utf8_lossy(&name[..end]).into_owned(),
                build_id: build_id.unwrap_or_default().to_vec(),
                file: (file.inode != 0).then_some(file),
            });
        }
        _ => {}
    }
    0
}

fn number32(record: &[u8], at: usize) -> u32 {
    let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
    u32::from_ne_bytes(bytes.copied().unwrap_or_default())
}

fn number64(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
    u64::from_ne_bytes(bytes.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_mapping_is_read() {
        let mut record = vec![0; 72];
        record[0] = 10;
        record[4..6].copy_from_slice(&(2u16 | 1 << 14).to_ne_bytes());
        record[8] = 7;
        record[16..24].copy_from_slice(&0x1000u64.to_ne_bytes());
        record[24..32].copy_from_slice(&0x2000u64.to_ne_bytes());
        record[40] = 2;
        record[44..46].copy_from_slice(&[0xab, 0xcd]);
        record.extend_from_slice(b"/a b\0\0\0\0");
        record.extend_from_slice(&99u64.to_ne_bytes());
        let mut found = Vec::new();
        assert_eq!(read(&record, &mut found), 0);
        let what = What::Map {
            start: 0x1000,
            length: 0x2000,
            offset: 0,
            kind: MapKind::Code,
            path: "/a b".into(),
            build_id: vec![0xab, 0xcd],
            file: None,
        };
        assert_eq!(found, [CodeEvent { time: 99, pid: 7, what }]);
        let kinds =
            [(2, 1, MapKind::Data), (2, 3, MapKind::Variables), (1, 3, MapKind::SharedData)];
        for (flags, protection, kind) in kinds {
            record[64..68].copy_from_slice(&u32::to_ne_bytes(protection));
            record[4..6].copy_from_slice(&(2u16 | 1 << 13 | 1 << 14).to_ne_bytes());
            record[68..72].copy_from_slice(&u32::to_ne_bytes(flags));
            found.clear();
            assert_eq!(read(&record, &mut found), 0);
            assert!(matches!(&found[0].what, What::Map { kind: is, .. } if *is == kind));
        }
        // Without a build id: device 8:1, inode 77.
        record[4..6].copy_from_slice(&2u16.to_ne_bytes());
        record[40..44].copy_from_slice(&8u32.to_ne_bytes());
        record[44..48].copy_from_slice(&1u32.to_ne_bytes());
        record[48..56].copy_from_slice(&77u64.to_ne_bytes());
        found.clear();
        assert_eq!(read(&record, &mut found), 0);
        let wanted = FileId { device: libc::makedev(8, 1), inode: 77 };
        assert!(matches!(&found[0].what, What::Map { file: Some(file), .. } if *file == wanted));
    }
}
