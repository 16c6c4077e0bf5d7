// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What an event is about: the values of some of its fields. A table by these, with a limit.

use crate::event::{EventRef, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// So that the number of keys limits the memory.
const LONG: usize = 64;

/// Values of fields. Numbers are equal if they are the same number, whatever their types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Numbers([u64; 2]),
    /// More than two, or texts; of long ones a hash.
    Bytes(Box<[u8]>),
}

/// Where a value of a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum From {
    Field(usize),
    Cpu,
    /// The thread that logged the event.
    Thread,
    /// Its process.
    Process,
}

impl From {
    fn value<'a>(self, event: &EventRef<'a>) -> Option<Value<'a>> {
        match self {
            From::Field(index) => Some(event.value(&event.layout.fields[index])),
            From::Cpu => event.origin.cpu_column().map(|cpu| Value::Int(cpu.into())),
            From::Thread => event.origin.thread().map(|t| Value::Uint(t.tid.into())),
            From::Process => event.origin.thread().map(|t| Value::Uint(t.tgid.into())),
        }
    }
}

impl Key {
    /// Of events that are about one thing.
    pub const NONE: Key = Key::Numbers([0; 2]);

    /// None: the event has not all of these values.
    #[inline]
    pub fn of(fields: &[From], event: &EventRef) -> Option<Key> {
        let mut numbers = [0; 2];
        if fields.len() <= numbers.len() {
            for (number, field) in numbers.iter_mut().zip(fields) {
                match field.value(event)?.bits() {
                    Some(bits) => *number = bits,
                    None => return Key::long(fields, event),
                }
            }
            return Some(Key::Numbers(numbers));
        }
        Key::long(fields, event)
    }

    #[cold]
    fn long(fields: &[From], event: &EventRef) -> Option<Key> {
        let mut bytes = Vec::new();
        for field in fields {
            let value = field.value(event)?;
            match (value.bits(), value.text()) {
                (Some(bits), _) => bytes.extend(bits.to_le_bytes()),
                (None, Some(text)) => {
                    bytes.extend((text.len() as u64).to_le_bytes());
                    bytes.extend_from_slice(text);
                }
                (None, None) => return None,
            }
        }
        if bytes.len() > LONG {
            bytes = [0, 1].iter().flat_map(|salt| hash(*salt, &bytes)).collect();
        }
        Some(Key::Bytes(bytes.into()))
    }
}

fn hash(salt: u8, bytes: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    hasher.write_u8(salt);
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

/// A table that gives up the half that was not used for longest when it is full.
pub struct Table<V> {
    entries: HashMap<Key, (V, u64)>,
    most: usize,
    /// Entries that were given up.
    pub given_up: u64,
    /// The latest time at which one of those was used.
    pub given_up_ns: u64,
}

impl<V> Table<V> {
    pub fn new(most: usize) -> Table<V> {
        Table { entries: HashMap::new(), most: most.max(2), given_up: 0, given_up_ns: 0 }
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// `now`: when the entry was used, ns.
    pub fn insert(&mut self, key: Key, value: V, now: u64) {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.give_up();
        }
        self.entries.insert(key, (value, now));
    }

    /// The entry, which is made if there is none.
    pub fn entry(&mut self, key: &Key, now: u64, new: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= self.most && !self.entries.contains_key(key) {
            self.give_up();
        }
        let (value, used) = self.entries.entry(key.clone()).or_insert_with(|| (new(), now));
        *used = now;
        value
    }

    pub fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_values().map(|(value, _)| value)
    }

    #[cold]
    fn give_up(&mut self) {
        let mut times: Vec<u64> = self.entries.values().map(|(_, used)| *used).collect();
        let middle = times.len() / 2;
        let (_, &mut limit, _) = times.select_nth_unstable(middle);
        let before = self.entries.len();
        self.entries.retain(|_, (_, used)| *used > limit);
        self.given_up += (before - self.entries.len()) as u64;
        self.given_up_ns = limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_gives_up_what_was_not_used_for_longest() {
        let key = |n: u64| Key::Numbers([n, 0]);
        let mut table = Table::new(4);
        (1..=4).for_each(|n| table.insert(key(n), n, n));
        table.entry(&key(1), 5, || 0);
        table.insert(key(6), 6, 6);
        assert_eq!((table.given_up, table.given_up_ns), (3, 4));
        assert_eq!(
            (1..=6).map(|n| table.get_mut(&key(n)).copied()).collect::<Vec<_>>(),
            [Some(1), None, None, None, None, Some(6)]
        );
    }
}
