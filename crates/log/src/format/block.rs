// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The header of a block, and the table of its parts; [`super`] describes each byte.

use super::{
    BLOCK_HEADER_SIZE, BLOCK_MAGIC, BLOCK_RAW_MAX, CPU_MAX, PART_SIZE, RECORDER_CPU, USER_CPU,
    crc_agrees,
};
use crate::origin::{Origin, Thread};
use crc32c::{crc32c, crc32c_append};

/// What a block contains. The numbers are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Events,
    Symbols,
    Ledger,
    Index,
    Schemata,
    Stacks,
    Preamble,
    Code,
    /// All events before [`BlockHeader::first_time`] are in blocks before this one.
    Progress,
    /// Written by a later version; skipped.
    Other(u8),
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Events => 1,
            Kind::Symbols => 2,
            Kind::Ledger => 3,
            Kind::Index => 4,
            Kind::Schemata => 5,
            Kind::Stacks => 6,
            Kind::Preamble => 7,
            Kind::Code => 8,
            Kind::Progress => 9,
            Kind::Other(n) => n,
        }
    }

    fn of(number: u8) -> Kind {
        match number {
            1 => Kind::Events,
            2 => Kind::Symbols,
            3 => Kind::Ledger,
            4 => Kind::Index,
            5 => Kind::Schemata,
            6 => Kind::Stacks,
            7 => Kind::Preamble,
            8 => Kind::Code,
            9 => Kind::Progress,
            n => Kind::Other(n),
        }
    }
}

/// How a payload is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    None,
    Zstd,
}

/// A block's header. Times are full ns of the log clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes of the header in the file.
    pub size: u16,
    pub kind: Kind,
    pub packing: Packing,
    /// Bytes of the payload in the file.
    pub stored: u32,
    /// Bytes of the payload unpacked.
    pub raw: u32,
    /// The stream of the events; CPU 0 for other kinds.
    pub origin: Origin,
    /// Number of parts with their own checksums; 0 if one checksum covers the payload.
    pub parts: u16,
    pub first_time: u64,
    pub last_time: u64,
    pub first_serial: u64,
    pub lost: u64,
    pub events: u32,
}

impl BlockHeader {
    /// A header whose times, serials and counts are 0.
    pub fn plain(kind: Kind) -> BlockHeader {
        BlockHeader {
            size: BLOCK_HEADER_SIZE as u16,
            kind,
            packing: Packing::None,
            stored: 0,
            raw: 0,
            origin: Origin::Cpu(0),
            parts: 0,
            first_time: 0,
            last_time: 0,
            first_serial: 0,
            lost: 0,
            events: 0,
        }
    }

    /// The header with its checksum, which covers `rest`, what follows in the file: the payload, or
    /// the table of its parts.
    pub fn encode(&self, rest: &[u8]) -> [u8; BLOCK_HEADER_SIZE] {
        let mut b = [0; BLOCK_HEADER_SIZE];
        b[0..4].copy_from_slice(&BLOCK_MAGIC);
        b[8..10].copy_from_slice(&self.size.to_le_bytes());
        b[10] = self.kind.number();
        b[11] = match self.packing {
            Packing::None => 0,
            Packing::Zstd => 1,
        };
        b[12..16].copy_from_slice(&self.stored.to_le_bytes());
        b[16..20].copy_from_slice(&self.raw.to_le_bytes());
        let (cpu, tid, tgid, stream) = origin_fields(self.origin);
        b[20..22].copy_from_slice(&cpu.to_le_bytes());
        b[22..24].copy_from_slice(&self.parts.to_le_bytes());
        b[24..32].copy_from_slice(&self.first_time.to_le_bytes());
        b[32..40].copy_from_slice(&self.last_time.to_le_bytes());
        b[40..48].copy_from_slice(&self.first_serial.to_le_bytes());
        b[48..56].copy_from_slice(&self.lost.to_le_bytes());
        b[56..60].copy_from_slice(&self.events.to_le_bytes());
        b[60..64].copy_from_slice(&tid.to_le_bytes());
        b[64..68].copy_from_slice(&tgid.to_le_bytes());
        b[68..72].copy_from_slice(&stream.to_le_bytes());
        let crc = crc32c_append(crc32c(&b[8..]), rest);
        b[4..8].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reads bytes 8 to 71 of a header, which are also in the index. `None` if they are not valid.
    pub fn decode(b: &[u8; BLOCK_HEADER_SIZE - 8]) -> Option<BlockHeader> {
        let u16_at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let kind = Kind::of(b[2]);
        let header = BlockHeader {
            size: u16_at(0),
            kind,
            packing: match b[3] {
                0 => Packing::None,
                1 => Packing::Zstd,
                _ => return None,
            },
            stored: u32_at(4),
            raw: u32_at(8),
            origin: match kind {
                Kind::Events => read_origin(u16_at(12), u32_at(52), u32_at(56), u32_at(60))?,
                _ => Origin::Cpu(0),
            },
            parts: u16_at(14),
            first_time: u64_at(16),
            last_time: u64_at(24),
            first_serial: u64_at(32),
            lost: u64_at(40),
            events: u32_at(48),
        };
        header.is_sane().then_some(header)
    }

    fn is_sane(&self) -> bool {
        let sizes = usize::from(self.size) >= BLOCK_HEADER_SIZE
            && self.size.is_multiple_of(8)
            && self.raw as usize <= BLOCK_RAW_MAX
            && self.stored as usize <= BLOCK_RAW_MAX
            && (self.packing != Packing::None || self.raw == self.stored);
        let parts = self.parts == 0
            || (self.kind == Kind::Events
                && usize::from(self.size)
                    >= BLOCK_HEADER_SIZE + PART_SIZE * usize::from(self.parts));
        let events = self.kind != Kind::Events
            || (self.first_time <= self.last_time && self.events <= self.raw / 8);
        sizes && parts && events
    }

    /// Whether the checksum matches the block's first `bytes`, which begin with this header.
    pub(crate) fn agrees(&self, bytes: &[u8]) -> bool {
        let end = if self.parts > 0 {
            usize::from(self.size)
        } else {
            usize::from(self.size) + self.stored as usize
        };
        let (Some(crc), Some(rest)) =
            (bytes.get(4..).and_then(|b| b.first_chunk()), bytes.get(8..end))
        else {
            return false;
        };
        bytes.starts_with(&BLOCK_MAGIC) && crc_agrees(u32::from_le_bytes(*crc), crc32c(rest))
    }

    /// The number of bytes that [`BlockHeader::agrees`] needs.
    pub(crate) fn checked(&self) -> u64 {
        u64::from(self.size) + if self.parts > 0 { 0 } else { u64::from(self.stored) }
    }

    /// Bytes from this block to the next.
    pub fn span(&self) -> u64 {
        u64::from(self.size) + u64::from(self.stored).next_multiple_of(8)
    }

    /// The serial number after this block's last; it wraps only in a forged file.
    pub fn next_serial(&self) -> u64 {
        self.first_serial.wrapping_add(u64::from(self.events)).wrapping_add(self.lost)
    }
}

/// CPU, thread id, process id and number of the stream, as a header has them.
fn origin_fields(origin: Origin) -> (u16, u32, u32, u32) {
    match origin {
        Origin::Cpu(cpu) => (cpu, 0, 0, 0),
        Origin::Recorder => (RECORDER_CPU, 0, 0, 0),
        Origin::Thread { stream, thread } => (USER_CPU, thread.tid, thread.tgid, stream),
    }
}

/// `None` if the fields contradict each other.
fn read_origin(cpu: u16, tid: u32, tgid: u32, stream: u32) -> Option<Origin> {
    match (cpu, stream) {
        (RECORDER_CPU, 0) => Some(Origin::Recorder),
        (USER_CPU, 1..) => Some(Origin::Thread { stream, thread: Thread { tid, tgid } }),
        (0..=CPU_MAX, 0) => Some(Origin::Cpu(cpu)),
        _ => None,
    }
}

/// A part of a payload: its bytes in the file, and the serial number of its first record relative
/// to the block's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: u32,
    pub end: u32,
    pub serial: u32,
}

impl Part {
    fn head(self) -> [u8; PART_SIZE - 4] {
        let mut b = [0; PART_SIZE - 4];
        b[0..4].copy_from_slice(&self.start.to_le_bytes());
        b[4..8].copy_from_slice(&self.end.to_le_bytes());
        b[8..12].copy_from_slice(&self.serial.to_le_bytes());
        b
    }

    /// The part as it is in the header; `bytes` are its contents.
    pub fn encode(self, bytes: &[u8]) -> [u8; PART_SIZE] {
        let mut b = [0; PART_SIZE];
        b[0..12].copy_from_slice(&self.head());
        b[12..16].copy_from_slice(&crc32c_append(crc32c(&self.head()), bytes).to_le_bytes());
        b
    }

    /// Reads a part, and its checksum, for [`Part::agrees`].
    pub fn decode(b: &[u8; PART_SIZE]) -> (Part, u32) {
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        (Part { start: u32_at(0), end: u32_at(4), serial: u32_at(8) }, u32_at(12))
    }

    pub fn agrees(self, crc: u32, bytes: &[u8]) -> bool {
        crc_agrees(crc, crc32c_append(crc32c(&self.head()), bytes))
    }
}
