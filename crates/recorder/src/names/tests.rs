// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tests of `names.rs`.

use super::*;
use klogger_log::builder::RecordBuilder;
use klogger_log::record::SizeTable;
use klogger_os::Mapping;
use klogger_toolchain::bundled;
use std::sync::Arc;

struct Story {
    builtin: Builtin,
    sizes: SizeTable,
    names: ThreadNames,
    scope: Scope,
    records: Vec<u8>,
}

impl Story {
    fn new() -> Story {
        let schema = bundled::builtin().unwrap().schema;
        let layout = |(n, e)| EventLayout::new(&schema.name, e, 1 + n as u16);
        let events: Vec<_> = schema.events.iter().enumerate().map(layout).collect();
        let scope = Scope::new(Mapping::own(SCOPE_BYTES).unwrap());
        let names = ThreadNames::new(&events, scope.clone(), None, &[4_000_001]);
        let (sizes, records) = (SizeTable::new(&events), Vec::new());
        Story { builtin: Builtin(Arc::new(events)), sizes, names, scope, records }
    }

    fn log(&mut self, at: u64, event: impl Fn(&Builtin) -> RecordBuilder<'_>) {
        event(&self.builtin).finish(at, &mut self.records);
    }

    /// All that was logged comes.
    fn come(&mut self) {
        self.names.see(self.sizes.records(&std::mem::take(&mut self.records)), 0);
    }

    /// (thread, name, since), of a look-up after all that was logged.
    fn seen(&mut self, last: bool) -> Vec<(u32, Vec<u8>, u64)> {
        self.come();
        self.names.looked = Instant::now() - PAUSE;
        let mut out = Vec::new();
        self.names.look_up(&self.builtin, last, &mut out);
        let size = self.sizes.size(&out).unwrap_or(1);
        let layout = self.builtin.0.iter().find(|e| e.name == "PROCESS_SEEN").unwrap();
        let at =
            |name: &str| layout.fields.iter().find(|f| f.name == name).unwrap().offset as usize;
        let row = |record: &[u8]| {
            let comm = record[at("comm")..][..16].to_vec();
            let since = record[at("since")..].first_chunk().unwrap();
            let comm = comm.into_iter().take_while(|c| *c != 0).collect();
            (id_at(record, at("pid")), comm, u64::from_le_bytes(*since))
        };
        out.chunks(size).map(row).collect()
    }
}

fn now() -> u64 {
    clocks::read().monotonic
}

#[test]
fn a_thread_that_exists_is_named_once() {
    let (mut story, me, time) = (Story::new(), std::process::id(), now());
    let name = processes::name_of(me).unwrap();
    for n in 0..3 {
        story.log(time + n, |b| {
            b.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", me.into())
        });
    }
    assert_eq!(story.seen(false), [(me, name, time)]);
    assert_eq!((story.seen(true), story.names.unnamed()), (vec![], 0));
}

#[test]
fn an_id_that_was_reused_since_has_another_name() {
    // This process started after that event.
    let (mut story, me) = (Story::new(), std::process::id());
    story.log(1, |b| b.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", me.into()));
    assert_eq!((story.seen(false), story.names.unnamed()), (vec![], 0));
    assert_eq!((story.seen(true), story.names.unnamed()), (vec![], 1));
}

#[test]
fn threads_in_scope_and_those_of_the_recorder_are_left_out() {
    let (mut story, me, time) = (Story::new(), std::process::id(), now());
    story.scope.add(me);
    for parent in [i64::from(me), 4_000_001, 4_000_003, 0, -1, 1 << 22] {
        story.log(time, |b| b.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", parent));
    }
    assert_eq!((story.seen(true), story.names.unnamed()), (vec![], 0));
}

#[test]
fn a_name_that_a_thread_has_left() {
    let mut story = Story::new();
    let left = |start_ns, until_ns, comm: &[u8]| LeftName {
        tid: 4_000_005,
        tgid: 4_000_005,
        comm: comm.to_vec(),
        start_ns,
        until_ns,
        ended: comm != b"first",
    };
    for name in [left(100, 200, b"first"), left(100, 300, b"second"), left(400, 500, b"new")] {
        story.names.kept.push(row(name));
    }
    let expected = [
        (150, vec![("first", 150), ("second", 200)]),
        (250, vec![("second", 200)]),
        // After its end it keeps its name until the id is used again.
        (350, vec![("second", 300)]),
        (450, vec![("new", 300)]),
    ];
    for (time, names) in expected {
        story.names.ids.known.set(4_000_005, false);
        story.log(time, |b| b.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", 4_000_005));
        let row = |(name, since): &(&str, u64)| (4_000_005, name.as_bytes().to_vec(), *since);
        assert_eq!(story.seen(true), names.iter().map(row).collect::<Vec<_>>());
    }
    story.names.ids.known.set(4_000_005, false);
    story.log(50, |b| b.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", 4_000_005));
    assert_eq!((story.seen(true), story.names.unnamed()), (vec![], 1));
}

#[test]
fn ids_beyond_the_limit_are_counted() {
    let mut story = Story::new();
    for n in 0..WAITING_MAX as i64 + 7 {
        story.log(1, |b| b.event("PROCESS_FORK").int("pid", 1).int("parent", 3_000_000 + n));
    }
    story.come();
    assert_eq!(story.names.unnamed(), 7);
    assert_eq!((story.seen(true), story.names.unnamed()), (vec![], WAITING_MAX as u64 + 7));
}
