// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! # The log file
//!
//! A log is one file, `NAME.klog`: a preamble, then blocks, then a trailer. All numbers are
//! little-endian. A log is untrusted: each value is checked before use, and a block counts only if
//! its checksum matches.
//!
//! ```text
//! preamble | block | block | ...
//!     | (stacks) | (symbols) | (preamble) | (ledger) | block (index) | trailer
//! ```
//!
//! The blocks are written in the order in which rings are drained. If a recording ends early (a
//! crash, a full disk, `kill -9`), at most the block that was being written is lost, and what
//! follows the events. While a recorder writes a log it holds a write lock on the file
//! (`F_OFD_SETLK`, the whole file): a log without an end that is locked is still being written.
//!
//! ## Preamble
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 7 | `klogger` |
//! | 7 | 1 | version of the format: 3. A reader refuses a higher one |
//! | 8 | 4 | bytes of JSON, at most 16 MiB |
//! | 12 | 4 | CRC32C of bytes 0 to 11 and of the JSON |
//! | 16 | | JSON: `Preamble` in `preamble.rs`. Members that a reader does not know are skipped |
//! | | | zeros up to a multiple of 8 |
//!
//! The JSON holds the layout of every event (id, fixed size, fields with offset, type, shape and
//! decoding; its role and slices, if it has any), so that a log is read without the schema that it
//! was made with. An event that the recorder learned of later is described by a block of schemata
//! instead.
//!
//! Version 2 has no blocks of several parts, and no copy of the preamble. Version 1 has no streams
//! of threads and no blocks of schemata either. They are the same otherwise.
//!
//! ## Block
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 4 | `b5 4b 4c 42` |
//! | 4 | 4 | CRC32C from byte 8 to the end of the payload, or, of parts, of the header |
//! | 8 | 2 | bytes of this header: 72, and 16 for each part |
//! | 10 | 1 | kind: 1 events, 2 symbols, 3 ledger, 4 index, 5 schemata, 6 stacks, 7 preamble |
//! | 11 | 1 | compression of the payload: 0 none, 1 zstd (one frame, or one for each part) |
//! | 12 | 4 | bytes of the payload in the file |
//! | 16 | 4 | bytes of the payload unpacked, at most 16 MiB |
//! | 20 | 2 | CPU; 65535: the recorder's own stream; 65534: a thread of a program, CPU not known |
//! | 22 | 2 | parts of the payload, of a block of events; 0: the payload is one |
//! | 24 | 8 | time of the earliest record, ns of the log's clock |
//! | 32 | 8 | time of the latest record |
//! | 40 | 8 | serial number of the first record |
//! | 48 | 8 | losses: the sum of the counts of the `LOST` records in the block |
//! | 56 | 4 | events in the block, `LOST` records not counted |
//! | 60 | 4 | thread id, if byte 20 says that it is a thread's; otherwise 0 |
//! | 64 | 4 | process id of that thread; otherwise 0 |
//! | 68 | 4 | number of that thread's stream, from 1; otherwise 0 |
//!
//! The payload follows the header, then zeros up to a multiple of 8. Fields that a kind has no use
//! for are 0. A reader skips a block of another kind, and bytes at the end of a header that it does
//! not know.
//!
//! **Parts.** Of a long payload each few kB have a checksum of their own, so that a changed byte
//! costs the events around it and not the whole block. A part holds whole records; parts follow
//! each other without gaps. Of each the header has, from byte 72 on:
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 4 | where it begins in the payload in the file |
//! | 4 | 4 | where it ends |
//! | 8 | 4 | serial number of its first record, less that of the block |
//! | 12 | 4 | CRC32C of bytes 0 to 11 and of the part |
//!
//! **Events.** The payload is a sequence of records as in `record.rs`: a word `time << 16 | id`,
//! then the fields. The full time of a record is the first one that is not before the block's
//! earliest time and has the record's low 48 bits. Records are in the order in which their space in
//! the ring was reserved. That is the order of their time with one exception: a nested event has a
//! later time than the event that it interrupts, but may come first.
//!
//! **Streams.** The events of a CPU are a stream, and so are the recorder's. A thread of a program
//! has a stream for each ring that it was given, with a number that is unique in the log, because
//! the kernel reuses thread ids.
//!
//! **Serial numbers** count the attempts of one stream to log. An event takes one number. A `LOST`
//! record takes as many as its count, and none for itself. So the next block of a stream begins at
//! `first serial + events + losses`; any other number there is a loss without a record.
//!
//! **Schemata.** JSON: `Addition` in `preamble.rs`. It adds schemata, events and decodings to those
//! of the preamble, and precedes the first block with such an event. Ids and names of events and
//! names of schemata are new; a decoding may be repeated. All blocks of schemata together have at
//! most 16 MiB unpacked.
//!
//! **Symbols.** Text, a line for each symbol in ascending order: address in hexadecimal, a space,
//! name. Symbols may be missing if no address in the log's events is within them. Long tables are
//! several blocks, each of whole lines.
//!
//! **Stacks.** Text, a line for each kernel stack: its number, which events have in a field `as
//! stack`, and its frames from the innermost on, with a space before each: `FUNCTION+0xOFFSET`, or
//! an address if no symbol is known. A number has one line at most.
//!
//! **Ledger.** JSON: `Ledger` in `ledger.rs`. A recording lasts from `clock.start_ns` of the
//! preamble to `end_ns` of the ledger (or, without a ledger, to the last event): this is the
//! duration that `record`, `info` and `report` show. Later events of the recorder, which drains the
//! rings after the end, are not part of it.
//!
//! **Preamble.** A copy of the file's bytes from 0 to the end of the JSON, used if those are
//! damaged. Only ledger and index are between this block and the trailer.
//!
//! **Index.** For every block before it: its offset in the file (8 bytes), then bytes 8 to 71 of
//! its header.
//!
//! ## Trailer
//!
//! The last 24 bytes of a complete file. If they are missing or invalid, a reader goes through the
//! blocks from the preamble on; after a damaged block it looks for the next four bytes `b5 4b 4c
//! 42` that begin a valid one.
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 8 | offset of the index block |
//! | 8 | 4 | CRC32C of bytes 0 to 7 |
//! | 12 | 4 | 0 |
//! | 16 | 8 | `klogend` and a newline |
//!
//! ## Example
//!
//! A block of CPU 1 with one event: id 1, one `int` field with the value 42, at time 4096, serial
//! number 7. The header ends at byte 48 (hexadecimal); then come the record's word (`0x1000 << 16 |
//! 1`), the value, and padding.
//!
//! ```text
//! 0000  b5 4b 4c 42 97 76 b6 d8 48 00 01 00 10 00 00 00
//! 0010  10 00 00 00 01 00 00 00 00 10 00 00 00 00 00 00
//! 0020  00 10 00 00 00 00 00 00 07 00 00 00 00 00 00 00
//! 0030  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
//! 0040  00 00 00 00 00 00 00 00 01 00 00 10 00 00 00 00
//! 0050  2a 00 00 00 00 00 00 00
//! ```

mod block;

pub(crate) use self::block::Part;
pub use self::block::{BlockHeader, Kind, Packing};
use crc32c::{crc32c, crc32c_append};

/// Version of the format that is written, and the newest that is read.
pub const VERSION: u8 = 3;
pub const FILE_MAGIC: &[u8; 7] = b"klogger";
/// Bytes before the preamble's JSON.
pub const FILE_HEADER_SIZE: usize = 16;
/// Bytes of the preamble's JSON at most.
pub const PREAMBLE_MAX: usize = 16 << 20;
/// Bytes of all blocks of schemata at most, unpacked.
pub const ADDITIONS_MAX: usize = 16 << 20;

pub const BLOCK_MAGIC: [u8; 4] = [0xb5, b'K', b'L', b'B'];
/// Bytes of a block's header as this version writes it.
pub const BLOCK_HEADER_SIZE: usize = 72;
/// Largest unpacked payload in bytes. It limits what a reader must allocate.
pub const BLOCK_RAW_MAX: usize = 16 << 20;
/// Bytes of a part of a block as this version writes it, unpacked. Packed parts are longer
/// unpacked, because short ones do not compress well.
pub const PART_TARGET: usize = 4 << 10;
pub const PACKED_PART_TARGET: usize = 128 << 10;
/// Bytes of a part in the header.
pub const PART_SIZE: usize = 16;
/// The writer cuts longer runs of records into blocks of about this size, so that a merge of many
/// CPUs stays small.
pub const BLOCK_TARGET: usize = 1 << 20;

/// `cpu` of the recorder's own stream.
pub const RECORDER_CPU: u16 = 0xffff;
/// `cpu` of a thread of a program.
pub const USER_CPU: u16 = 0xfffe;
/// The highest CPU number. Linux cannot be built for more CPUs; a higher number is damage. It fits
/// into the signed 16 bits of the exported column.
pub const CPU_MAX: u16 = 0x7fff;

pub const TRAILER_SIZE: usize = 24;
const TRAILER_MAGIC: &[u8; 8] = b"klogend\n";

/// Whether the checksum that was read equals the computed one. A fuzzer cannot guess checksums, so
/// in fuzzing builds every value is accepted.
pub(crate) fn crc_agrees(read: u32, computed: u32) -> bool {
    read == computed || cfg!(fuzzing)
}

/// The head of a file: magic, length and checksum of `json`.
pub fn encode_file_header(json: &[u8]) -> [u8; FILE_HEADER_SIZE] {
    let mut b = [0; FILE_HEADER_SIZE];
    b[0..7].copy_from_slice(FILE_MAGIC);
    b[7] = VERSION;
    b[8..12].copy_from_slice(&(json.len() as u32).to_le_bytes());
    let crc = preamble_crc(&b[..12], json);
    b[12..16].copy_from_slice(&crc.to_le_bytes());
    b
}

pub fn preamble_crc(head: &[u8], json: &[u8]) -> u32 {
    crc32c_append(crc32c(head), json)
}

pub fn encode_trailer(index_offset: u64) -> [u8; TRAILER_SIZE] {
    let mut b = [0; TRAILER_SIZE];
    b[0..8].copy_from_slice(&index_offset.to_le_bytes());
    let crc = crc32c(&b[0..8]);
    b[8..12].copy_from_slice(&crc.to_le_bytes());
    b[16..24].copy_from_slice(TRAILER_MAGIC);
    b
}

/// The offset of the index, or `None` if `b` is not a trailer.
pub fn decode_trailer(b: &[u8; TRAILER_SIZE]) -> Option<u64> {
    let (offset, rest) = b.split_first_chunk::<8>()?;
    let crc = u32::from_le_bytes(*rest.first_chunk()?);
    (crc_agrees(crc, crc32c(offset)) && b.ends_with(TRAILER_MAGIC))
        .then(|| u64::from_le_bytes(*offset))
}
