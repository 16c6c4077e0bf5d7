// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The anchor: pages by which the rings of a recording are found in an image of the machine's
//! memory.
//!
//! It is in kernel memory (a dump may leave out that of programs), it begins at a page boundary,
//! and each of its pages can be recognized alone. So a reader of the image needs neither the
//! kernel's symbols nor its page tables. All numbers are little-endian.
//!
//! ```text
//! each page:  0 magic  16 version u32  20 this page's number u32  24 pages u32
//!            28 crc32c u32 of what follows 64
//!            32 recording u64  40 made u64 (of one recording, the latest are in use)  48 unused
//! page 0:    64 turn u64  72 two times {ticks, ns}, of which `turn` (0 or 1) says the newer;
//!            no crc, for it is written every second
//! others:    64 a part of the text:
//!              bytes of `facts` u64, of the index u64, number of frames u64;
//!              facts, index (JSON); frames, u64 each
//! ```
//!
//! Each ring has a stamp in its control page (`stamp`, see `ring.h`), because memory that was freed
//! may hold anything.

use crc32c::crc32c;
use klogger_os::Mapping;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of an anchor's page, whatever the page size of the machine.
pub const PAGE: usize = 4096;
pub const MAGIC: [u8; 16] = *b"klogger\0anchor\0\x01";
const VERSION: u32 = 1;
const HEAD: usize = 64;
const PART: usize = PAGE - HEAD;
const TURN: usize = HEAD;
const TIMES: usize = TURN + 8;
/// The largest anchor describes rings of 16 TiB.
const PAGES_MAX: u32 = 1 << 23;

/// A moment by two clocks: that of the events in the rings, and the log clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub ticks: u64,
    pub ns: u64,
}

/// A part of the list of frames.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Range {
    pub at: usize,
    pub count: usize,
}

/// Both rings of a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RingsAt {
    pub cpu: u16,
    /// Bytes of the main ring.
    pub size: usize,
    pub main: Range,
    pub nested: Range,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    /// Bytes of a frame.
    pub page: u64,
    /// Times in the rings are those of the TSC, not ns.
    pub counter: bool,
    /// An early moment of the recording.
    pub first: Moment,
    pub rings: Vec<RingsAt>,
    /// Counters of events on CPUs without a ring, by id.
    pub ringless: Range,
}

/// What all pages of one anchor have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub recording: u64,
    pub made: u64,
    pub pages: u32,
}

/// The text of an anchor.
pub fn text(about: &[u8], index: &Index, frames: &[u64]) -> Vec<u8> {
    let index = serde_json::to_vec(index).unwrap_or_default();
    let lengths = [about.len() as u64, index.len() as u64, frames.len() as u64];
    let mut text: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
    text.extend_from_slice(about);
    text.extend_from_slice(&index);
    text.extend(frames.iter().flat_map(|f| f.to_le_bytes()));
    text
}

/// (about, index, frames), if the text is one of an anchor.
pub fn read_text(text: &[u8]) -> Option<(&[u8], Index, Vec<u64>)> {
    let (lengths, rest) = text.split_at_checked(24)?;
    let (lengths, _) = lengths.as_chunks();
    let length = |n: usize| usize::try_from(u64::from_le_bytes(*lengths.get(n)?)).ok();
    let (about, rest) = rest.split_at_checked(length(0)?)?;
    let (index, rest) = rest.split_at_checked(length(1)?)?;
    let (frames, _) = rest.split_at_checked(length(2)?.checked_mul(8)?)?;
    let (frames, _) = frames.as_chunks();
    let frames = frames.iter().map(|f| u64::from_le_bytes(*f)).collect();
    Some((about, serde_json::from_slice(index).ok()?, frames))
}

/// Bytes of an anchor with so many bytes of text.
pub fn size(text: usize) -> usize {
    (1 + text.div_ceil(PART)) * PAGE
}

/// Writes an anchor. Its first page is written last, so that an anchor with a first page is
/// complete.
pub fn write(to: &Mapping, recording: u64, made: u64, text: &[u8]) {
    let pages = (size(text.len()) / PAGE) as u32;
    let key = Key { recording, made, pages };
    for (n, part) in text.chunks(PART).enumerate().rev() {
        let mut body = [0; PART];
        body[..part.len()].copy_from_slice(part);
        put(to, (n + 1) * PAGE + HEAD, &body);
        put(to, (n + 1) * PAGE, &head(&key, n as u32 + 1, crc32c(&body)));
    }
    put(to, 0, &head(&key, 0, 0));
}

/// Makes the anchor invalid.
pub fn wipe(at: &Mapping) {
    (0..at.length()).step_by(PAGE).for_each(|page| at.word(page).store(0, Ordering::Release));
}

fn head(key: &Key, number: u32, crc: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..16].copy_from_slice(&MAGIC);
    for (i, n) in [VERSION, number, key.pages, crc].into_iter().enumerate() {
        head[16 + 4 * i..20 + 4 * i].copy_from_slice(&n.to_le_bytes());
    }
    head[32..40].copy_from_slice(&key.recording.to_le_bytes());
    head[40..48].copy_from_slice(&key.made.to_le_bytes());
    head
}

/// Stores word by word, because the mapping is shared; the first word comes last.
fn put(to: &Mapping, at: usize, bytes: &[u8]) {
    let (words, _) = bytes.as_chunks();
    for (n, word) in words.iter().enumerate().rev() {
        to.word(at + 8 * n).store(u64::from_le_bytes(*word), Ordering::Release);
    }
}

/// Stores the time in place of the older one of the two.
pub fn put_time(to: &Mapping, moment: Moment) {
    let word = |at: usize| -> &AtomicU64 { to.word(at) };
    let turn = (word(TURN).load(Ordering::Relaxed) & 1) ^ 1;
    let at = TIMES + 16 * turn as usize;
    word(at).store(moment.ticks, Ordering::Relaxed);
    word(at + 8).store(moment.ns, Ordering::Relaxed);
    // Release: a page with the new turn has the new time.
    word(TURN).store(turn, Ordering::Release);
}

/// The anchor that a page of an image belongs to, if any, and its number there.
pub fn read_head(page: &[u8]) -> Option<(Key, u32)> {
    if page.get(..16)? != MAGIC {
        return None;
    }
    let small = |at: usize| page.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let long = |at: usize| page.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    let (version, number, pages, crc) = (small(16)?, small(20)?, small(24)?, small(28)?);
    let sound = version == VERSION && (2..=PAGES_MAX).contains(&pages) && number < pages;
    let whole = number == 0 || crc32c(page.get(HEAD..PAGE)?) == crc;
    (sound && whole).then_some((Key { recording: long(32)?, made: long(40)?, pages }, number))
}

/// The part of the text that is in a page.
pub fn part(page: &[u8]) -> &[u8] {
    page.get(HEAD..PAGE).unwrap_or_default()
}

/// The newest time in an anchor's first page.
pub fn read_time(page: &[u8]) -> Option<Moment> {
    let word = |at: usize| page.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    let at = TIMES + 16 * (word(TURN)? & 1) as usize;
    Some(Moment { ticks: word(at)?, ns: word(at + 8)? })
}
