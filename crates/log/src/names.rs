// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of threads and processes: the name of each thread at each time.
//!
//! It is built from `PROCESS_EXISTS` (threads that existed when recording began) and from the
//! events of fork, exec, rename and exit. A thread keeps its last name after its exit until its id
//! is reused, because its last context switch comes after `PROCESS_EXIT`. `PROCESS_SEEN` names
//! threads out of scope: from the time that it says on; the first name also before, as far as no
//! other thread had the id.
//!
//! Readers hand over events in the order of time. A recorder does so block by block, and those of
//! several CPUs overlap: what is older than what is known of a thread only adds to it.

mod apply;
mod past;

pub use past::Past;

use crate::builtin::Builtin;
use crate::event::{EventRef, Value};
use crate::merge::Selection;
use crate::origin::Origin;
use crate::preamble::{self, KnownThread, Preamble};
use crate::reader::Reader;
use klogger_schema::layout::EventLayout;
use std::collections::{HashMap, VecDeque};

/// Threads of a running recording that are remembered, at most.
const THREADS_MAX: usize = 1 << 16;
/// The last context switch of a thread comes after its exit.
pub const AFTER_EXIT_NS: u64 = 100_000_000;

/// One name of one thread. Times are full ns of the log clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Thread id.
    pub pid: i64,
    /// Process id; -1 if the log does not say.
    pub tgid: i64,
    /// The process, or thread, that created it; -1 if the log does not say.
    pub parent: i64,
    /// As when recording began, or of the thread that created it.
    pub prio: i64,
    pub policy: i64,
    pub comm: Vec<u8>,
    /// The command line, if it existed when recording began; after an exec the program's file name.
    pub command: Vec<u8>,
    pub from_ns: u64,
    /// Exclusive.
    pub to_ns: u64,
    /// When it ended, if it did before its next name.
    pub exit_ns: Option<u64>,
    /// A thread of klogger's recorder.
    pub recorder: bool,
    /// It is out of scope: all that is known of it is a `PROCESS_SEEN`.
    pub seen: bool,
}

impl Row {
    /// Of a thread of which nothing else is known.
    pub fn new(pid: i64, comm: Vec<u8>, from_ns: u64) -> Row {
        let (tgid, parent, to_ns) = (-1, -1, from_ns);
        Row { pid, tgid, parent, comm, from_ns, to_ns, ..Row::default() }
    }

    /// What `PROCESS_EXISTS` and `PROCESS_SEEN` say of a thread.
    fn told(event: &EventRef, from_ns: u64) -> Row {
        let known = |field: &str| event.get(field).and_then(Value::int).unwrap_or(0);
        Row {
            tgid: int(event, "tgid"),
            parent: int(event, "ppid"),
            prio: known("prio"),
            policy: known("policy"),
            command: text(event, "command").to_vec(),
            ..Row::new(int(event, "pid"), text(event, "comm").to_vec(), from_ns)
        }
    }

    fn seen(event: &EventRef) -> Row {
        let since_ns = event.get("since").and_then(Value::int).unwrap_or(0) as u64;
        Row { seen: true, ..Row::told(event, since_ns) }
    }

    /// Events from this time on may be of the thread.
    fn is_since(&self, time_ns: u64) -> bool {
        self.exit_ns.is_none_or(|at| at >= time_ns)
    }
}

/// A thread's current state.
#[derive(Clone, Debug)]
struct Live {
    row: Row,
    /// Known from `PROCESS_EXISTS` at this time, and from no other event.
    existed: Option<u64>,
    /// Its name was set after its last fork or exec.
    renamed: bool,
    /// Events before this time are of another thread with its id; 0 if that is not known.
    born_ns: u64,
    /// An event of this time named it; 0 if any event may name it anew.
    named_ns: u64,
    /// The same for its command.
    command_ns: u64,
}

/// The table as of the last event that was applied.
#[derive(Clone)]
pub struct Processes {
    /// By index into `preamble.events`.
    what: Vec<Option<Builtin>>,
    threads: HashMap<i64, Live>,
    /// Names of the recorder's threads. In a log of a workload they have no rows, but may be the
    /// next thread of a switch.
    recorder: HashMap<i64, Vec<u8>>,
    recorder_pid: i64,
    start_ns: u64,
    /// Names of threads out of scope that are still to come.
    seen: VecDeque<Row>,
    /// Rows that have ended, if they are kept.
    past: Option<Past>,
    fed: Fed,
    /// The time of the latest event so far, if they come block by block.
    newest_ns: u64,
}

/// How events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    /// Names of existing threads, and of those out of scope, come before all others.
    InOrder,
    /// The recording runs: they come as all others do.
    Live,
    /// The same, and block by block. The table has [`THREADS_MAX`] threads.
    Blocks,
}

impl Processes {
    /// A table for naming threads during one pass through a log.
    pub fn new(reader: &Reader) -> Processes {
        let mut table = Processes::of(reader.preamble(), reader.span().0, Fed::InOrder);
        let mut merge = reader
            .merge(&Selection { origins: Some(vec![Origin::Recorder]), ..Selection::default() });
        let mut seen = Vec::new();
        while let Some(event) = merge.next() {
            match table.what[event.index] {
                Some(Builtin::Exists) => table.exists(&event),
                Some(Builtin::Seen) => seen.push(Row::seen(&event)),
                Some(_) | None => {}
            }
        }
        seen.sort_by_key(|row| row.from_ns);
        for row in &seen {
            table.found(row.pid, row.tgid, &row.comm);
        }
        table.seen = seen.into();
        table
    }

    /// A table that also keeps past rows, for [`Processes::into_rows`].
    pub fn with_history(reader: &Reader) -> Processes {
        Processes { past: Some(Past::default()), ..Processes::new(reader) }
    }

    /// A table for a recording that runs, whose events come in the order of time.
    pub fn live(preamble: &Preamble) -> Processes {
        Processes::of(preamble, preamble.clock.start_ns, Fed::Live)
    }

    /// A table for a recording that runs, whose events come block by block.
    pub fn of_blocks(preamble: &Preamble) -> Processes {
        Processes::of(preamble, preamble.clock.start_ns, Fed::Blocks)
    }

    fn of(preamble: &Preamble, start_ns: u64, fed: Fed) -> Processes {
        let mut table = Processes {
            what: Vec::new(),
            threads: HashMap::new(),
            recorder: recorder(&preamble.recorder),
            recorder_pid: i64::from(preamble.recorder.pid),
            start_ns,
            seen: VecDeque::new(),
            past: None,
            fed,
            newest_ns: 0,
        };
        table.learn(&preamble.events);
        table.add(Row { tgid: 0, ..Row::new(0, b"idle".to_vec(), start_ns) });
        for known in preamble.segment.iter().flat_map(|segment| &segment.threads) {
            let KnownThread { pid, tgid, parent, comm, command } = known.clone();
            let row = Row::new(pid, comm.into(), start_ns);
            table.add(Row { tgid, parent, command: command.into(), ..row });
        }
        table
    }

    /// The preamble has these events by now.
    pub fn learn(&mut self, events: &[EventLayout]) {
        self.what = events.iter().map(Builtin::of).collect();
    }

    /// A thread that no event has named, and that was found elsewhere.
    pub fn found(&mut self, pid: i64, tgid: i64, comm: &[u8]) {
        if !self.threads.contains_key(&pid) {
            self.add(Row { tgid, ..Row::new(pid, comm.to_vec(), self.start_ns) });
        }
    }

    /// An id that belongs to another thread than the one that was found with it before.
    pub fn found_anew(&mut self, pid: i64, tgid: i64, comm: Vec<u8>, since_ns: u64) {
        self.add(Row { tgid, ..Row::new(pid, comm, since_ns) });
    }

    /// The current, or last, name of a thread.
    pub fn name(&self, pid: i64) -> Option<&[u8]> {
        let live = self.threads.get(&pid).map(|l| &l.row.comm).filter(|n| !n.is_empty());
        live.or_else(|| self.recorder.get(&pid)).map(Vec::as_slice)
    }

    /// The current row of a thread.
    pub fn row(&self, pid: i64) -> Option<&Row> {
        self.threads.get(&pid).map(|l| &l.row)
    }

    /// The current rows of threads of which there may be events from this time on. The kernel's
    /// idle thread is none of them, nor one of which nothing but its end is known.
    pub fn since(&self, time_ns: u64) -> impl Iterator<Item = &Row> {
        let rows = self.threads.values().map(|live| &live.row);
        let is_known = |row: &&Row| row.pid != 0 && (row.tgid >= 0 || !row.comm.is_empty());
        rows.filter(is_known).filter(move |row| row.is_since(time_ns))
    }

    /// The threads that have names, for the log that comes next: the newest, if they are more than
    /// `most`. Those that ended before `since_ns` are forgotten.
    pub fn known(&mut self, since_ns: u64, most: usize) -> Vec<KnownThread> {
        self.threads.retain(|_, live| live.row.is_since(since_ns));
        let mut rows: Vec<&Row> = self.since(since_ns).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.from_ns), row.pid));
        rows.truncate(most);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let known = |row: &&Row| KnownThread {
            pid: row.pid,
            tgid: row.tgid,
            parent: row.parent,
            comm: text(&row.comm),
            command: text(&row.command),
        };
        rows.iter().map(known).collect()
    }

    /// All rows, by thread, then time. `end_ns` is the first moment after the log.
    pub fn into_rows(self, end_ns: u64) -> Vec<Row> {
        let mut rows: Vec<Row> = self.past.unwrap_or_default().into_rows().collect();
        rows.extend(
            self.threads.into_values().map(|l| Row { to_ns: end_ns.max(l.row.from_ns), ..l.row }),
        );
        rows.sort_by_key(|r| (r.pid, r.from_ns));
        rows
    }
}

/// Whether the table needs this event.
pub fn is_about_threads(layout: &EventLayout) -> bool {
    Builtin::of(layout).is_some_and(|kind| !kind.is_of_any_stream())
}

/// Names of the recorder's threads, for logs from before they contained them.
fn recorder(recorder: &preamble::Recorder) -> HashMap<i64, Vec<u8>> {
    let named = recorder.names.iter().map(Some).chain(std::iter::repeat(None));
    let name =
        |name: Option<&String>| name.map_or("(recorder)", String::as_str).as_bytes().to_vec();
    recorder.tids.iter().zip(named).map(|(tid, known)| (i64::from(*tid), name(known))).collect()
}

fn int(event: &EventRef, field: &str) -> i64 {
    event.get(field).and_then(Value::int).unwrap_or(-1)
}

fn text<'a>(event: &EventRef<'a>, field: &str) -> &'a [u8] {
    event.get(field).and_then(Value::text).unwrap_or_default()
}
