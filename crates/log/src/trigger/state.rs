// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is remembered of a pattern, and when it fires. Events come in the order of time.

use super::Pattern;
use crate::event::EventRef;
use crate::origin::Origin;
use crate::rules::key::Key;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// How much is remembered of each pattern.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values of the key at a time, or events that wait for another one.
    pub keys: usize,
    /// Bytes of events that a command may be given.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { keys: 64 << 10, bytes: 4 << 20 }
    }
}

/// Which event of a pattern an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// What may end something is looked at before what begins something.
    Second,
    First,
}

/// An event that may fire a trigger later.
#[derive(Clone, Debug)]
pub struct Stash {
    pub id: u16,
    pub origin: Option<Origin>,
    /// Empty if it is not needed, or if there was no room for it.
    pub bytes: Vec<u8>,
}

/// Is told when a pattern fires: the time, and the event.
pub type Fire<'a> = &'a mut dyn FnMut(u64, &Stash);

/// A pattern, and what it remembers.
pub struct State {
    form: Form,
    within_ns: u64,
    limits: Limits,
    /// Whether the bytes of events are kept.
    keeps: bool,
    /// Bytes that are kept.
    bytes: usize,
    /// What did not fit.
    pub forgotten: u64,
}

enum Form {
    Event,
    /// When the first event was last, by key.
    Sequence(HashMap<Key, u64>),
    Unanswered(Open),
    Silence(Quiet),
}

/// First events whose time is not over, in the order of time.
#[derive(Default)]
struct Open {
    waiting: VecDeque<Waiting>,
    /// By key: how many wait, and the number of the last event that answers them.
    answered: HashMap<Key, (usize, u64)>,
    /// Counts events.
    now: u64,
}

struct Waiting {
    time: u64,
    key: Key,
    /// Its number.
    at: u64,
    stash: Stash,
}

/// The last event of each key, until it has been silent for too long.
#[derive(Default)]
struct Quiet {
    last: HashMap<Key, (u64, Stash)>,
    /// When to look at a key. Each key of `last` is there once.
    due: BinaryHeap<Reverse<(u64, Key)>>,
}

impl State {
    /// `keeps`: the events are needed as they were. `start_ns`: from when on a silence counts, and
    /// `id`: the event that it is about.
    pub fn new(pattern: &Pattern, keeps: bool, limits: Limits, start_ns: u64, id: u16) -> State {
        let (form, within_ns) = match pattern {
            Pattern::Event(_) => (Form::Event, 0),
            Pattern::Sequence { within_ns, .. } => (Form::Sequence(HashMap::new()), *within_ns),
            Pattern::Unanswered { within_ns, .. } => {
                (Form::Unanswered(Open::default()), *within_ns)
            }
            Pattern::Silence { within_ns, by, .. } => {
                let mut quiet = Quiet::default();
                if by.is_none() {
                    let none = Stash { id, origin: None, bytes: Vec::new() };
                    quiet.due.push(Reverse((start_ns.saturating_add(*within_ns), Key::NONE)));
                    quiet.last.insert(Key::NONE, (start_ns, none));
                }
                (Form::Silence(quiet), *within_ns)
            }
        };
        State { form, within_ns, limits, keeps, bytes: 0, forgotten: 0 }
    }

    /// The next event, after [`State::expire`] up to its time.
    pub fn see(&mut self, role: Role, key: Key, event: &EventRef, fire: Fire) {
        let time = event.time_ns;
        match (&mut self.form, role) {
            (Form::Event, _) => fire(time, &stash(event, self.keeps)),
            (Form::Sequence(last), Role::Second) => {
                let within = |first: &u64| time.saturating_sub(*first) <= self.within_ns;
                if last.get(&key).is_some_and(within) {
                    fire(time, &stash(event, self.keeps));
                }
            }
            (Form::Sequence(_), Role::First) => self.begin(key, time),
            (Form::Unanswered(open), Role::Second) => {
                open.now += 1;
                if let Some((_, answered)) = open.answered.get_mut(&key) {
                    *answered = open.now;
                }
            }
            (Form::Unanswered(_), Role::First) => self.wait(key, event),
            (Form::Silence(_), _) => self.hear(key, event),
        }
    }

    /// Fires what is over before this time: all events before it have come.
    pub fn expire(&mut self, before_ns: u64, fire: Fire) {
        match &mut self.form {
            Form::Event | Form::Sequence(_) => {}
            Form::Unanswered(open) => {
                while let Some(first) = open.waiting.front() {
                    let deadline = first.time.saturating_add(self.within_ns);
                    if deadline >= before_ns {
                        return;
                    }
                    if let Some((waiting, answered)) = open.pop() {
                        self.bytes -= waiting.stash.bytes.len();
                        if !answered {
                            fire(deadline, &waiting.stash);
                        }
                    }
                }
            }
            Form::Silence(quiet) => {
                while let Some(Reverse((due, _))) = quiet.due.peek()
                    && *due < before_ns
                {
                    let freed = quiet.look(self.within_ns, fire);
                    self.bytes -= freed;
                }
            }
        }
    }

    /// The first event of a sequence.
    fn begin(&mut self, key: Key, time: u64) {
        let Form::Sequence(last) = &mut self.form else { return };
        if last.len() >= self.limits.keys && !last.contains_key(&key) {
            last.retain(|_, first| time.saturating_sub(*first) <= self.within_ns);
            // Room for many, so that this is rare.
            if last.len() > self.limits.keys / 2 {
                self.forgotten += keep_newest(last, self.limits.keys / 2, |first| *first);
            }
        }
        last.insert(key, time);
    }

    /// An event that another one has to follow.
    fn wait(&mut self, key: Key, event: &EventRef) {
        let stash = self.stash(event);
        let Form::Unanswered(open) = &mut self.form else { return };
        open.now += 1;
        if open.waiting.len() >= self.limits.keys {
            let (freed, forgotten) = open.make_room(self.limits.keys / 2);
            self.bytes -= freed;
            self.forgotten += forgotten;
        }
        self.bytes += stash.bytes.len();
        let (time, at) = (event.time_ns, open.now);
        open.push(Waiting { time, key, at, stash });
    }

    /// The event that a silence is about.
    fn hear(&mut self, key: Key, event: &EventRef) {
        let stash = self.stash(event);
        let Form::Silence(quiet) = &mut self.form else { return };
        let time = event.time_ns;
        self.bytes += stash.bytes.len();
        if let Some((last, before)) = quiet.last.get_mut(&key) {
            self.bytes -= before.bytes.len();
            (*last, *before) = (time.max(*last), stash);
            return;
        }
        if quiet.last.len() >= self.limits.keys {
            let (freed, forgotten) = quiet.make_room(self.limits.keys / 2);
            self.bytes -= freed;
            self.forgotten += forgotten;
        }
        quiet.due.push(Reverse((time.saturating_add(self.within_ns), key.clone())));
        quiet.last.insert(key, (time, stash));
    }

    /// An event that may fire later, with its bytes if they are needed and there is room for them.
    fn stash(&self, event: &EventRef) -> Stash {
        stash(event, self.keeps && self.bytes + event.bytes.len() <= self.limits.bytes)
    }
}

fn stash(event: &EventRef, keeps: bool) -> Stash {
    let bytes = if keeps { event.bytes.to_vec() } else { Vec::new() };
    Stash { id: event.layout.id, origin: Some(event.origin), bytes }
}

impl Open {
    fn push(&mut self, waiting: Waiting) {
        self.answered.entry(waiting.key.clone()).or_default().0 += 1;
        self.waiting.push_back(waiting);
    }

    /// The oldest one, and whether it was answered.
    fn pop(&mut self) -> Option<(Waiting, bool)> {
        let waiting = self.waiting.pop_front()?;
        let (count, last) = self.answered.get_mut(&waiting.key)?;
        let was = *last > waiting.at;
        *count -= 1;
        if *count == 0 {
            self.answered.remove(&waiting.key);
        }
        Some((waiting, was))
    }

    /// Drops those that were answered, and then the oldest. Returns their bytes, and how many were
    /// not answered.
    #[cold]
    fn make_room(&mut self, most: usize) -> (usize, u64) {
        let (all, answered) =
            (std::mem::take(&mut self.waiting), std::mem::take(&mut self.answered));
        let (mut freed, mut forgotten) = (0, 0);
        for waiting in all {
            match answered.get(&waiting.key) {
                Some((_, last)) if *last > waiting.at => freed += waiting.stash.bytes.len(),
                Some(_) | None => self.push(waiting),
            }
        }
        while self.waiting.len() > most
            && let Some((waiting, _)) = self.pop()
        {
            freed += waiting.stash.bytes.len();
            forgotten += 1;
        }
        (freed, forgotten)
    }
}

impl Quiet {
    /// Looks at the key that is due first: it may have been heard of since. Returns the bytes that
    /// are not kept any more.
    fn look(&mut self, within_ns: u64, fire: Fire) -> usize {
        let Some(Reverse((due, key))) = self.due.pop() else { return 0 };
        let Some((last, _)) = self.last.get(&key) else { return 0 };
        let deadline = last.saturating_add(within_ns);
        if deadline > due {
            self.due.push(Reverse((deadline, key)));
            return 0;
        }
        let Some((_, stash)) = self.last.remove(&key) else { return 0 };
        fire(deadline, &stash);
        stash.bytes.len()
    }

    /// Drops the keys that were silent for longest. Returns their bytes, and how many they are.
    #[cold]
    fn make_room(&mut self, most: usize) -> (usize, u64) {
        let bytes = |last: &HashMap<Key, (u64, Stash)>| -> usize {
            last.values().map(|(_, stash)| stash.bytes.len()).sum()
        };
        let before = bytes(&self.last);
        let forgotten = keep_newest(&mut self.last, most, |(time, _)| *time);
        let last = &self.last;
        self.due.retain(|Reverse((_, key))| last.contains_key(key));
        (before - bytes(&self.last), forgotten)
    }
}

/// Keeps so many entries, at most, with the latest times. Returns how many went.
#[cold]
fn keep_newest<V>(table: &mut HashMap<Key, V>, most: usize, time: fn(&V) -> u64) -> u64 {
    let mut times: Vec<u64> = table.values().map(time).collect();
    let gone = times.len().saturating_sub(most.max(1));
    if gone == 0 {
        return 0;
    }
    let (_, &mut limit, _) = times.select_nth_unstable(gone - 1);
    let before = table.len();
    table.retain(|_, value| time(value) > limit);
    (before - table.len()) as u64
}
