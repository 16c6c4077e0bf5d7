// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls: one program is attached to each of the two tracepoints that all calls pass, and
//! reaches those of probes by tail calls. `calls.h` of the BPF runtime explains the tables.

use super::attach::Site;
use super::hits::Hits;
use super::load::{self, Part, map_memory};
use super::placed::Numbered;
use super::{Loaded, attach};
use klogger_codegen::bpf::attach_points::syscall::way;
use klogger_os::{Error, Mapping};
use klogger_ring::layout::bpf as layout;
use klogger_schema::attach_points::syscall::ALL_CALLS;
use klogger_schema::model::{ProbeKind, Target};
use klogger_schema::system_calls::Machine;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The two directions: kind of probe, its table of first programs and the number of its attached
/// program.
const WAYS: [(ProbeKind, usize, &str, usize); 2] = [
    (ProbeKind::Syscall, layout::CALL_TABLE_ENTRY, load::ON_ENTRY, layout::ENTRY_PROBE),
    (ProbeKind::ReturnSyscall, layout::CALL_TABLE_EXIT, load::ON_EXIT, layout::EXIT_PROBE),
];

/// The number as a probe of a program for all calls; `None` if it is another program.
pub fn number_of(program: &str) -> Option<usize> {
    let is_its = |kind| way(kind).is_some_and(|(_, name)| name == program);
    WAYS.iter().find(|(kind, ..)| is_its(*kind)).map(|(.., number)| *number)
}

/// The programs of probes, by what they are for.
#[derive(Default)]
pub struct Calls {
    asked: Vec<Asked>,
}

/// A probe of system calls, and its program.
pub struct Asking<'a> {
    pub program: &'a str,
    /// The number of the probe.
    pub number: usize,
    pub target: &'a Target,
    /// The program's number among those for several calls, if it is one.
    pub list: Option<usize>,
}

struct Asked {
    kind: ProbeKind,
    /// By call, the number of its place; `None`: all calls.
    calls: Option<BTreeMap<u32, u16>>,
    /// The calls that are wanted; empty: all.
    only: BTreeSet<u32>,
    /// The number of the probe.
    probe: usize,
    list: Option<List>,
    label: String,
}

/// The table of a program for several calls.
#[derive(Clone, Copy)]
struct List {
    /// The program's object, and the number of the table there.
    object: usize,
    number: usize,
}

fn number_of_call(name: &str) -> Result<u32, Error> {
    let number = Machine::here().number(name);
    number.ok_or_else(|| Error::new(format!("the number of system call '{name}' is not known")))
}

/// The calls of a probe. One that asks for the number of its place at all calls has them all.
fn calls_of<'a>(
    target: &Target,
    places: impl Iterator<Item = &'a Numbered>,
) -> Result<Option<BTreeMap<u32, u16>>, Error> {
    let mut calls = BTreeMap::new();
    for place in places {
        match place.target.name.as_str() {
            ALL_CALLS => {
                calls.extend((0..=layout::CALLS as u32).map(|call| (call, place.number)));
            }
            name => _ = calls.insert(number_of_call(name)?, place.number),
        }
    }
    Ok(match (calls.is_empty(), target.name.as_str()) {
        (false, _) => Some(calls),
        (true, ALL_CALLS) => None,
        (true, name) => Some([(number_of_call(name)?, 0)].into()),
    })
}

impl Calls {
    /// Puts the program of a probe, in this object with its number, into its slot. Nothing reaches
    /// it yet. `places`: of the probe, those that have numbers.
    pub fn add<'a>(
        &mut self,
        number: usize,
        object: &Object,
        asking: &Asking,
        places: impl Iterator<Item = &'a Numbered>,
    ) -> Result<(), Error> {
        let Asking { program, number: probe, target, list } = *asking;
        let label = target.label();
        if probe >= layout::EXIT_PROBE.min(layout::ENTRY_PROBE) {
            let most = layout::EXIT_PROBE.min(layout::ENTRY_PROBE);
            return Err(Error::new(format!("{label} is not among the first {most} probes"))
                .help("record fewer schemata at once, or name the schema first"));
        }
        let calls = calls_of(target, places)?;
        let found = object.progs_mut().find(|p| p.name() == program);
        let found = found
            .ok_or_else(|| Error::new(format!("the compiled schema has no program '{program}'")))?;
        let map = WAYS.iter().find(|way| way.0 == target.kind).map_or("", |way| way.2);
        put(&map_of(object, map)?, probe + 1, found.as_fd())?;
        let list = list.map(|list| List { object: number, number: list });
        // A name that only other machines have is not asked for.
        let only = target.only.iter().filter_map(|name| Machine::here().number(name)).collect();
        self.asked.push(Asked { kind: target.kind, calls, only, probe, list, label });
        Ok(())
    }

    /// Links the programs of each call, and attaches what passes hits on to the first.
    pub(super) fn attach(
        &self,
        objects: &[Loaded],
        table: &OwnedFd,
        hits: &mut Hits,
    ) -> Result<Vec<Link>, Error> {
        let tables = Tables::new(table, objects)?;
        tables.put_names();
        let mut links = Vec::new();
        for (kind, first, _, number) in WAYS {
            let asked: Vec<&Asked> = self.asked.iter().filter(|a| a.kind == kind).collect();
            let (Some((tracepoint, program)), false) = (way(kind), asked.is_empty()) else {
                continue;
            };
            tables.link(first, &asked)?;
            let loaded = |o: &Loaded| {
                let mut programs = o.object.progs_mut();
                programs.any(|p| p.name() == program && p.as_fd().as_raw_fd() >= 0)
            };
            let at = objects.iter().position(loaded);
            let at = at.ok_or_else(|| Error::new("no schema has the programs for system calls"))?;
            let target = Target::bare(ProbeKind::Tracepoint, tracepoint);
            let object = &objects[at].object;
            links.extend(attach::attach(program, &Site::new(object, &target))?.links);
            let part = Part { base: objects[at].base, probes: number as u32, copy: 0 };
            hits.add(at, part, 0, program, &target, None);
        }
        Ok(links)
    }
}

/// What programs look up, mapped. No program is attached yet while it is written.
struct Tables {
    table: Mapping,
    /// By object, the tables of its programs for several calls.
    lists: Vec<Option<Mapping>>,
}

impl Tables {
    fn new(table: &OwnedFd, objects: &[Loaded]) -> Result<Tables, Error> {
        let lists = |loaded: &Loaded| {
            let map = loaded.object.maps().find(|map| map.name() == load::CALL_LISTS);
            let memory = |map: Map| {
                let fd = load::map_fd(&loaded.object, load::CALL_LISTS)?;
                map_memory(&fd, map.value_size() as usize)
            };
            map.map(memory).transpose()
        };
        Ok(Tables {
            table: map_memory(table, layout::CALL_TABLE)?,
            lists: objects.iter().map(lists).collect::<Result<_, _>>()?,
        })
    }

    /// The numbers of 32-bit calls, as those of the 64-bit calls of their names.
    fn put_names(&self) {
        let same = Machine::here().named_as_32();
        for call in 0..=layout::CALLS {
            let named = same.get(&(call as u32)).map_or(layout::CALLS, |number| *number as usize);
            set(&self.table, layout::CALL_TABLE_NAMED + 2 * call, named.min(layout::CALLS));
        }
    }

    /// Writes the tables of one direction.
    fn link(&self, first: usize, asked: &[&Asked]) -> Result<(), Error> {
        let chains: Vec<Vec<&Asked>> =
            (0..=layout::CALLS).map(|call| chain(call as u32, asked)).collect();
        if chains.iter().any(|chain| chain.len() > layout::CHAIN_MAX) {
            let label = asked.last().map_or("", |a| &a.label);
            return Err(Error::new(format!(
                "more than {} probes are at one system call ({label} among them)",
                layout::CHAIN_MAX
            ))
            .help("record fewer schemata at once"));
        }
        let same = Machine::here().named_as_32();
        for (call, chain) in chains.iter().enumerate() {
            for (n, member) in chain.iter().enumerate() {
                self.put_next(call, member, chain.get(n + 1).map_or(0, |next| next.probe + 1));
            }
            let by_32 = same.get(&(call as u32)).and_then(|named| chains.get(*named as usize));
            let by_32 = by_32.is_some_and(|chain| !chain.is_empty());
            let mark = if by_32 { layout::CALL_ASKED_32 } else { 0 };
            set(&self.table, first + 2 * call, mark | chain.first().map_or(0, |a| a.probe + 1));
        }
        Ok(())
    }

    /// What follows a program in the chain of a call.
    fn put_next(&self, call: usize, member: &Asked, next: usize) {
        let Some(List { object, number }) = member.list else {
            return set(&self.table, layout::CALL_TABLE_NEXT + 2 * member.probe, next);
        };
        let Some(Some(lists)) = self.lists.get(object) else { return };
        let place = member.calls.as_ref().and_then(|calls| calls.get(&(call as u32)));
        let at = layout::CALL_LIST * number + 2 * call;
        set(lists, at + layout::CALL_LIST_NEXT, next);
        set(lists, at + layout::CALL_LIST_PLACE, place.copied().unwrap_or(0).into());
    }
}

fn set(table: &Mapping, at: usize, value: usize) {
    // SAFETY: within the mapping, which `at` checks; programs read the half word with single
    // loads, and none is attached yet.
    unsafe { table.at(at, 2).cast::<u16>().write_volatile(value as u16) }
}

/// The programs for a call, in order. Those with one successor come before and after those whose
/// tables have one for each call; of those for all calls, the ones that want only some come first,
/// so that each has the same successor at every call. Of a recording, all want the same.
fn chain<'a>(call: u32, asked: &[&'a Asked]) -> Vec<&'a Asked> {
    let wants = |a: &Asked| a.only.is_empty() || a.only.contains(&call);
    let asks =
        |a: &&&Asked| wants(a) && a.calls.as_ref().is_none_or(|calls| calls.contains_key(&call));
    let mut chain: Vec<&Asked> = asked.iter().filter(asks).copied().collect();
    chain.sort_by_key(|a| match (&a.list, &a.calls) {
        (None, Some(_)) => 0,
        (Some(_), _) => 1,
        (None, None) if !a.only.is_empty() => 2,
        (None, None) => 3,
    });
    chain
}

fn map_of<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Error> {
    let map = object.maps().find(|m| m.name() == name);
    map.ok_or_else(|| Error::new(format!("the compiled schema has no map '{name}'")))
}

fn put(map: &Map, slot: usize, program: BorrowedFd) -> Result<(), Error> {
    let (key, value) = (slot as u32, program.as_raw_fd() as u32);
    map.update(&key.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::new(format!("cannot set up a probe of a system call: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(calls: Option<Vec<u32>>, probe: usize, list: Option<usize>) -> Asked {
        Asked {
            kind: ProbeKind::Syscall,
            calls: calls.map(|calls| calls.into_iter().zip(10..).collect()),
            only: BTreeSet::new(),
            probe,
            list: list.map(|number| List { object: 0, number }),
            label: format!("syscall {probe}"),
        }
    }

    fn linked(asked: &[Asked]) -> Result<Tables, Error> {
        let table = Mapping::own(layout::CALL_TABLE.next_multiple_of(4096)).unwrap();
        let lists = Mapping::own((4 * layout::CALL_LIST).next_multiple_of(4096)).unwrap();
        let tables = Tables { table, lists: vec![Some(lists)] };
        let asked: Vec<&Asked> = asked.iter().collect();
        tables.link(layout::CALL_TABLE_ENTRY, &asked).map(|()| tables)
    }

    fn single(calls: &[(Option<u32>, usize)]) -> Vec<Asked> {
        calls.iter().map(|(call, probe)| asked(call.map(|c| vec![c]), *probe, None)).collect()
    }

    fn word(table: &Mapping, at: usize) -> usize {
        // SAFETY: within the mapping, which `at` checks.
        usize::from(unsafe { table.at(at, 2).cast::<u16>().read() })
    }

    fn first(tables: &Tables, call: usize) -> usize {
        word(&tables.table, layout::CALL_TABLE_ENTRY + 2 * call)
    }

    /// The numbers of the probes that a call hits, in order. `lists`: those with tables.
    fn hit(tables: &Tables, call: usize, lists: &[(usize, usize)]) -> Vec<usize> {
        let mut slot = first(tables, call) & !layout::CALL_ASKED_32;
        let mut probes = Vec::new();
        while slot != 0 && probes.len() < 100 {
            probes.push(slot - 1);
            slot = match lists.iter().find(|(probe, _)| *probe == slot - 1) {
                Some((_, list)) => {
                    let at = layout::CALL_LIST * list + layout::CALL_LIST_NEXT + 2 * call;
                    word(tables.lists[0].as_ref().unwrap(), at)
                }
                None => word(&tables.table, layout::CALL_TABLE_NEXT + 2 * (slot - 1)),
            };
        }
        probes
    }

    #[test]
    fn a_call_hits_its_own_probes_and_those_of_all() {
        let asked = [(Some(257), 4), (None, 0), (Some(1), 5), (Some(257), 9), (None, 7)];
        let tables = linked(&single(&asked)).unwrap();
        assert_eq!(hit(&tables, 257, &[]), [4, 9, 0, 7]);
        assert_eq!(hit(&tables, 1, &[]), [5, 0, 7]);
        assert_eq!(hit(&tables, 2, &[]), [0, 7]);
        assert_eq!(hit(&tables, layout::CALLS, &[]), [0, 7]);
    }

    #[test]
    fn a_probe_at_several_calls_is_followed_by_others_at_each() {
        let mut all = single(&[(Some(2), 3), (None, 0)]);
        all.push(asked(Some(vec![1, 2, 5]), 6, Some(0)));
        all.push(asked(Some(vec![2, 5]), 8, Some(1)));
        let tables = linked(&all).unwrap();
        let lists = [(6, 0), (8, 1)];
        assert_eq!(hit(&tables, 1, &lists), [6, 0]);
        assert_eq!(hit(&tables, 2, &lists), [3, 6, 8, 0]);
        assert_eq!(hit(&tables, 5, &lists), [6, 8, 0]);
        assert_eq!(hit(&tables, 7, &lists), [0]);
        let place = |list: usize, call: usize| {
            let at = layout::CALL_LIST * list + layout::CALL_LIST_PLACE + 2 * call;
            word(tables.lists[0].as_ref().unwrap(), at)
        };
        assert_eq!((place(0, 1), place(0, 5), place(1, 5), place(1, 1)), (10, 12, 11, 0));
    }

    #[test]
    fn a_probe_of_all_calls_that_wants_some_is_hit_by_these() {
        let mut all = single(&[(None, 0), (Some(1), 5), (None, 7)]);
        all[2].only = [1, 257].into();
        let tables = linked(&all).unwrap();
        let hits = [1, 2, 257, layout::CALLS].map(|call| hit(&tables, call, &[]));
        assert_eq!(hits, [vec![5, 7, 0], vec![0], vec![7, 0], vec![0]]);
    }

    #[test]
    fn a_call_that_nobody_asked_for_hits_nothing() {
        let tables = linked(&single(&[(Some(257), 3)])).unwrap();
        assert_eq!(hit(&tables, 257, &[]), [3]);
        let hits = (0..=layout::CALLS).filter(|call| !hit(&tables, *call, &[]).is_empty());
        assert_eq!(hits.collect::<Vec<_>>(), [257]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_number_of_a_32_bit_call_that_somebody_asked_for_is_marked() {
        let tables = linked(&single(&[(Some(257), 3)])).unwrap();
        tables.put_names();
        let marked = (0..=layout::CALLS).filter(|call| first(&tables, *call) >= 0x8000);
        assert_eq!(marked.collect::<Vec<_>>(), [295]);
        let named = |call: usize| word(&tables.table, layout::CALL_TABLE_NAMED + 2 * call);
        // mmap2
        assert_eq!((named(295), named(192), named(512)), (257, layout::CALLS, layout::CALLS));
    }

    #[test]
    fn a_chain_is_as_long_as_the_kernel_follows() {
        let chain = |n: usize| linked(&single(&(0..n).map(|p| (Some(7), p)).collect::<Vec<_>>()));
        assert_eq!(hit(&chain(32).unwrap(), 7, &[]).len(), 32);
        let error = chain(33).map(drop).unwrap_err();
        assert_eq!(
            error.to_string().lines().next(),
            Some("more than 32 probes are at one system call (syscall 32 among them)")
        );
    }
}
