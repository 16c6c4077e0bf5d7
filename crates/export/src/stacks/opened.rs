// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Slices that have begun and not ended, by where they are: an exit or a loss looks at no others,
//! so that a log of many open slices and many losses is read in the time of its length.

use crate::pairing::{Key, Whose};
use klogger_log::origin::Origin;
use std::collections::HashMap;
use std::mem;

type Group<T> = HashMap<Key, T>;

/// `T`: what is known of a slice.
pub struct OpenSlices<T> {
    /// By thread of the kernel's events: they are all uncertain if a CPU has lost events.
    threads: HashMap<i64, Group<T>>,
    /// By CPU, by stream of a program's thread, and those of any place.
    others: HashMap<Whose, Group<T>>,
    len: usize,
}

impl<T> Default for OpenSlices<T> {
    fn default() -> OpenSlices<T> {
        OpenSlices { threads: HashMap::new(), others: HashMap::new(), len: 0 }
    }
}

impl<T> OpenSlices<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Replaces one with the same key.
    pub fn insert(&mut self, key: Key, slice: T) {
        let group = match key.whose {
            Whose::Thread(tid) => self.threads.entry(tid).or_default(),
            whose => self.others.entry(whose).or_default(),
        };
        self.len += usize::from(group.insert(key, slice).is_none());
    }

    pub fn remove(&mut self, key: &Key) -> Option<T> {
        let removed = match key.whose {
            Whose::Thread(tid) => remove(&mut self.threads, &tid, key),
            whose => remove(&mut self.others, &whose, key),
        };
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Those of a thread in events of the kernel.
    pub fn of_thread(&mut self, tid: i64) -> Vec<T> {
        let group = self.threads.remove(&tid).unwrap_or_default();
        self.len -= group.len();
        group.into_values().collect()
    }

    /// Forgets those whose ends may be among events that `origin` has lost; returns how many.
    pub fn lose(&mut self, origin: Origin) -> usize {
        let before = self.len;
        self.forget(Whose::Any);
        match origin {
            Origin::Cpu(cpu) => {
                self.forget(Whose::Cpu(cpu));
                // Not `clear`, which takes the time of the largest number there ever was.
                let threads = mem::take(&mut self.threads);
                self.len -= threads.values().map(Group::len).sum::<usize>();
            }
            Origin::Thread { stream, .. } => self.forget(Whose::User(stream)),
            Origin::Recorder => {}
        }
        before - self.len
    }

    fn forget(&mut self, whose: Whose) {
        self.len -= self.others.remove(&whose).map_or(0, |group| group.len());
    }
}

/// No group is left empty: a log may name any number of threads.
fn remove<W: std::hash::Hash + Eq, T>(
    groups: &mut HashMap<W, Group<T>>,
    whose: &W,
    key: &Key,
) -> Option<T> {
    let group = groups.get_mut(whose)?;
    let removed = group.remove(key);
    if group.is_empty() {
        groups.remove(whose);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::origin::Thread;

    const PLACES: [Whose; 7] = [
        Whose::Cpu(0),
        Whose::Cpu(1),
        Whose::Thread(0),
        Whose::Thread(1),
        Whose::User(0),
        Whose::User(1),
        Whose::Any,
    ];

    /// Two slices in each place.
    fn opened() -> OpenSlices<(usize, u64)> {
        let mut opened = OpenSlices::default();
        for (place, whose) in PLACES.into_iter().enumerate() {
            for value in [7, 8] {
                opened.insert(Key::of_test(whose, value), (place, value));
            }
        }
        opened
    }

    /// The places that still have both.
    fn left(opened: &mut OpenSlices<(usize, u64)>) -> Vec<usize> {
        let mut both = |place: &usize| {
            let found = [7, 8].map(|v| opened.remove(&Key::of_test(PLACES[*place], v)));
            assert!(found == [None; 2] || found == [7, 8].map(|v| Some((*place, v))));
            found[0].is_some()
        };
        let places = (0..PLACES.len()).filter(|place| both(place)).collect();
        assert_eq!((opened.len(), opened.threads.len(), opened.others.len()), (0, 0, 0));
        places
    }

    #[test]
    fn an_exit_ends_those_of_its_thread() {
        let mut opened = opened();
        let mut ended = opened.of_thread(1);
        ended.sort_unstable();
        assert_eq!((ended, opened.len()), (vec![(3, 7), (3, 8)], 12));
        assert_eq!(opened.of_thread(9), []);
        assert_eq!(left(&mut opened), [0, 1, 2, 4, 5, 6]);
    }

    #[test]
    fn a_loss_ends_those_whose_ends_it_may_have() {
        let user = Origin::Thread { stream: 1, thread: Thread { tid: 1, tgid: 1 } };
        for (origin, lost, expected) in [
            (Origin::Cpu(1), 8, vec![0, 4, 5]),
            (user, 4, vec![0, 1, 2, 3, 4]),
            (Origin::Recorder, 2, vec![0, 1, 2, 3, 4, 5]),
        ] {
            let mut opened = opened();
            assert_eq!(opened.lose(origin), lost, "{origin:?}");
            assert_eq!(opened.lose(origin), 0);
            assert_eq!(left(&mut opened), expected, "{origin:?}");
        }
    }

    #[test]
    fn the_same_key_counts_once() {
        let mut opened = OpenSlices::default();
        opened.insert(Key::of_test(Whose::Any, 7), 1);
        opened.insert(Key::of_test(Whose::Any, 7), 2);
        assert_eq!((opened.len(), opened.remove(&Key::of_test(Whose::Any, 7))), (1, Some(2)));
        assert_eq!((opened.len(), opened.remove(&Key::of_test(Whose::Any, 7))), (0, None));
    }
}
