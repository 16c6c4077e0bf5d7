// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of kernel stacks, which the kernel fills for BPF programs.

use super::Loaded;
use super::load::{STACKS, map_memory};
use crate::stacks::{StackTable, Unnumbered};
use klogger_os::{Error, Mapping};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// The kernel stacks of probe hits, and the number of those that were not stored.
pub struct Stacks {
    table: MapHandle,
    stackless: Mapping,
}

impl Stacks {
    /// The table is shared by all objects that have one.
    pub(super) fn new(objects: &[Loaded], stackless: &OwnedFd) -> Result<Stacks, Error> {
        let mut maps = objects.iter().flat_map(|o| o.object.maps());
        let table = maps.find(|m| m.name() == STACKS).map(|m| MapHandle::try_from(&m));
        let table = table
            .ok_or_else(|| Error::new(format!("the compiled schema has no map '{STACKS}'")))?;
        let table = table.map_err(|e| Error::new(format!("cannot use the map '{STACKS}': {e}")))?;
        Stacks::from_maps(table, stackless)
    }

    pub fn from_maps(table: MapHandle, stackless: &OwnedFd) -> Result<Stacks, Error> {
        Ok(Stacks { table, stackless: map_memory(stackless, 16)? })
    }
}

impl StackTable for Stacks {
    /// While the kernel copies a stack, its slot looks free to other CPUs.
    fn read(&self) -> Vec<(u32, Vec<u64>)> {
        let stack = |key: Vec<u8>| {
            let place = u32::from_ne_bytes(*key.first_chunk()?);
            let bytes = self.table.lookup(&key, MapFlags::ANY).ok()??;
            let (words, _) = bytes.as_chunks();
            let addresses = words.iter().map(|w| u64::from_ne_bytes(*w)).take_while(|a| *a != 0);
            Some((place + 1, addresses.collect()))
        };
        self.table.keys().filter_map(stack).collect()
    }

    fn unnumbered(&self) -> Unnumbered {
        let word = |n: usize| self.stackless.word(8 * n).load(Ordering::Relaxed);
        Unnumbered { no_slot: word(0), not_walked: word(1) }
    }
}
