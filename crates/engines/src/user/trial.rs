// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Records a file into which a hostile program writes at random, before and while it is read: no
//! panic, no hang, and only whole records reach the log. Used by the fuzzer (fuzz/), and with fewer
//! inputs by `cargo test`.

use super::layout::*;
use super::{Catalogue, Folder, Output, Owner, Program, ProgramFile};
use klogger_log::builder::RecordBuilder;
use klogger_log::record::SizeTable;
use klogger_os as os;
use klogger_ring::block::{Builtin, Outlet, ToWriter};
use klogger_ring::{CONTROL as RING_CONTROL, EVENTS_MAX, Rings};
use klogger_schema::layout::EventLayout;
use klogger_schema::{Options, parse};
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, OnceLock};

const RING: usize = 1 << 14;
const SLOTS: usize = 4;
const TEXT: &str = "schema my \"x\"\nevent TICK { u64 n }\nevent SAY { u64 n  string text }\n";
/// Bytes of one hostile write: when and where, an offset, and the value.
pub const DEED: usize = 11;

/// The control page of a correct program with the schema `my`, whose text is `text` and which has
/// two events.
pub fn page(pid: u32, slots: usize, ring: usize, text: &str) -> Vec<u8> {
    let mut page = vec![0; CONTROL];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, value) in [
        (AT_MAGIC, MAGIC),
        (AT_SIZE, (SLOTS_AT + slots * slot_bytes(ring)) as u64),
        (AT_SLOTS_AT, SLOTS_AT as u64),
        (AT_SLOT_STRIDE, slot_bytes(ring) as u64),
    ] {
        put(at, &value.to_le_bytes());
    }
    for (at, value) in [
        (AT_VERSION, VERSION),
        (AT_PID, pid),
        (AT_SLOTS, slots as u32),
        (AT_RING_SIZE, ring as u32),
        (AT_SCHEMATA, 1),
        (AT_SCHEMA + SCHEMA_BASE, LOCAL_BASE),
        (AT_SCHEMA + SCHEMA_EVENTS, 2),
        (AT_SCHEMA + SCHEMA_TEXT_AT, AT_FIRST_TEXTS as u32),
        (AT_SCHEMA + SCHEMA_LENGTH, text.len() as u32),
    ] {
        put(at, &value.to_le_bytes());
    }
    put(AT_SCHEMA + SCHEMA_NAME, b"my");
    put(AT_FIRST_TEXTS, text.as_bytes());
    page
}

fn builtin() -> &'static CompiledSchema {
    static UNIT: OnceLock<CompiledSchema> = OnceLock::new();
    UNIT.get_or_init(|| bundled::builtin().expect("it is bundled"))
}

/// Records of both events, as they are in a ring.
fn records() -> Vec<u8> {
    let schema = parse("my.klogger", TEXT, &Options::default()).expect("it is correct").schema;
    let layouts: Vec<_> = schema
        .events
        .iter()
        .zip(LOCAL_BASE as u16..)
        .map(|(e, id)| EventLayout::new("my", e, id))
        .collect();
    let mut bytes = Vec::new();
    for n in 0..40 {
        RecordBuilder::new(&layouts[0]).int("n", n).finish(os::monotonic_ns(), &mut bytes);
        RecordBuilder::new(&layouts[1])
            .int("n", n)
            .text("text", b"hello")
            .finish(os::monotonic_ns(), &mut bytes);
    }
    bytes
}

/// The file of a correct program, in which two threads have logged.
fn correct(path: &Path) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .expect("a new file");
    let put =
        |at: usize, bytes: &[u8]| file.write_all_at(bytes, at as u64).expect("there is space");
    file.set_len((SLOTS_AT + SLOTS * slot_bytes(RING)) as u64).expect("there is space");
    put(0, &page(std::process::id(), SLOTS, RING, TEXT));
    let records = records();
    for slot in 0..2 {
        put(AT_SLOT + slot * SLOT, &[1 + slot as u8, 0, 0, 0, 7]);
        for (base, size) in [(0, RING), (Rings::stride(RING), klogger_ring::NESTED)] {
            let ring = SLOTS_AT + slot * slot_bytes(RING) + base;
            put(ring, &(records.len() as u64).to_le_bytes());
            put(ring + 32, &(size as u64).to_le_bytes());
            put(ring + RING_CONTROL, &records);
        }
    }
    file
}

/// What the recorder reads: (offset, length).
fn places() -> [(usize, usize); 9] {
    let ring = SLOTS_AT;
    [
        (0, AT_SCHEMA),
        (AT_SCHEMA, SCHEMA),
        (AT_FIRST_TEXTS, TEXT.len()),
        (AT_LOST, 8 * EVENTS_MAX),
        (AT_SLOT, SLOTS * SLOT),
        (ring, 64 + 8 * 80),
        (ring + 4096, 256),
        (ring + RING_CONTROL, 2048),
        (ring + Rings::stride(RING), RING_CONTROL + 1024),
    ]
}

/// Writes to the file, or truncates it.
fn act(file: &File, deed: &[u8]) {
    let places = places();
    let (what, offset) =
        (usize::from(deed[0] & 0x7f), usize::from(u16::from_le_bytes([deed[1], deed[2]])));
    let _ = match places.get(what % (places.len() + 1)) {
        Some((at, length)) => file.write_all_at(&deed[3..DEED], (at + offset % length) as u64),
        None => file.set_len((offset * 8) as u64),
    };
}

/// Records such a file as a recorder does, from the beginning to the end.
pub fn record_hostile(deeds: &[u8]) {
    let shared = Path::new("/dev/shm");
    let place = tempfile::tempdir_in(if shared.is_dir() { shared } else { Path::new("/tmp") })
        .expect("a new folder");
    let name = OsString::from("1.ab");
    let file = correct(&place.path().join(&name));
    let (early, late): (Vec<_>, Vec<_>) =
        deeds.chunks_exact(DEED).partition(|deed| deed[0] & 0x80 == 0);
    early.iter().for_each(|deed| act(&file, deed));
    let folder = Arc::new(Folder::open(place.path(), None).expect("our folder"));
    let Ok(program) = ProgramFile::open(&folder, &name) else { return };
    let (sender, messages) = sync_channel(100_000);
    let layouts = Builtin(Arc::new(builtin().layouts(1)));
    let outlet = Outlet {
        to_writer: sender,
        pool: Arc::default(),
        status: Arc::default(),
        builtin: layouts.clone(),
        followed: Arc::default(),
    };
    let mut out = Output::new(outlet, false);
    let mut catalogue = Catalogue::new([(builtin(), false)], true, &[]);
    let owner =
        if early.len() % 2 == 0 { Owner::Process(std::process::id()) } else { Owner::Nobody };
    let Ok(mut program) = Program::new(program, owner, true, &mut catalogue, &mut out) else {
        return;
    };
    let mut sound = program.drain(&mut out, false).is_ok();
    for deed in late {
        act(&file, deed);
        sound = sound && program.drain(&mut out, false).is_ok();
    }
    sound =
        sound && program.free_slots_of_the_dead().is_ok() && program.drain(&mut out, true).is_ok();
    if sound {
        program.account(&mut out, &catalogue);
    }
    program.file.remove();
    check(&messages, layouts.0.to_vec());
}

/// Everything that was sent is whole records of events that the log knows.
fn check(messages: &Receiver<ToWriter>, mut layouts: Vec<EventLayout>) {
    let mut blocks = Vec::new();
    for message in messages.try_iter() {
        match message {
            ToWriter::Block(block) => blocks.push(block),
            ToWriter::Addition(addition) => layouts.extend(addition.events),
            ToWriter::Own(_)
            | ToWriter::NameThreads(_)
            | ToWriter::Settle(_)
            | ToWriter::Ended(_)
            | ToWriter::Until(..) => {}
        }
    }
    let sizes = SizeTable::new(&layouts);
    for block in blocks {
        let mut records = sizes.records(&block.records);
        assert!(records.all(|record| record.id() != 0));
        assert!(records.rest().is_empty(), "{} bytes are not a record", records.rest().len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marsaglia's xorshift64, with the same numbers in each run.
    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), |x| {
            let x = x ^ (x << 13);
            let x = x ^ (x >> 7);
            Some(x ^ (x << 17))
        })
    }

    #[test]
    fn a_correct_file_is_read() {
        record_hostile(&[]);
        // One event off, twice.
        record_hostile(&[4; DEED]);
    }

    #[test]
    fn any_hostile_writes() {
        for seed in 0..400 {
            let mut numbers = numbers(seed).skip(8);
            let count = numbers.next().unwrap_or(0) % 6;
            let mut deeds = Vec::new();
            for _ in 0..count {
                let (place, value) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                deeds.extend_from_slice(&place.to_le_bytes()[..3]);
                // Small numbers, large ones, and one wrong byte.
                let value = [value, value >> 48, u64::MAX - (value >> 56), 1 << (value & 63)]
                    [(place >> 32) as usize % 4];
                deeds.extend_from_slice(&value.to_le_bytes());
            }
            record_hostile(&deeds);
        }
    }
}
