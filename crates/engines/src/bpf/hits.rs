// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Skipped hits: how many, and when. Where programs can be preempted, copies of the program are
//! attached to log further ones.
//!
//! `copies.h` of the BPF runtime explains how copies find out which hits their program was skipped
//! for.

use super::attach::Site;
use super::load::{self, Config, Part, map_memory};
use super::placed::Placed;
use super::sampler::Sampler;
use super::{Loaded, attach};
use crate::losses::{MissedHits, Span};
use klogger_os as os;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_ring::layout::bpf::{COPIES_MAX, PROBES_MAX};
use klogger_schema::model::{ProbeKind, Target};
use klogger_toolchain::compiled_schema::CompiledSchema;
use libbpf_rs::{Link, Object};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Time spans of skipped hits that are kept for a probe.
const SPANS_MAX: usize = 64;

/// The skipped hits of all probes.
pub struct Hits {
    config: Config,
    probes: Vec<Probe>,
    /// By number of the probe: how many programs it has, and hits that copies have logged, or of
    /// samplers all hits.
    copies: Mapping,
    caught: Mapping,
    attached: Vec<(Vec<Link>, Object)>,
    looked_ns: u64,
    /// Why no copy can be attached any more.
    cannot: Option<String>,
}

struct Probe {
    /// Its object, and the number of its probe there.
    object: usize,
    part: Part,
    number: usize,
    program: String,
    target: Target,
    /// The program, if it is one of several of the probe.
    placed: Option<OwnedFd>,
    /// Tells how many hits there should be, if that is known.
    sampler: Option<Sampler>,
    copies: u8,
    /// Hits skipped before events were switched on.
    before: u64,
    lost: u64,
    spans: Vec<Span>,
}

impl Hits {
    pub fn new(config: &Config, shared: &load::Shared) -> Result<Hits, Error> {
        Ok(Hits {
            config: *config,
            probes: Vec::new(),
            copies: map_memory(&shared.copies, PROBES_MAX)?,
            caught: map_memory(&shared.caught, 8 * PROBES_MAX)?,
            attached: Vec::new(),
            looked_ns: os::monotonic_ns(),
            cannot: None,
        })
    }

    /// Notes that the program of probe `index` of an object has been attached.
    pub fn add(
        &mut self,
        object: usize,
        part: Part,
        index: usize,
        program: &str,
        target: &Target,
        sampler: Option<Sampler>,
    ) {
        let number = part.probes as usize + index;
        self.probes.push(Probe { sampler, ..Probe::new(object, part, number, program, target) });
    }

    /// Notes that the program of one of the places of a probe has been attached.
    pub(super) fn add_placed(
        &mut self,
        object: usize,
        part: Part,
        placed: &Placed,
    ) -> Result<(), Error> {
        let number = part.probes as usize + placed.probe;
        let program = placed.program.try_clone();
        let program =
            program.map_err(|e| Error::new(format!("cannot count the hits of a probe: {e}")))?;
        self.probes.push(Probe {
            placed: Some(program),
            ..Probe::new(object, part, number, &placed.name(0), &placed.target)
        });
        Ok(())
    }

    /// Skipped hits count from now on.
    pub(super) fn begin(&mut self, objects: &[Loaded]) {
        for probe in &mut self.probes {
            let skipped = probe.skipped(objects, true);
            probe.before = skipped.saturating_sub(caught(&self.caught, probe.number));
        }
        self.looked_ns = os::monotonic_ns();
    }

    /// Notes what has been skipped since the last call. With `mend`, attaches a copy where hits
    /// were skipped.
    pub(super) fn look(&mut self, objects: &[Loaded], mend: bool) {
        let now = os::monotonic_ns();
        let mut wanted: BTreeMap<(usize, u8), Vec<usize>> = BTreeMap::new();
        for n in 0..self.probes.len() {
            let probe = &mut self.probes[n];
            // In this order: a hit that a copy logs between the two reads counts as logged, but not
            // yet as skipped. If that hides a lost hit, the next call reports it.
            let skipped = probe.skipped(objects, !mend);
            let caught = caught(&self.caught, probe.number);
            let lost = skipped.saturating_sub(caught + probe.before);
            let more = lost > probe.lost;
            probe.note(lost, self.looked_ns, now);
            if more && mend && self.may_copy(n) {
                wanted.entry((self.probes[n].object, self.probes[n].copies)).or_default().push(n);
            }
        }
        self.looked_ns = now;
        for ((object, copy), probes) in wanted {
            if let Err(e) = self.copy(&probes, copy, &objects[object]) {
                self.cannot = Some(e.message);
            }
        }
    }

    fn may_copy(&self, n: usize) -> bool {
        let probe = &self.probes[n];
        let possible = probe.number < PROBES_MAX
            && probe.placed.is_none()
            && attach::copies(probe.target.kind);
        self.config.preempt && self.cannot.is_none() && probe.copies < COPIES_MAX && possible
    }

    /// Attaches one more copy of each of these programs of an object, number `copy`. All in one
    /// load, because loading takes long.
    fn copy(&mut self, probes: &[usize], copy: u8, first: &Loaded) -> Result<(), Error> {
        let (Some(unit), Some(n)) = (&first.unit, probes.first()) else { return Ok(()) };
        let part = Part { copy, ..self.probes[*n].part };
        let names: Vec<&str> = probes.iter().map(|n| self.probes[*n].program.as_str()).collect();
        let object = load::load_copies(unit, &names, part, &self.config, &first.object)?;
        let mut links = Vec::new();
        for n in probes {
            let probe = &mut self.probes[*n];
            probe.copies = copy + 1;
            // First: a hit that finds the copy must find the marks of those before it, and so have
            // begun after this. SAFETY: within the mapping; programs read the byte with single
            // loads.
            unsafe { AtomicU8::from_ptr(self.copies.at(probe.number, 1)) }
                .store(probe.copies, Ordering::SeqCst);
            let (object, target) = (&object, &probe.target);
            let site = Site::new(object, target);
            links.extend(attach::attach(&probe.program, &site)?.links);
        }
        self.attached.push((links, object));
        Ok(())
    }

    /// Detaches the copies, and what samplers have attached.
    pub fn detach(&mut self) {
        self.attached.clear();
        self.probes.iter_mut().filter_map(|p| p.sampler.as_mut()).for_each(Sampler::stop);
    }

    fn why(&self, kind: ProbeKind) -> String {
        let skipped = attach::skipped(kind);
        match (&self.cannot, self.config.preempt && attach::copies(kind)) {
            (_, false) => skipped.into(),
            (Some(e), true) => {
                format!("a preempted thread was in its program; no further copy: {e}")
            }
            (None, true) => format!("a preempted thread was in its program, or {skipped}"),
        }
    }

    /// The hits that were lost.
    pub(super) fn missed(&self, objects: &[Loaded]) -> Vec<MissedHits> {
        let missed = |p: &Probe| MissedHits {
            schema: objects.get(p.object).map(|o| o.schema.clone()).unwrap_or_default(),
            place: match p.sampler {
                Some(_) => p.target.label(),
                None => place_of(&p.program),
            },
            count: p.lost,
            spans: p.spans.clone(),
            why: self.why(p.target.kind),
            sampled: p.sampler.is_some(),
        };
        self.probes.iter().filter(|p| p.lost > 0).map(missed).collect()
    }
}

impl Probe {
    fn new(object: usize, part: Part, number: usize, program: &str, target: &Target) -> Probe {
        Probe {
            object,
            part,
            number,
            program: program.into(),
            target: target.clone(),
            placed: None,
            sampler: None,
            copies: 1,
            before: 0,
            lost: 0,
            spans: Vec::new(),
        }
    }

    /// Hits that the kernel skipped; of a sampler all that there should have been. `exact`: as of
    /// now, at the cost of interrupting all CPUs.
    fn skipped(&mut self, objects: &[Loaded], exact: bool) -> u64 {
        if let Some(program) = &self.placed {
            return recursion_misses(program.as_fd());
        }
        let Some(first) = objects.get(self.object) else { return 0 };
        let program = first.object.progs_mut().find(|p| p.name() == self.program.as_str());
        match (&mut self.sampler, program) {
            (Some(sampler), Some(program)) => {
                if !exact {
                    sampler.look(&program);
                }
                sampler.due(exact)
            }
            (None, Some(program)) => recursion_misses(program.as_fd()),
            (_, None) => 0,
        }
    }

    /// Notes that `lost` hits have been lost by now.
    fn note(&mut self, lost: u64, from: u64, to: u64) {
        if lost > self.lost {
            let count = lost - self.lost;
            let full = self.spans.len() >= SPANS_MAX;
            match self.spans.last_mut().filter(|last| full || last.to == from) {
                Some(last) => (last.to, last.count) = (to, last.count + count),
                None => self.spans.push(Span { from, to, count }),
            }
        }
        // Copies have logged what was on its way at the last call.
        let mut less = self.lost.saturating_sub(lost);
        while less > 0
            && let Some(last) = self.spans.last_mut()
        {
            let part = less.min(last.count);
            (last.count, less) = (last.count - part, less - part);
            if last.count == 0 {
                self.spans.pop();
            }
        }
        self.lost = lost;
    }
}

fn caught(words: &Mapping, number: usize) -> u64 {
    if number < PROBES_MAX { words.word(8 * number).load(Ordering::Relaxed) } else { 0 }
}

/// The attach point of a program, from its name `klogger_N_N_PLACE`.
fn place_of(program: &str) -> String {
    program.splitn(4, '_').nth(3).unwrap_or(program).to_string()
}

/// Skipped hits of a program that a killed recorder has left; `caught`: those that copies have
/// logged. `None` if none is missing.
pub fn left_by(program: BorrowedFd, schema: &str, name: &str, caught: u64) -> Option<MissedHits> {
    let count = recursion_misses(program).saturating_sub(caught);
    let (schema, place) = (schema.into(), place_of(name));
    (count > 0).then_some(MissedHits {
        schema,
        place,
        count,
        spans: Vec::new(),
        why: String::new(),
        sampled: false,
    })
}

fn recursion_misses(program: BorrowedFd) -> u64 {
    // SAFETY: zeros are a valid value; the size is the one said, and the kernel writes no more.
    unsafe {
        let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
        let mut size = size_of_val(&info) as u32;
        let result = libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size);
        if result == 0 { info.recursion_misses } else { 0 }
    }
}

/// Keeps a compiled schema of which copies may be needed.
pub fn keep(unit: &CompiledSchema, config: &Config) -> Option<CompiledSchema> {
    config.preempt.then(|| unit.clone())
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe::new(0, Part::default(), 0, "", &Target::bare(ProbeKind::Tracepoint, ""))
    }

    fn spans(probe: &Probe) -> Vec<(u64, u64, u64)> {
        probe.spans.iter().map(|s| (s.from, s.to, s.count)).collect()
    }

    #[test]
    fn lost_hits_lie_between_two_looks() {
        let mut p = probe();
        p.note(0, 0, 10);
        p.note(3, 10, 20);
        p.note(5, 20, 30);
        p.note(5, 30, 40);
        p.note(6, 40, 50);
        assert_eq!(spans(&p), [(10, 30, 5), (40, 50, 1)]);
    }

    #[test]
    fn a_hit_that_a_copy_logs_after_a_look_is_not_lost() {
        let mut p = probe();
        p.note(2, 0, 10);
        p.note(5, 20, 30);
        p.note(1, 30, 40);
        assert_eq!((spans(&p), p.lost), (vec![(0, 10, 1)], 1));
        p.note(0, 40, 50);
        assert_eq!((spans(&p), p.lost), (vec![], 0));
    }

    #[test]
    fn when_spans_run_out_the_last_one_grows() {
        let mut p = probe();
        (0..100u64).for_each(|n| p.note(n + 1, 10 * n, 10 * n + 5));
        assert_eq!(p.spans.len(), SPANS_MAX);
        assert_eq!(p.spans.iter().map(|s| s.count).sum::<u64>(), 100);
        assert_eq!(p.spans.last().map(|s| s.to), Some(995));
    }
}
