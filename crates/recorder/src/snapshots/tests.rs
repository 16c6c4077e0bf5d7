// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Hits of triggers: each gets a snapshot, whenever the thread comes to it.

use super::*;
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::preamble::Clock;
use klogger_log::reader::Reader;
use klogger_log::writer::{EventBlock, Extent};
use klogger_toolchain::bundled;
use std::path::Path;

const MS: u64 = 1_000_000;

struct Recording {
    snapshots: Snapshots,
    history: Arc<History>,
    builtin: Builtin,
    writer: JoinHandle<()>,
    start_ns: u64,
}

impl Recording {
    /// Which began two seconds ago.
    fn start(base: PathBuf, keep: u32) -> Recording {
        let events = bundled::builtin().unwrap().layouts(1);
        let builtin = Builtin(Arc::new(events.clone()));
        let start_ns = now() - 2000 * MS;
        let clock = Clock { start_ns, ..Clock::default() };
        let preamble = Preamble { events, clock, ..Preamble::default() };
        let (before, after) = (Duration::from_millis(50), Duration::ZERO);
        let options = Options { before, after, memory: 1 << 20, keep, base };
        let mut snapshots = Snapshots::start().unwrap();
        // However long a test takes, nothing is too old.
        let limits = Limits { bytes: 1 << 20, age_ns: u64::MAX, before_ns: 50 * MS };
        let history = History::new(&preamble, limits, snapshots.requests.waiting.clone());
        let history = Arc::new(history);
        let (to_writer, messages) = sync_channel(16);
        let writer = thread::spawn(move || {
            for message in messages {
                if let ToWriter::Settle(done) = message {
                    let _ = done.send(());
                }
            }
        });
        let begin = Begin {
            options,
            preamble,
            builtin: builtin.clone(),
            history: history.clone(),
            log: "main.klog".into(),
            mode: 0o600,
            compression: Compression::None,
        };
        let sources = Sources { to_writer, status: Arc::default(), drains: None, flight: None };
        snapshots.begin(begin, sources);
        Recording { snapshots, history, builtin, writer, start_ns }
    }

    /// An event of a CPU in each millisecond of a second; of some a trigger says that it was hit.
    /// Returns the times of the hits.
    fn log(&self) -> Vec<u64> {
        let mut hits = Vec::new();
        for n in 0..1000 {
            let (at, mut records) = (self.start_ns + n * MS, Vec::new());
            self.builtin.event("MARK").int("number", n as i64).finish(at, &mut records);
            let (origin, time_base) = (Origin::Cpu(0), at);
            let block = EventBlock { origin, time_base, first_serial: n, records: &records };
            let extent = Extent { first_ns: at, last_ns: at, events: 1, lost: 0 };
            self.history.keep(&block, extent, n + 1);
            if n % 77 == 76 {
                self.snapshots.requests.hit("late", at, 3);
                hits.push(at);
            }
        }
        hits
    }

    fn end(self) -> Ended {
        self.snapshots.release();
        self.writer.join().unwrap();
        self.snapshots.end(RawStacks::default)
    }
}

/// Times of the events of the CPU.
fn times(file: &Path) -> (Preamble, Vec<u64>) {
    let reader = Reader::open(file).unwrap();
    assert!(reader.is_complete() && reader.damage().is_empty(), "{:?}", reader.damage());
    let origins = Some(vec![Origin::Cpu(0)]);
    let mut merge = reader.merge(&Selection { origins, ..Selection::default() });
    let mut times = Vec::new();
    while let Some(event) = merge.next() {
        times.push(event.time_ns);
    }
    drop(merge);
    (reader.preamble().clone(), times)
}

#[test]
fn each_hit_and_what_was_before_it_is_in_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::start(folder.path().join("x"), 100);
    let (start_ns, hits) = (recording.start_ns, recording.log());
    assert_eq!(hits.len(), 12);
    let ended = recording.end();
    assert!(ended.entries.is_empty());
    assert_eq!(ended.taken.iter().map(|one| one.hits).sum::<u64>(), 12);
    let mut listed = Vec::new();
    for (one, number) in ended.taken.iter().zip(1..) {
        let (preamble, found) = times(Path::new(&one.file));
        let snapshot = preamble.snapshot.unwrap();
        assert_eq!((one.number, snapshot.number), (number, number));
        assert_eq!((snapshot.first.trigger, snapshot.first.why.as_str()), (3, "late"));
        let (from, to) = (one.from_ns, one.to_ns);
        let all = (0..1000).map(|n| start_ns + n * MS);
        assert_eq!(found, all.filter(|at| (from..=to).contains(at)).collect::<Vec<_>>());
        for hit in std::iter::once(&snapshot.first).chain(&snapshot.also) {
            assert!(from <= hit.at_ns - 50 * MS && hit.at_ns <= to);
            listed.push(hit.at_ns);
        }
    }
    assert_eq!(listed, hits);
}

#[test]
fn hits_that_come_too_fast_for_the_queue_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::start(folder.path().join("x"), 100);
    recording.log();
    let many = 10 * WAITING_MAX as u64;
    let last_ns = recording.start_ns + 999 * MS;
    (0..many).for_each(|_| recording.snapshots.requests.hit("often", last_ns, 1));
    let ended = recording.end();
    assert_eq!(ended.taken.iter().map(|one| one.hits).sum::<u64>(), 12 + many);
    assert!(ended.taken.iter().any(|one| one.to_ns == last_ns));
}

#[test]
fn what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::start(folder.path().join("no").join("x"), 1);
    recording.log();
    let ended = recording.end();
    let failed = ended.taken.len();
    assert!(failed > 0);
    assert!(ended.taken.iter().all(|one| one.missing.contains("there is no directory")));
    assert_eq!(ended.entries.len(), 1);
    let said = format!("{failed} could not be written: ");
    assert!(ended.entries[0].text.starts_with(&said), "{}", ended.entries[0].text);
}
