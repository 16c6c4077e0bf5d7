// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What events say of threads.

use super::{AFTER_EXIT_NS, Fed, Live, Processes, Row, THREADS_MAX, int, text};
use crate::builtin::Builtin;
use crate::event::EventRef;

impl Live {
    /// A thread that an event of this time has told, with its name.
    fn new(row: Row, at_ns: u64) -> Live {
        let [born_ns, named_ns, command_ns] = [at_ns; 3];
        Live { row, existed: None, renamed: false, born_ns, named_ns, command_ns }
    }
}

impl Processes {
    /// Updates the table.
    #[inline]
    pub fn apply(&mut self, event: &EventRef) {
        if self.seen.front().is_some_and(|row| row.from_ns <= event.time_ns) {
            self.apply_seen(event.time_ns);
        }
        if let Some(kind) = self.what[event.index] {
            self.apply_kind(kind, event);
        }
    }

    fn apply_kind(&mut self, kind: Builtin, event: &EventRef) {
        self.newest_ns = self.newest_ns.max(event.time_ns);
        match kind {
            Builtin::Fork => self.fork(event),
            Builtin::Exec => self.exec(event),
            Builtin::Rename => self.rename(event),
            Builtin::Exit => self.set_exit(int(event, "pid"), event.time_ns),
            // `new` has handled these before all others.
            Builtin::Exists | Builtin::Seen if self.fed == Fed::InOrder => {}
            Builtin::Exists => self.exists(event),
            Builtin::Seen => {
                let row = Row::seen(event);
                let since_ns = row.from_ns;
                self.begin(Live::new(row, since_ns), since_ns);
            }
            Builtin::Lost | Builtin::Mark => {}
        }
    }

    /// Sets the names of threads out of scope that are due.
    fn apply_seen(&mut self, now: u64) {
        while self.seen.front().is_some_and(|row| row.from_ns <= now) {
            let Some(row) = self.seen.pop_front() else { return };
            let known = self.threads.get(&row.pid).map(|live| &live.row);
            if known.is_none_or(|known| known.comm != row.comm || known.exit_ns.is_some()) {
                self.add(row);
            }
        }
    }

    /// A thread that no event of its own has told. What events say of it counts, whenever that was.
    pub(super) fn add(&mut self, row: Row) {
        self.put(Live::new(row, 0));
    }

    /// A thread of which an event of this time has told that it has this id.
    fn begin(&mut self, new: Live, at_ns: u64) {
        let Some(old) = self.threads.get_mut(&new.row.pid) else { return self.put(new) };
        if at_ns < old.born_ns {
            return;
        }
        // Its end may have come already.
        let exit_ns = old.row.exit_ns.filter(|exit_ns| *exit_ns > at_ns);
        if at_ns >= old.named_ns {
            return self.put(Live { row: Row { exit_ns, ..new.row }, ..new });
        }
        // As may a newer name.
        (old.born_ns, old.row.exit_ns) = (new.born_ns, exit_ns);
        let (known, told) = (&mut old.row, new.row);
        if told.tgid >= 0 {
            known.tgid = told.tgid;
        }
        if told.parent >= 0 {
            (known.parent, known.prio, known.policy) = (told.parent, told.prio, told.policy);
        }
        // The name may be the only thing that is newer.
        if old.command_ns <= at_ns {
            (known.command, old.command_ns) = (told.command, at_ns);
        }
        known.seen = told.seen;
    }

    /// The thread takes the place of another one with its id.
    fn put(&mut self, mut new: Live) {
        self.make_room();
        let Row { pid, tgid, from_ns, .. } = new.row;
        new.row.recorder =
            self.recorder.contains_key(&pid) || (tgid > 0 && tgid == self.recorder_pid);
        if let Some(old) = self.threads.insert(pid, new) {
            self.end(old.row, old.existed, from_ns);
        }
    }

    fn end(&mut self, old: Row, existed: Option<u64>, at: u64) {
        // It was found at the start, but created after it: no such thread existed before.
        let never = existed.is_some_and(|seen| at < seen);
        if let Some(past) = self.past.as_mut().filter(|_| !never) {
            past.push(Row { to_ns: at.max(old.from_ns), ..old });
        }
    }

    /// Forgets threads that have ended, and the oldest if there are too many.
    fn make_room(&mut self) {
        if self.fed != Fed::Blocks || self.threads.len() < THREADS_MAX {
            return;
        }
        let ended_ns = self.newest_ns.saturating_sub(AFTER_EXIT_NS);
        self.threads.retain(|_, live| live.row.is_since(ended_ns));
        if self.threads.len() < THREADS_MAX * 7 / 8 {
            return;
        }
        let mut ages: Vec<u64> = self.threads.values().map(|live| live.named_ns).collect();
        let (_, oldest, _) = ages.select_nth_unstable(THREADS_MAX / 4);
        let oldest = *oldest;
        self.threads.retain(|_, live| live.named_ns > oldest);
    }

    pub(super) fn exists(&mut self, event: &EventRef) {
        let row = Row::told(event, self.start_ns);
        if row.pid == 0 {
            return;
        }
        let existed = Some(event.time_ns);
        if self.fed == Fed::InOrder {
            return self.put(Live { existed, ..Live::new(row, 0) });
        }
        // It was there before it was found.
        let new = Live { existed, born_ns: 0, ..Live::new(row, event.time_ns) };
        self.begin(new, event.time_ns);
    }

    fn fork(&mut self, event: &EventRef) {
        let (parent, at_ns) = (int(event, "parent"), event.time_ns);
        let mut row = Row::new(int(event, "pid"), text(event, "comm").to_vec(), at_ns);
        (row.tgid, row.parent) = (int(event, "tgid"), parent);
        if let Some(Live { row: of, .. }) = self.threads.get(&parent) {
            (row.prio, row.policy) = (of.prio, of.policy);
            row.command.clone_from(&of.command);
            if row.comm.is_empty() {
                row.comm.clone_from(&of.comm);
            }
        }
        self.begin(Live::new(row, at_ns), at_ns);
    }

    fn exec(&mut self, event: &EventRef) {
        let (pid, at_ns, file) = (int(event, "pid"), event.time_ns, text(event, "filename"));
        let old_pid = int(event, "old_pid");
        if old_pid != pid {
            self.set_exit(old_pid, at_ns);
        }
        let Some(live) = self.threads.get_mut(&pid) else {
            let row = Row::new(pid, base_name(file).to_vec(), at_ns);
            let new = Live::new(Row { tgid: pid, command: file.to_vec(), ..row }, at_ns);
            return self.put(Live { born_ns: 0, ..new });
        };
        if at_ns < live.born_ns {
            return;
        }
        live.existed = None;
        // If another thread executes a program, that of the process has ended before.
        live.row.exit_ns = live.row.exit_ns.filter(|exit_ns| *exit_ns > at_ns);
        if at_ns >= live.command_ns {
            (live.row.command, live.command_ns) = (file.to_vec(), at_ns);
        }
        if live.row.tgid < 0 {
            live.row.tgid = pid;
        }
        // The kernel renames a thread before it reports the exec; if that event is missing, the
        // file's name is used.
        if !std::mem::take(&mut live.renamed) {
            self.set_name(pid, base_name(file), at_ns, false);
        }
    }

    fn rename(&mut self, event: &EventRef) {
        self.set_name(int(event, "pid"), text(event, "comm"), event.time_ns, true);
    }

    fn set_exit(&mut self, pid: i64, at_ns: u64) {
        match self.threads.get_mut(&pid) {
            // One before its name is of a thread that had the id before; but a thread that ends may
            // have been listed afterwards.
            Some(live) if at_ns < live.named_ns && live.existed.is_none() => {}
            Some(live) if at_ns >= live.born_ns => {
                live.row.exit_ns = live.row.exit_ns.max(Some(at_ns));
            }
            // Its other events may come in another block.
            None if self.fed == Fed::Blocks => {
                let row = Row::new(pid, Vec::new(), 0);
                self.add(Row { exit_ns: Some(at_ns), ..row });
            }
            Some(_) | None => {}
        }
    }

    /// `renamed`: there is an event of that alone.
    fn set_name(&mut self, pid: i64, comm: &[u8], at_ns: u64, renamed: bool) {
        let Some(live) = self.threads.get_mut(&pid) else {
            let new = Live::new(Row::new(pid, comm.to_vec(), at_ns), at_ns);
            return self.put(Live { renamed, born_ns: 0, command_ns: 0, ..new });
        };
        if at_ns < live.named_ns {
            return;
        }
        (live.named_ns, live.renamed) = (at_ns, renamed);
        if live.row.comm == comm {
            return;
        }
        let old = self.past.is_some().then(|| live.row.clone());
        let row = &mut live.row;
        row.comm.clear();
        row.comm.extend_from_slice(comm);
        (row.from_ns, row.to_ns) = (at_ns, at_ns);
        row.exit_ns = row.exit_ns.filter(|exit_ns| *exit_ns > at_ns);
        // It existed before its first rename, whenever the recorder found it.
        live.existed = None;
        if let Some(old) = old {
            self.end(old, None, at_ns);
        }
    }
}

/// The name that the kernel gives to a thread which executes `file`: at most 15 bytes.
fn base_name(file: &[u8]) -> &[u8] {
    let name = file.rsplit(|b| *b == b'/').next().unwrap_or_default();
    &name[..name.len().min(15)]
}
