// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The rings of a recorder that was killed, with the counters beside them.

use super::Facts;
use klogger_engines::bpf::Stacks;
use klogger_engines::bpf::calls;
use klogger_engines::bpf::load::map_memory;
use klogger_engines::bpf::pins::{self, Left};
use klogger_log::preamble::ProbeState;
use klogger_os::{Error, Mapping};
use klogger_ring::layout::bpf::PROBES_MAX;
use klogger_ring::{CpuReader, EVENTS_MAX, NESTED, Note, Rings};
use libbpf_rs::{MapCore, MapHandle};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// The rings as the recorder left them.
pub struct KeptRings {
    main: Rings,
    /// By CPU: the ring that replaced its own.
    larger: Vec<Option<Rings>>,
    nested: Rings,
    pub count: usize,
    pub ringless: Mapping,
    /// `None` if it was left by an older version of the recorder.
    pub unread: Option<Mapping>,
    caught: Option<Mapping>,
    pub stacks: Option<Stacks>,
}

impl KeptRings {
    pub fn open(left: &Left, facts: &Facts) -> Result<KeptRings, Error> {
        let size = facts.preamble.recorder.buffer_size as usize;
        let stacks = match (left.map_if_there(pins::STACKS)?, left.map_if_there(pins::STACKLESS)?) {
            (Some(table), Some(stackless)) => Some(Stacks::from_maps(table, &fd(&stackless)?)?),
            _ => None,
        };
        Ok(KeptRings {
            main: rings(&left.map(pins::RINGS)?, size, facts.rings)?,
            larger: (0..facts.rings)
                .map(|cpu| larger(left, cpu as u16))
                .collect::<Result<_, _>>()?,
            nested: rings(&left.map(pins::NESTED)?, NESTED, facts.rings)?,
            count: facts.rings,
            ringless: map_memory(&fd(&left.map(pins::RINGLESS)?)?, 8 * EVENTS_MAX)?,
            unread: words(left, pins::UNREAD, EVENTS_MAX)?,
            caught: words(left, pins::CAUGHT, PROBES_MAX)?,
            stacks,
        })
    }

    /// Hits that copies of a program have logged. The program's name contains the number of its
    /// probe in its schema.
    pub fn caught(&self, probes: &[ProbeState], schema: &str, program: &str) -> u64 {
        let of_probe = || {
            let first = probes.iter().position(|p| p.schema == schema)?;
            let index = program.split('_').nth(1)?.parse::<usize>().ok()?;
            Some(first.saturating_add(index))
        };
        let number = calls::number_of(program).or_else(of_probe);
        let (Some(caught), Some(number)) = (&self.caught, number) else { return 0 };
        if number < PROBES_MAX { caught.word(8 * number).load(Ordering::Relaxed) } else { 0 }
    }

    /// The readers of a CPU's rings, in the order in which the rings were in use.
    pub fn readers(&self, cpu: usize) -> Vec<CpuReader> {
        let nested = Some(self.nested.reader(cpu));
        match self.larger.get(cpu).and_then(Option::as_ref) {
            None => vec![CpuReader::new(self.main.reader(cpu), nested)],
            Some(larger) => {
                let (before, after) = (self.main.reader(cpu), larger.reader(0));
                // The nested ring stays with the reader of the ring that was used last.
                let (first, second) =
                    if after.note() == Note::default() { (nested, None) } else { (None, nested) };
                vec![CpuReader::new(before, first), CpuReader::new(after, second)]
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        let fill = |mut reader: CpuReader| {
            reader.resume();
            reader.fill()
        };
        (0..self.count).flat_map(|cpu| self.readers(cpu)).map(fill).fold(0, u64::saturating_add)
    }
}

/// `None`: the version of the recorder that was killed had no such counters.
fn words(left: &Left, name: &str, count: usize) -> Result<Option<Mapping>, Error> {
    left.map_if_there(name)?.map(|map| map_memory(&fd(&map)?, 8 * count)).transpose()
}

fn fd(map: &MapHandle) -> Result<OwnedFd, Error> {
    map.as_fd()
        .try_clone_to_owned()
        .map_err(|e| Error::new(format!("cannot use what the recorder left: {e}")))
}

/// The larger ring of a CPU, if there is one and writers have used it.
fn larger(left: &Left, cpu: u16) -> Result<Option<Rings>, Error> {
    let Some(map) = left.map_if_there(&pins::larger(cpu))? else { return Ok(None) };
    let size = (map.value_size() as usize).saturating_sub(Rings::stride(0));
    Ok(Some(rings(&map, size, 1)?).filter(|r| r.reader(0).is_open()))
}

fn rings(map: &MapHandle, size: usize, count: usize) -> Result<Rings, Error> {
    let fits = size.is_power_of_two() && map.value_size() as usize == Rings::stride(size);
    if !fits || map.max_entries() as usize != count {
        return Err(Error::new("the size of the rings differs from what the recorder stored"));
    }
    Ok(Rings::new(map_memory(&fd(map)?, count * Rings::stride(size))?, size, count, 0))
}
