// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of threads of a recording that runs, whose events come block by block.

mod common;

use common::{START, cpu, preamble, record};
use klogger_log::event::Layouts;
use klogger_log::names::{Processes, Row, is_about_threads};
use klogger_log::preamble::Preamble;
use klogger_log::record::SizeTable;

struct Story {
    preamble: Preamble,
    layouts: Layouts,
    sizes: SizeTable,
}

impl Story {
    fn new() -> Story {
        let (preamble, mut layouts) = (preamble(), Layouts::default());
        layouts.add(&preamble.events, is_about_threads);
        let sizes = SizeTable::new(&preamble.events);
        Story { preamble, layouts, sizes }
    }

    fn apply(&self, table: &mut Processes, records: &[u8]) {
        let event = |record| self.layouts.event(&record, cpu(0), START);
        self.sizes.records(records).filter_map(event).for_each(|event| table.apply(&event));
    }

    fn exists(&self, pid: i64, comm: &str, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let exists = record(&self.preamble, "PROCESS_EXISTS").int("pid", pid).int("tgid", pid);
        let exists = exists.int("ppid", 1).text("comm", comm.as_bytes());
        exists.text("command", comm.as_bytes()).finish(START + at, &mut out);
        out
    }

    fn fork(&self, parent: i64, pid: i64, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let fork = record(&self.preamble, "PROCESS_FORK").int("parent", parent).int("pid", pid);
        fork.int("tgid", pid).text("comm", b"shell").finish(START + at, &mut out);
        out
    }

    /// Of thread `of`, which then has the id `pid`.
    fn exec(&self, of: i64, pid: i64, comm: &str, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let rename = record(&self.preamble, "PROCESS_RENAME").int("pid", pid);
        rename.text("comm", comm.as_bytes()).finish(START + at, &mut out);
        let exec = record(&self.preamble, "PROCESS_EXEC").int("pid", pid).int("old_pid", of);
        let filename = format!("/bin/{comm}");
        exec.text("filename", filename.as_bytes()).finish(START + at + 1, &mut out);
        out
    }

    fn rename(&self, pid: i64, comm: &str, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let rename = record(&self.preamble, "PROCESS_RENAME").int("pid", pid);
        rename.text("comm", comm.as_bytes()).finish(START + at, &mut out);
        out
    }

    fn exit(&self, pid: i64, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        record(&self.preamble, "PROCESS_EXIT").int("pid", pid).finish(START + at, &mut out);
        out
    }
}

/// All orders of a list.
fn orders<T: Clone>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let first = |n: usize| {
        let mut rest = of.to_vec();
        let first = rest.remove(n);
        orders(&rest).into_iter().map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..of.len()).flat_map(first).collect()
}

/// In all orders, with the thread that had the id before and without it.
fn check_orders(story: &Story, blocks: &[Vec<u8>], expected: &Row) {
    for before in [Vec::new(), story.exists(20, "old", 2)] {
        for order in orders(blocks) {
            let mut table = Processes::of_blocks(&story.preamble);
            story.apply(&mut table, &before);
            order.iter().for_each(|block| story.apply(&mut table, block));
            assert_eq!(table.row(20), Some(expected), "{order:?}");
        }
    }
}

#[test]
fn the_order_of_blocks_changes_nothing() {
    let story = Story::new();
    let (first, second) = (story.exec(20, 20, "sh", 20), story.exec(20, 20, "cc1", 25));
    // The end of the thread that had the id before, and all of the next one.
    let blocks = [story.exit(20, 5), story.fork(10, 20, 10), first, second, story.exit(20, 30)];
    let expected = Row {
        tgid: 20,
        parent: 10,
        command: b"/bin/cc1".to_vec(),
        from_ns: START + 25,
        to_ns: START + 25,
        exit_ns: Some(START + 30),
        ..Row::new(20, b"cc1".to_vec(), START + 25)
    };
    check_orders(&story, &blocks, &expected);
}

#[test]
fn a_thread_has_nothing_of_the_one_with_its_id_before() {
    let story = Story::new();
    let blocks = [story.exit(20, 5), story.fork(10, 20, 10), story.rename(20, "worker", 20)];
    let (from_ns, to_ns) = (START + 20, START + 20);
    let expected =
        Row { tgid: 20, parent: 10, from_ns, to_ns, ..Row::new(20, b"worker".to_vec(), from_ns) };
    check_orders(&story, &blocks, &expected);
    // Also if its beginning was lost.
    let mut table = Processes::of_blocks(&story.preamble);
    let blocks = [story.rename(20, "worker", 20), story.exit(20, 5)];
    blocks.iter().for_each(|block| story.apply(&mut table, block));
    assert_eq!(table.row(20).unwrap().exit_ns, None);
}

#[test]
fn threads_since_a_time() {
    let story = Story::new();
    let mut table = Processes::of_blocks(&story.preamble);
    let blocks = [story.exists(10, "shell", 1), story.fork(10, 20, 10), story.exit(20, 30)];
    // Of another thread only the end is known.
    blocks.iter().chain([&story.exit(77, 31)]).for_each(|block| story.apply(&mut table, block));
    let since = |at: u64| {
        let mut pids: Vec<i64> = table.since(START + at).map(|row| row.pid).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!([since(30), since(31)], [vec![10, 20], vec![10]]);
}

/// The first thread of a process has ended when another one executes a program in its place.
#[test]
fn a_process_goes_on_if_another_thread_executes_a_program() {
    let story = Story::new();
    let (live, blocks) = (Processes::live(&story.preamble), Processes::of_blocks(&story.preamble));
    // A segment may begin before that comes: the first thread is forgotten then.
    for (mut table, begins) in [(live, false), (blocks.clone(), false), (blocks, true)] {
        let blocks = [story.exists(10, "server", 1), story.fork(10, 11, 5), story.exit(10, 20)];
        blocks.iter().for_each(|block| story.apply(&mut table, block));
        if begins {
            table.known(START + 25, 9);
        }
        story.apply(&mut table, &story.exec(11, 10, "server", 30));
        let exits = [10, 11].map(|pid| table.row(pid).unwrap().exit_ns);
        assert_eq!(exits, [None, Some(START + 31)]);
        let known = table.known(START + 40, 9);
        let known: Vec<_> = known.iter().map(|k| (k.pid, k.tgid, k.comm.as_str())).collect();
        assert_eq!(known, [(10, 10, "server")]);
    }
}

#[test]
fn a_thread_whose_end_comes_first_has_ended() {
    let story = Story::new();
    for end in [story.exec(20, 10, "x", 30), story.exit(20, 31)] {
        let mut table = Processes::of_blocks(&story.preamble);
        [end, story.fork(10, 20, 10)].iter().for_each(|block| story.apply(&mut table, block));
        assert_eq!(table.row(20).unwrap().exit_ns, Some(START + 31));
    }
}

#[test]
fn memory_is_bounded() {
    let story = Story::new();
    let (most, mut table) = (1 << 16, Processes::of_blocks(&story.preamble));
    let count = |table: &Processes| table.since(0).count();
    for pid in 1..most {
        let at = pid as u64;
        story.apply(&mut table, &story.fork(0, pid, at));
        if pid % 2 == 0 {
            story.apply(&mut table, &story.exit(pid, at));
        }
    }
    assert_eq!(count(&table) as i64, most - 1);
    // Those that have ended make room ...
    let later = 1_000_000_000;
    let fork = |table: &mut Processes, pid: i64, at: u64| {
        story.apply(table, &story.fork(0, pid, later + at));
    };
    fork(&mut table, most, 0);
    fork(&mut table, most + 1, 1);
    assert_eq!(count(&table) as i64, most / 2 + 2);
    assert!(table.row(1).is_some() && table.row(2).is_none());
    // ... or else the oldest.
    (2..most).for_each(|n| fork(&mut table, most + n, n as u64));
    assert!(count(&table) as i64 <= most && table.row(1).is_none());
    assert_eq!(table.row(2 * most - 1).map(|row| row.pid), Some(2 * most - 1));
}
