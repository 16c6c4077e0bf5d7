// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls: one program is attached to each of the two tracepoints that all calls pass, and
//! reaches those of probes by tail calls. `calls.h` of the BPF runtime explains the tables.

use super::attach::Site;
use super::hits::Hits;
use super::load::{self, Part, map_memory};
use super::{Loaded, attach};
use klogger_codegen::bpf::attach_points::syscall::way;
use klogger_os::{Error, Mapping};
use klogger_ring::layout::bpf as layout;
use klogger_schema::attach_points::syscall::ALL_CALLS;
use klogger_schema::model::{ProbeKind, Target};
use klogger_schema::system_calls::Machine;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object};
use std::collections::BTreeMap;
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

struct Asked {
    kind: ProbeKind,
    /// `None`: all calls.
    call: Option<u32>,
    /// The number of the probe.
    probe: usize,
    label: String,
}

impl Calls {
    /// Puts the program of a probe into its slot. Nothing reaches it yet.
    pub fn add(
        &mut self,
        object: &Object,
        program: &str,
        probe: usize,
        target: &Target,
    ) -> Result<(), Error> {
        let label = target.label();
        if probe >= layout::EXIT_PROBE.min(layout::ENTRY_PROBE) {
            let most = layout::EXIT_PROBE.min(layout::ENTRY_PROBE);
            return Err(Error::new(format!("{label} is not among the first {most} probes"))
                .help("record fewer schemata at once, or name the schema first"));
        }
        let call = match target.name.as_str() {
            ALL_CALLS => None,
            name => Some(Machine::here().number(name).ok_or_else(|| {
                Error::new(format!("the number of system call '{name}' is not known"))
            })?),
        };
        let found = object.progs_mut().find(|p| p.name() == program);
        let found = found
            .ok_or_else(|| Error::new(format!("the compiled schema has no program '{program}'")))?;
        let map = WAYS.iter().find(|way| way.0 == target.kind).map_or("", |way| way.2);
        put(&map_of(object, map)?, probe + 1, found.as_fd())?;
        self.asked.push(Asked { kind: target.kind, call, probe, label });
        Ok(())
    }

    /// Links the programs of each call, and attaches what passes hits on to the first.
    pub(super) fn attach(
        &self,
        objects: &[Loaded],
        table: &OwnedFd,
        hits: &mut Hits,
    ) -> Result<Vec<Link>, Error> {
        let table = map_memory(table, layout::CALL_TABLE)?;
        let mut links = Vec::new();
        for (kind, first, _, number) in WAYS {
            let asked: Vec<&Asked> = self.asked.iter().filter(|a| a.kind == kind).collect();
            let (Some((tracepoint, program)), false) = (way(kind), asked.is_empty()) else {
                continue;
            };
            link(&table, first, &asked)?;
            let loaded = |o: &Loaded| {
                let mut programs = o.object.progs_mut();
                programs.any(|p| p.name() == program && p.as_fd().as_raw_fd() >= 0)
            };
            let at = objects.iter().position(loaded);
            let at = at.ok_or_else(|| Error::new("no schema has the programs for system calls"))?;
            let target = Target::bare(ProbeKind::Tracepoint, tracepoint);
            let object = &objects[at].object;
            links.extend(
                attach::attach(program, &Site { object, target: &target, programs: None })?.links,
            );
            let part = Part { base: objects[at].base, probes: number as u32, copy: 0 };
            hits.add(at, part, 0, program, &target, None);
        }
        Ok(links)
    }
}

/// Writes the tables of one direction. Programs for all calls are last in every chain.
fn link(table: &Mapping, first: usize, asked: &[&Asked]) -> Result<(), Error> {
    let slots = |call| asked.iter().filter(move |a| a.call == call).map(|a| a.probe + 1);
    let all: Vec<usize> = slots(None).collect();
    let mut chains: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for call in asked.iter().filter_map(|a| a.call) {
        chains.entry(call).or_insert_with(|| slots(Some(call)).chain(all.clone()).collect());
    }
    let longest = chains.values().chain([&all]).max_by_key(|chain| chain.len());
    if longest.is_some_and(|chain| chain.len() > layout::CHAIN_MAX) {
        let label = asked.last().map_or("", |a| &a.label);
        return Err(Error::new(format!(
            "more than {} probes are at one system call ({label} among them)",
            layout::CHAIN_MAX
        ))
        .help("record fewer schemata at once"));
    }
    let set = |at: usize, slot: usize| {
        // SAFETY: within the mapping, which `at` checks; programs read the half word with single
        // loads, and none is attached yet.
        unsafe { table.at(at, 2).cast::<u16>().write_volatile(slot as u16) }
    };
    for chain in chains.values().chain([&all]) {
        for (n, slot) in chain.iter().enumerate() {
            let next = chain.get(n + 1).copied().unwrap_or(0);
            set(layout::CALL_TABLE_NEXT + 2 * (slot - 1), next);
        }
    }
    for call in 0..=layout::CALLS {
        let chain = chains.get(&(call as u32)).unwrap_or(&all);
        set(first + 2 * call, chain.first().copied().unwrap_or(0));
    }
    Ok(())
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

    fn linked(asked: &[(Option<u32>, usize)]) -> Result<Mapping, Error> {
        let one = |(call, probe): &(Option<u32>, usize)| Asked {
            kind: ProbeKind::Syscall,
            call: *call,
            probe: *probe,
            label: format!("syscall {probe}"),
        };
        let asked: Vec<Asked> = asked.iter().map(one).collect();
        let table = Mapping::own(layout::CALL_TABLE.next_multiple_of(4096)).unwrap();
        let asked: Vec<&Asked> = asked.iter().collect();
        link(&table, layout::CALL_TABLE_ENTRY, &asked).map(|()| table)
    }

    fn word(table: &Mapping, at: usize) -> usize {
        // SAFETY: within the mapping, which `at` checks.
        usize::from(unsafe { table.at(at, 2).cast::<u16>().read() })
    }

    /// The numbers of the probes that a call hits, in order.
    fn hit(table: &Mapping, call: usize) -> Vec<usize> {
        let mut slot = word(table, layout::CALL_TABLE_ENTRY + 2 * call);
        let mut probes = Vec::new();
        while slot != 0 && probes.len() < 100 {
            probes.push(slot - 1);
            slot = word(table, layout::CALL_TABLE_NEXT + 2 * (slot - 1));
        }
        probes
    }

    #[test]
    fn a_call_hits_its_own_probes_and_those_of_all() {
        let asked = [(Some(257), 4), (None, 0), (Some(1), 5), (Some(257), 9), (None, 7)];
        let table = linked(&asked).unwrap();
        assert_eq!(hit(&table, 257), [4, 9, 0, 7]);
        assert_eq!(hit(&table, 1), [5, 0, 7]);
        assert_eq!(hit(&table, 2), [0, 7]);
        assert_eq!(hit(&table, layout::CALLS), [0, 7]);
    }

    #[test]
    fn a_call_that_nobody_asked_for_hits_nothing() {
        let table = linked(&[(Some(257), 3)]).unwrap();
        assert_eq!(hit(&table, 257), [3]);
        let hits = (0..=layout::CALLS).filter(|call| !hit(&table, *call).is_empty());
        assert_eq!(hits.collect::<Vec<_>>(), [257]);
    }

    #[test]
    fn a_chain_is_as_long_as_the_kernel_follows() {
        let chain = |n: usize| linked(&(0..n).map(|p| (Some(7), p)).collect::<Vec<_>>());
        assert_eq!(hit(&chain(32).unwrap(), 7).len(), 32);
        let error = chain(33).map(drop).unwrap_err();
        assert_eq!(
            error.to_string().lines().next(),
            Some("more than 32 probes are at one system call (syscall 32 among them)")
        );
    }
}
