// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What events of the past said that still holds: the names of threads, and which events are on. A
//! snapshot begins with it.

use klogger_log::builtin::Builtin as Kind;
use klogger_log::event::{EventRef, Value};
use klogger_log::record::SizeTable;
use klogger_log::writer::EventBlock;
use klogger_ring::block::Builtin;
use klogger_schema::layout::EventLayout;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Threads that are remembered, at most.
const THREADS_MAX: usize = 1 << 16;
/// The last context switch of a thread comes after its exit.
const AFTER_EXIT_NS: u64 = 100_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Thread(Kind),
    /// LOGGING_EVENT
    State,
}

/// A thread in scope, or one that was only named.
#[derive(Clone)]
struct Thread {
    /// Since when it has been so.
    since_ns: u64,
    tgid: i64,
    parent: i64,
    prio: i64,
    policy: i64,
    comm: Vec<u8>,
    command: Vec<u8>,
    exit_ns: Option<u64>,
    /// It is out of scope.
    seen: bool,
}

/// What is known at some time.
#[derive(Clone)]
pub struct Known {
    layouts: Arc<Vec<EventLayout>>,
    sizes: Arc<SizeTable>,
    /// By id, what is of interest, and which of `layouts` it is.
    what: Arc<Vec<Option<(What, usize)>>>,
    threads: HashMap<i64, Thread>,
    /// By id of an event, since when it is so.
    states: BTreeMap<i64, (u64, bool)>,
    last_ns: u64,
}

impl Known {
    pub fn new(events: &[EventLayout]) -> Known {
        let mut known = Known {
            layouts: Arc::default(),
            sizes: Arc::default(),
            what: Arc::default(),
            threads: HashMap::new(),
            states: BTreeMap::new(),
            last_ns: 0,
        };
        known.learn(events);
        known
    }

    pub fn learn(&mut self, events: &[EventLayout]) {
        let layouts = Arc::make_mut(&mut self.layouts);
        let what = Arc::make_mut(&mut self.what);
        for event in events {
            let kind = match (event.name.as_str(), Kind::of(event)) {
                ("LOGGING_EVENT", _) => Some(What::State),
                (_, Some(Kind::Lost | Kind::Mark) | None) => None,
                (_, Some(kind)) => Some(What::Thread(kind)),
            };
            let id = usize::from(event.id);
            what.resize(what.len().max(id + 1), None);
            what[id] = kind.map(|kind| (kind, layouts.len()));
            layouts.push(event.clone());
        }
        Arc::make_mut(&mut self.sizes).add(events);
    }

    /// Notes what the events of a block say; with a span of time, inclusive: those before it. Names
    /// of threads out of scope come later than the events that need them, so those that come after
    /// the span are noted as well.
    pub fn see(&mut self, block: &EventBlock, span: Option<(u64, u64)>) {
        let (layouts, what, sizes) = (self.layouts.clone(), self.what.clone(), self.sizes.clone());
        for record in sizes.records(block.records) {
            let Some(Some((what, index))) = what.get(usize::from(record.id())) else { continue };
            let time_ns = record.time(block.time_base);
            let event = EventRef {
                layout: &layouts[*index],
                index: *index,
                time_ns,
                origin: block.origin,
                serial: 0,
                bytes: record.bytes,
            };
            let is_seen = *what == What::Thread(Kind::Seen);
            let counts = |(from, to): (u64, u64)| {
                let of_span = || int(&event, "since") as u64 <= to;
                time_ns < from || (is_seen && time_ns > to && of_span())
            };
            if span.is_none_or(counts) {
                self.note(*what, &event);
            }
        }
    }

    fn note(&mut self, what: What, event: &EventRef) {
        let at = event.time_ns;
        self.last_ns = self.last_ns.max(at);
        match what {
            What::State => {
                let state = self.states.entry(int(event, "id")).or_insert((0, true));
                if state.0 <= at {
                    *state = (at, int(event, "state") != 0);
                }
            }
            What::Thread(Kind::Seen) => {
                let since = int(event, "since") as u64;
                self.put(event, Thread { seen: true, ..Thread::of(event, since) });
            }
            What::Thread(Kind::Exists) => self.put(event, Thread::of(event, at)),
            What::Thread(Kind::Fork) => {
                let parent = self.threads.get(&int(event, "parent")).cloned();
                let thread = Thread::of(event, at);
                let parent_of = |p: Thread| Thread {
                    prio: p.prio,
                    policy: p.policy,
                    command: p.command,
                    ..thread.clone()
                };
                let forked = parent.map_or_else(|| thread.clone(), parent_of);
                self.put(event, Thread { parent: int(event, "parent"), ..forked });
            }
            What::Thread(Kind::Exec) => {
                let thread = self.thread(event);
                thread.command = text(event, "filename");
                thread.exit_ns = None;
            }
            What::Thread(Kind::Rename) => {
                let (comm, thread) = (text(event, "comm"), self.thread(event));
                // Events of several CPUs do not come in the order of time.
                if thread.since_ns <= at {
                    (thread.since_ns, thread.comm) = (at, comm);
                }
            }
            What::Thread(Kind::Exit) => self.thread(event).exit_ns = Some(at),
            What::Thread(Kind::Lost | Kind::Mark) => {}
        }
    }

    /// The thread that the event is about, which may be new.
    fn thread(&mut self, event: &EventRef) -> &mut Thread {
        self.make_room();
        self.threads.entry(int(event, "pid")).or_insert_with(|| Thread {
            since_ns: 0,
            tgid: -1,
            parent: -1,
            prio: 0,
            policy: 0,
            comm: Vec::new(),
            command: Vec::new(),
            exit_ns: None,
            seen: false,
        })
    }

    fn put(&mut self, event: &EventRef, thread: Thread) {
        self.make_room();
        let old = self.threads.entry(int(event, "pid"));
        let old = old.and_modify(|old| {
            if old.since_ns <= thread.since_ns {
                *old = thread.clone();
            } else if old.tgid < 0 {
                (old.tgid, old.parent) = (thread.tgid, thread.parent);
            }
        });
        old.or_insert(thread);
    }

    /// Forgets threads that have ended, and the oldest if there are too many.
    fn make_room(&mut self) {
        if self.threads.len() < THREADS_MAX {
            return;
        }
        let ended = self.last_ns.saturating_sub(AFTER_EXIT_NS);
        self.threads.retain(|_, thread| thread.exit_ns.is_none_or(|exit| exit > ended));
        if self.threads.len() < THREADS_MAX * 7 / 8 {
            return;
        }
        let mut ages: Vec<u64> = self.threads.values().map(|thread| thread.since_ns).collect();
        let (_, oldest, _) = ages.select_nth_unstable(THREADS_MAX / 4);
        let oldest = *oldest;
        self.threads.retain(|_, thread| thread.since_ns > oldest);
    }

    /// Events that say all this, as of `at_ns`. Returns how many they are.
    pub fn events(&self, builtin: &Builtin, at_ns: u64, out: &mut Vec<u8>) -> u64 {
        let mut count = 0;
        for layout in self.layouts.iter() {
            let on = self.states.get(&i64::from(layout.id)).is_none_or(|state| state.1);
            builtin.state(layout, on).finish(at_ns, out);
            count += 1;
        }
        let ended = at_ns.saturating_sub(AFTER_EXIT_NS);
        for (pid, thread) in &self.threads {
            if thread.exit_ns.is_some_and(|exit| exit < ended) || thread.comm.is_empty() {
                continue;
            }
            thread.event(*pid, builtin, at_ns, out);
            count += 1;
        }
        count
    }
}

impl Thread {
    fn of(event: &EventRef, since_ns: u64) -> Thread {
        Thread {
            since_ns,
            tgid: int(event, "tgid"),
            parent: int(event, "ppid"),
            prio: int(event, "prio").max(0),
            policy: int(event, "policy").max(0),
            comm: text(event, "comm"),
            command: text(event, "command"),
            exit_ns: None,
            seen: false,
        }
    }

    fn event(&self, pid: i64, builtin: &Builtin, at_ns: u64, out: &mut Vec<u8>) {
        if self.seen {
            let seen = builtin.event("PROCESS_SEEN").int("pid", pid).int("tgid", self.tgid);
            let seen = seen.int("since", self.since_ns as i64).text("comm", &self.comm);
            return seen.finish(at_ns, out);
        }
        let exists = builtin.event("PROCESS_EXISTS").int("pid", pid).int("tgid", self.tgid);
        let exists = exists.int("ppid", self.parent).int("prio", self.prio);
        let exists = exists.int("policy", self.policy).text("comm", &self.comm);
        exists.text("command", &self.command).finish(at_ns, out);
    }
}

fn int(event: &EventRef, field: &str) -> i64 {
    event.get(field).and_then(Value::int).unwrap_or(-1)
}

fn text(event: &EventRef, field: &str) -> Vec<u8> {
    event.get(field).and_then(Value::text).unwrap_or_default().to_vec()
}
