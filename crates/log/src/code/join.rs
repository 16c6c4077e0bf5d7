// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The user stacks of several logs of one recording as one table: stacks have the same numbers in
//! all, but each log numbers its files anew.

use super::{Code, Datum, File, Place};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(crate) struct Join {
    code: Code,
    files: HashMap<File, u32>,
    stacks: HashSet<u64>,
    /// Process, address, time.
    data: HashSet<(u32, u64, u64)>,
}

impl Join {
    pub fn add(&mut self, other: Code) {
        let numbers: Vec<u32> = other.files.into_iter().map(|file| self.number(file)).collect();
        for mut stack in other.stacks {
            if self.stacks.insert(stack.number) {
                for place in stack.places_mut() {
                    if let Place::File(file, _) = place {
                        *file = numbers.get(*file as usize).copied().unwrap_or(u32::MAX);
                    }
                }
                self.code.stacks.push(stack);
            }
        }
        for mut datum in other.data {
            if self.data.insert((datum.pid, datum.address, datum.from)) {
                if let Some(file) = Datum::file_mut(&mut datum) {
                    *file = numbers.get(*file as usize).copied().unwrap_or(u32::MAX);
                }
                self.code.data.push(datum);
            }
        }
        for ((file, at), functions) in other.names {
            if let Some(file) = numbers.get(file as usize) {
                self.code.names.entry((*file, at)).or_insert(functions);
            }
        }
    }

    fn number(&mut self, file: File) -> u32 {
        let next = self.code.files.len() as u32;
        *self.files.entry(file.clone()).or_insert_with(|| {
            self.code.files.push(file);
            next
        })
    }

    pub fn into_code(self) -> Code {
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Function, UserStack};
    use std::collections::BTreeMap;

    fn code(files: &[&str], stacks: &[(u64, u32)], names: &[(u32, &str)]) -> Code {
        let file = |path: &&str| File { path: (*path).into(), ..File::default() };
        let stack = |(number, file): &(u64, u32)| UserStack {
            number: *number,
            frames: vec![Place::File(*file, 16)],
            ..UserStack::default()
        };
        let name = |(file, name): &(u32, &str)| {
            ((*file, 16), vec![Function { name: (*name).into(), ..Function::default() }])
        };
        Code {
            files: files.iter().map(file).collect(),
            stacks: stacks.iter().map(stack).collect(),
            names: names.iter().map(name).collect::<BTreeMap<_, _>>(),
            data: Vec::new(),
        }
    }

    #[test]
    fn files_are_numbered_anew() {
        let mut join = Join::default();
        join.add(code(&["a", "b"], &[(1, 0), (2, 1)], &[(0, "main"), (1, "work")]));
        join.add(code(&["b", "c"], &[(2, 0), (3, 1), (4, 9)], &[(0, "other"), (1, "last")]));
        let expected = code(
            &["a", "b", "c"],
            &[(1, 0), (2, 1), (3, 2), (4, u32::MAX)],
            &[(0, "main"), (1, "work"), (2, "last")],
        );
        assert_eq!(join.into_code(), expected);
    }
}
