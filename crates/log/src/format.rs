// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! # The log file
//!
//! A log is one file, `NAME.klog`: a preamble, then blocks, then a trailer. All numbers are
//! little-endian. A log is untrusted: each value is checked before use, and a block is used only if
//! its checksum is correct.
//!
//! ```text
//! preamble | block | block | ...
//!     | (stacks) | (code) | (symbols) | (preamble) | (ledger) | block (index) | trailer
//! ```
//!
//! Blocks of events are written in the order in which rings are drained. If a recording ends early
//! (a crash, a full disk, `kill -9`), at most the block that was being written and the blocks that
//! follow the events are missing. While the recorder writes a log, it holds a write lock on the
//! whole file (`F_OFD_SETLK`), so that a reader can tell a log that is still being written from one
//! that was cut off: both have no trailer, but only the first is locked.
//!
//! ## Preamble
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 7 | `klogger` |
//! | 7 | 1 | version of the format: 4; a reader rejects higher versions |
//! | 8 | 4 | size of the JSON, at most 16 MiB |
//! | 12 | 4 | CRC32C of bytes 0 to 11 and of the JSON |
//! | 16 | | JSON: `Preamble` in `preamble.rs`; unknown members are skipped |
//! | | | zeros up to a multiple of 8 |
//!
//! The JSON has the layout of each event (id, fixed size, fields with offset, type, shape and
//! decoding; role, slices, line if there are any), so that a log can be read without its schemata.
//! Events that the recorder learned of during the recording are described in a block of schemata
//! instead.
//!
//! Version 3 has at most one field of variable length in an event, of 255 bytes at most, and its
//! records have 1024 bytes at most (now 4096). Version 2 also has no parts of blocks and no copy of
//! the preamble. Version 1 also has no streams of threads and no blocks of schemata. Everything
//! else is the same.
//!
//! ## Block
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 4 | `b5 4b 4c 42` |
//! | 4 | 4 | CRC32C of byte 8 to the end of the payload (with parts: header) |
//! | 8 | 2 | size of this header: 72, and 16 for each part |
//! | 10 | 1 | kind, see below |
//! | 11 | 1 | compression: 0 none, 1 zstd (one frame, or one for each part) |
//! | 12 | 4 | size of the payload in the file |
//! | 16 | 4 | size of the payload when decompressed, at most 16 MiB |
//! | 20 | 2 | CPU; 65535: recorder; 65534: thread of a program, CPU unknown |
//! | 22 | 2 | number of parts; 0: the payload is not divided |
//! | 24 | 8 | time of the earliest record, ns of the log clock |
//! | 32 | 8 | time of the latest record |
//! | 40 | 8 | serial number of the first record |
//! | 48 | 8 | losses: the sum of the counts in `LOST` records of the block |
//! | 56 | 4 | number of events in the block, without `LOST` records |
//! | 60 | 4 | thread id if byte 20 says that it is a thread; otherwise 0 |
//! | 64 | 4 | process id of that thread; otherwise 0 |
//! | 68 | 4 | stream number of that thread, from 1; otherwise 0 |
//!
//! Kinds: 1 events, 2 symbols, 3 ledger, 4 index, 5 schemata, 6 stacks, 7 preamble, 8 code,
//! 9 progress.
//!
//! The payload follows the header, then zeros up to a multiple of 8. Header fields that a kind does
//! not use are 0. A reader skips blocks of unknown kinds, and unknown bytes at the end of a header.
//!
//! **Parts.** A long payload of events is divided into parts of a few kB, each with a checksum of
//! its own, so that a damaged byte costs the events of one part and not the whole block. A part
//! contains whole records. Parts are contiguous and cover the payload. From byte 72 on, the header
//! has an entry for each:
//!
//! | byte | size | what |
//! |---|---|---|
//! | 0 | 4 | offset of its begin in the payload as stored in the file |
//! | 4 | 4 | offset of its end |
//! | 8 | 4 | serial number of its first record, minus that of the block |
//! | 12 | 4 | CRC32C of bytes 0 to 11 and of the part |
//!
//! **Events.** The payload is a sequence of records as described in `record.rs`: a header word
//! (`time << 16 | id`), then the fields. The header word has the low 48 bits of the time; the full
//! time is the smallest one with these bits that is not before the earliest time of the block.
//! Records are in the order in which space was reserved for them in the ring. This is the order of
//! their times, with one exception: the records of a nested hit are later than those of the hit
//! that it interrupted, but may precede them.
//!
//! **Streams.** The events of each CPU are a stream, and so are those of the recorder. A thread of
//! a program has one stream for each ring that it was given. The number of a stream is unique
//! within the log, whereas thread ids are reused.
//!
//! **Serial numbers** count the attempts of one stream to log. An event takes one number. A `LOST`
//! record takes as many as its count, and none for itself. So the next block of a stream begins at
//! `first serial + events + losses`; any other number means a loss for which there is no record.
//!
//! **Snapshots.** A log whose preamble has a member `snapshot` is a part of a recording: the events
//! from `from_ns` to `to_ns`. Streams keep their serial numbers, and may begin with any. Only that
//! of the recorder is the snapshot's own and begins with 0. `left_out` lists serial numbers between
//! events of the span that are not in it because of their times; they are not missing.
//!
//! **Schemata.** JSON: `Addition` in `preamble.rs`. It adds schemata, events and decodings to those
//! of the preamble, and precedes the first block that contains such an event. Its ids and names of
//! events and its names of schemata must be new; a decoding may be repeated. All blocks of schemata
//! together are at most 16 MiB when decompressed.
//!
//! **Symbols.** Text, one line per symbol in ascending order: hexadecimal address, space, name.
//! Symbols that contain no address of the log's events may be omitted. A long table is divided into
//! several blocks of whole lines.
//!
//! **Stacks.** Text, one line per kernel stack: its number, which events have in a field
//! `as stack`, then its frames, innermost first, each after a space: `FUNCTION+0xOFFSET`, or an
//! address if the symbol is unknown. Each number has at most one line.
//!
//! **Code.** Text, user stacks and what their addresses mean, and addresses of data, in lines of
//! eight forms:
//!
//! - `f NUMBER BUILD-ID SEGMENTS PATH`: a file. Numbers count from 0. Without a build id it is
//!   `-`. SEGMENTS are those with code, `OFFSET:SIZE:ADDRESS` in hexadecimal, with commas between
//!   them; `-` if they are unknown. A PATH `[vdso]` is the code that the kernel gives to each
//!   program, and `[perf map PID]` that of a program which describes what it has made; offsets in
//!   the latter are addresses.
//! - `s NUMBER PID CUT FRAME FRAME ...`: a stack of that process, the innermost frame first. The
//!   number is not that of a kernel stack. CUT is `cut` if there were more frames, `end` if the
//!   file of the last frame says that nothing called it, otherwise `-`.
//!   A frame is `FILE+OFFSET`, a place in a file, or an address that belongs to none; both in
//!   hexadecimal. It is that of the instruction, and in all but the first frame the return
//!   address minus 1, which is in the call.
//! - `g NUMBER INDEX INDEX ...`, after the line `s` of that stack: the file of its first frame has
//!   been looked at, and the callers of these frames (from 0) are missing, so that the next frame
//!   is not their caller. There may be none.
//! - `k NUMBER FRAME FRAME ...`, `b NUMBER AT FRAME-POINTER`, `c NUMBER AT FRAME`, after the line
//!   `s` of that stack: what its frames were found from, while a file has not been looked at that
//!   tells more. `k` has what the kernel found, if these are not the frames of the stack. `c` has a
//!   word of the stack that is an address after a call, or of code that was not in memory; `b` one
//!   that is a frame pointer; the word, and what a frame pointer points to, are that many bytes
//!   (decimal) above the stack pointer. `b` with `-` in place of AT has the frame pointer of the
//!   first frame.
//! - `n FILE+OFFSET DISTANCE`, then for each function at that place a tab, its name, a tab, and
//!   `SOURCE:LINE`, which may be empty: first the function that the place is DISTANCE
//!   (hexadecimal) bytes into, then those that were inlined there, each into the one before it.
//! - `d PID ADDRESS TIME PLACE`: from that time (ns) on an address (hexadecimal) of a process (0:
//!   the kernel) in a field `as data` is at PLACE, until the next line of that address. PLACE is
//!   `FILE@SEGMENT+DISTANCE`, so many bytes behind what was mapped as code from offset SEGMENT
//!   of the file on; or `FILE+OFFSET` in a file that processes share; or `-`, which is neither.
//!   After that, if known: a tab, an offset, a tab, the name of the variable that it is in; or of
//!   the file, if that has no name for it: then the offset is the address that the file has for it.
//!
//! `klogger symbolize` replaces the lines `n`, the names in `d`, and those lines `s`, `g`, `k`, `b`
//! and `c` that it can settle.
//!
//! **Progress.** No payload. All events before the time in byte 24 are in blocks before this one. A
//! recorder writes such blocks while it knows that somebody follows the log, and always into a
//! pipe. A reader that follows a log prints events up to there, in the order of time.
//!
//! **Ledger.** JSON: `Ledger` in `ledger.rs`. A recording lasts from `clock.start_ns` of the
//! preamble to `end_ns` of the ledger (without a ledger, to the last event). `record`, `info` and
//! `report` print this duration. Events that the recorder causes after `end_ns`, while it drains
//! the rings for the last time, are not part of the recording.
//!
//! **Preamble.** A copy of the file from byte 0 to the end of the JSON, for a reader that finds the
//! original damaged. Only the ledger and the index are between this block and the trailer.
//!
//! **Index.** For each block before it: its offset in the file (8 bytes), then bytes 8 to 71 of its
//! header.
//!
//! ## Segments
//!
//! A recording may be divided into several logs, its segments: files of one folder, with the names
//! `segment-000001.klog`, `segment-000002.klog`, ... Each is a whole log, with tables, ledger and
//! trailer. The member `segment` of the preamble has the number, the recording (32 hexadecimal
//! digits, the same in all), `start_ns`, when the segment begins, and `threads`: the names that
//! threads had then. In all segments,
//!
//! - `clock` is the same;
//! - ids of events, numbers of streams and numbers of stacks mean the same; the numbers of files in
//!   a table of code do not;
//! - the preamble has the schemata that earlier segments learned of;
//! - the blocks of a stream go on where they ended in the segment before, and so do its serial
//!   numbers. What was in a ring at the end of a segment is in the next one, whatever its time;
//! - the ledger is that of the segment: counts of all segments add up. Only `segments_removed`, the
//!   hits of triggers and the snapshots are of the whole recording up to then.
//!
//! ## Trailer
//!
//! The last 24 bytes of a complete file. If the trailer is missing or invalid, a reader scans the
//! blocks, beginning after the preamble; after a damaged block it searches for the next four bytes
//! `b5 4b 4c 42` that begin a valid one.
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
//! number 7. The header ends at offset 0x48; then come the header word of the record
//! (`0x1000 << 16 | 1`), the value, and padding.
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
pub const VERSION: u8 = 4;
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
