// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The process table: the name of each thread at each time.
//!
//! It is built from `PROCESS_EXISTS` (threads that existed when recording began) and from the
//! events of fork, exec, rename and exit, in the order of time. A thread keeps its last name after
//! its exit until its id is reused, because its last context switch comes after `PROCESS_EXIT`.
//! `PROCESS_SEEN` names threads out of scope: from the time that it says on; the first name also
//! before, as far as no other thread had the id.

use crate::builtin::Builtin;
use crate::event::{EventRef, Value};
use crate::merge::Selection;
use crate::origin::Origin;
use crate::preamble::{self, KnownThread, Preamble};
use crate::reader::Reader;
use std::collections::{HashMap, VecDeque};

/// One name of one thread. Times are full ns of the log clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Thread id.
    pub pid: i64,
    /// Process id; -1 if the log does not say.
    pub tgid: i64,
    /// The process, or thread, that created it; -1 if the log does not say.
    pub parent: i64,
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
}

/// A thread's current state.
struct Live {
    row: Row,
    /// Known from `PROCESS_EXISTS` at this time, and from no other event.
    existed: Option<u64>,
    /// Its name was set after its last fork or exec.
    renamed: bool,
}

/// The name of a thread out of scope.
struct Seen {
    since_ns: u64,
    pid: i64,
    tgid: i64,
    comm: Vec<u8>,
}

impl Seen {
    fn of(event: &EventRef) -> Seen {
        Seen {
            since_ns: event.get("since").and_then(Value::int).unwrap_or(0) as u64,
            pid: int(event, "pid"),
            tgid: int(event, "tgid"),
            comm: text(event, "comm"),
        }
    }
}

/// The table as of the last event that was noted.
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
    seen: VecDeque<Seen>,
    /// Rows that have ended, if they are kept.
    past: Option<Vec<Row>>,
    /// The recording runs: names of existing threads, and of those out of scope, come as events.
    live: bool,
}

impl Processes {
    /// A table for naming threads during one pass through a log.
    pub fn new(reader: &Reader) -> Processes {
        let mut table = Processes::of(reader.preamble(), reader.span().0);
        let mut merge = reader
            .merge(&Selection { origins: Some(vec![Origin::Recorder]), ..Selection::default() });
        let mut seen = Vec::new();
        while let Some(event) = merge.next() {
            match table.what[event.index] {
                Some(Builtin::Exists) => table.exists(&event),
                Some(Builtin::Seen) => seen.push(Seen::of(&event)),
                Some(_) | None => {}
            }
        }
        seen.sort_by_key(|one| one.since_ns);
        for one in &seen {
            if !table.threads.contains_key(&one.pid) {
                table.add(one.pid, one.tgid, -1, one.comm.clone(), Vec::new(), table.start_ns);
            }
        }
        table.seen = seen.into();
        table
    }

    /// A table for a recording that runs.
    pub fn live(preamble: &Preamble) -> Processes {
        Processes { live: true, ..Processes::of(preamble, preamble.clock.start_ns) }
    }

    fn of(preamble: &Preamble, start_ns: u64) -> Processes {
        let mut table = Processes {
            what: preamble.events.iter().map(Builtin::of).collect(),
            threads: HashMap::new(),
            recorder: recorder(&preamble.recorder),
            recorder_pid: i64::from(preamble.recorder.pid),
            start_ns,
            seen: VecDeque::new(),
            past: None,
            live: false,
        };
        table.add(0, 0, -1, b"idle".to_vec(), Vec::new(), start_ns);
        for known in preamble.segment.iter().flat_map(|segment| &segment.threads) {
            let (comm, command) = (known.comm.clone().into(), known.command.clone().into());
            table.add(known.pid, known.tgid, known.parent, comm, command, start_ns);
        }
        table
    }

    /// For events that were added to the preamble.
    pub fn extend(&mut self, preamble: &Preamble) {
        self.what = preamble.events.iter().map(Builtin::of).collect();
    }

    /// A table that also keeps past rows, for [`Processes::into_rows`].
    pub fn with_history(reader: &Reader) -> Processes {
        Processes { past: Some(Vec::new()), ..Processes::new(reader) }
    }

    /// Updates the table. Events must come in the order of time.
    #[inline]
    pub fn see(&mut self, event: &EventRef) {
        if self.seen.front().is_some_and(|one| one.since_ns <= event.time_ns) {
            self.apply_seen(event.time_ns);
        }
        match self.what[event.index] {
            Some(Builtin::Fork) => self.fork(event),
            Some(Builtin::Exec) => self.exec(event),
            Some(Builtin::Rename) => self.rename(event),
            Some(Builtin::Exit) => self.exit(event),
            Some(Builtin::Exists) if self.live => self.exists(event),
            Some(Builtin::Seen) if self.live => self.seen_late(Seen::of(event)),
            // PROCESS_EXISTS and PROCESS_SEEN were handled before all others, by `new`.
            Some(Builtin::Exists | Builtin::Seen | Builtin::Lost | Builtin::Mark) | None => {}
        }
    }

    /// A name of a thread out of scope, which comes after events that name the thread.
    fn seen_late(&mut self, one: Seen) {
        if self.threads.get(&one.pid).is_none_or(|live| live.row.from_ns < one.since_ns) {
            self.add(one.pid, one.tgid, -1, one.comm, Vec::new(), one.since_ns);
        }
    }

    /// A thread that no event has named, and that was found elsewhere.
    pub fn found(&mut self, pid: i64, tgid: i64, comm: Vec<u8>) {
        if !self.threads.contains_key(&pid) {
            self.add(pid, tgid, -1, comm, Vec::new(), self.start_ns);
        }
    }

    /// An id that belongs to another thread than the one that was found with it before.
    pub fn found_anew(&mut self, pid: i64, tgid: i64, comm: Vec<u8>, since_ns: u64) {
        self.add(pid, tgid, -1, comm, Vec::new(), since_ns);
    }

    /// Sets the names of threads out of scope that are due.
    fn apply_seen(&mut self, now: u64) {
        while self.seen.front().is_some_and(|one| one.since_ns <= now) {
            let Some(one) = self.seen.pop_front() else { return };
            let known = self.threads.get(&one.pid).map(|live| &live.row);
            if known.is_none_or(|row| row.comm != one.comm || row.exit_ns.is_some()) {
                self.add(one.pid, one.tgid, -1, one.comm, Vec::new(), one.since_ns);
            }
        }
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

    /// The threads that have names, for the log that comes next: the newest, if they are more than
    /// `most`. Those that ended before `since_ns` are forgotten.
    pub fn known(&mut self, since_ns: u64, most: usize) -> Vec<KnownThread> {
        self.threads.retain(|_, live| live.row.exit_ns.is_none_or(|at| at >= since_ns));
        let mut rows: Vec<&Row> =
            self.threads.values().map(|live| &live.row).filter(|row| row.pid != 0).collect();
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
    pub fn into_rows(mut self, end_ns: u64) -> Vec<Row> {
        let mut rows = self.past.take().unwrap_or_default();
        rows.extend(
            self.threads.into_values().map(|l| Row { to_ns: end_ns.max(l.row.from_ns), ..l.row }),
        );
        rows.sort_by_key(|r| (r.pid, r.from_ns));
        rows
    }

    fn add(
        &mut self,
        pid: i64,
        tgid: i64,
        parent: i64,
        comm: Vec<u8>,
        command: Vec<u8>,
        from_ns: u64,
    ) {
        let recorder = self.recorder.contains_key(&pid) || (tgid > 0 && tgid == self.recorder_pid);
        let row = Row {
            pid,
            tgid,
            parent,
            comm,
            command,
            from_ns,
            to_ns: from_ns,
            exit_ns: None,
            recorder,
        };
        if let Some(old) = self.threads.insert(pid, Live { row, existed: None, renamed: false }) {
            self.end(old, from_ns);
        }
    }

    fn end(&mut self, old: Live, at: u64) {
        // It was found at the start, but created after it: no such thread existed before.
        let never = old.existed.is_some_and(|seen| at < seen);
        if let Some(past) = self.past.as_mut().filter(|_| !never) {
            past.push(Row { to_ns: at.max(old.row.from_ns), ..old.row });
        }
    }

    fn exists(&mut self, event: &EventRef) {
        let pid = int(event, "pid");
        let (comm, command) = (text(event, "comm"), text(event, "command"));
        if pid == 0 {
            return;
        }
        self.add(pid, int(event, "tgid"), int(event, "ppid"), comm, command, self.start_ns);
        if let Some(live) = self.threads.get_mut(&pid) {
            live.existed = Some(event.time_ns);
        }
    }

    fn fork(&mut self, event: &EventRef) {
        let (parent, pid) = (int(event, "parent"), int(event, "pid"));
        let command = self.threads.get(&parent).map(|l| l.row.command.clone()).unwrap_or_default();
        let mut comm = text(event, "comm");
        if let Some(live) = self.threads.get(&parent).filter(|_| comm.is_empty()) {
            comm = live.row.comm.clone();
        }
        self.add(pid, int(event, "tgid"), parent, comm, command, event.time_ns);
    }

    fn exec(&mut self, event: &EventRef) {
        let (pid, old_pid, file) =
            (int(event, "pid"), int(event, "old_pid"), text(event, "filename"));
        if old_pid != pid
            && let Some(old) = self.threads.get_mut(&old_pid)
        {
            old.row.exit_ns = Some(event.time_ns);
        }
        let Some(live) = self.threads.get_mut(&pid) else {
            return self.add(pid, pid, -1, base_name(&file), file, event.time_ns);
        };
        live.existed = None;
        live.row.command = file;
        // The kernel renames a thread before it reports the exec; if that event is missing, the
        // file's name is used.
        if !std::mem::take(&mut live.renamed) {
            let comm = base_name(&live.row.command);
            self.set_name(pid, comm, event.time_ns);
        }
    }

    fn rename(&mut self, event: &EventRef) {
        let pid = int(event, "pid");
        self.set_name(pid, text(event, "comm"), event.time_ns);
        if let Some(live) = self.threads.get_mut(&pid) {
            live.renamed = true;
        }
    }

    fn exit(&mut self, event: &EventRef) {
        if let Some(live) = self.threads.get_mut(&int(event, "pid")) {
            live.row.exit_ns = Some(event.time_ns);
        }
    }

    fn set_name(&mut self, pid: i64, comm: Vec<u8>, at: u64) {
        let Some(live) = self.threads.get_mut(&pid) else {
            return self.add(pid, -1, -1, comm, Vec::new(), at);
        };
        if live.row.comm == comm {
            return;
        }
        let new = Row { comm, from_ns: at, exit_ns: None, ..live.row.clone() };
        let old = std::mem::replace(&mut live.row, new);
        // It existed before its first rename, whenever the recorder found it.
        live.existed = None;
        self.end(Live { row: old, existed: None, renamed: false }, at);
    }
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

fn text(event: &EventRef, field: &str) -> Vec<u8> {
    event.get(field).and_then(Value::text).unwrap_or_default().to_vec()
}

/// The name that the kernel gives to a thread which executes `file`: at most 15 bytes.
fn base_name(file: &[u8]) -> Vec<u8> {
    let name = file.rsplit(|b| *b == b'/').next().unwrap_or_default();
    name[..name.len().min(15)].to_vec()
}
