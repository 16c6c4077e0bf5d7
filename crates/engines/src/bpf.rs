// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The bpf engine: loads compiled schemata, shares one set of rings between them, attaches their
//! programs.

pub mod attach;
pub mod grace;
pub mod hits;
pub mod load;
pub mod pins;

use crate::anchor::{Anchors, Place};
use crate::engine::{Call, Calls, Growth, LeftOut, MissedHits, Probing, Times, events_of};
use crate::registry::EngineInfo;
use crate::scope::{SCOPE_BYTES, Scope};
use hits::Hits;
use klogger_codegen::bpf::programs;
use klogger_log::preamble::ProbeState;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_ring::CpuReader;
use klogger_ring::{EVENTS_MAX, NESTED, RingReader, Rings};
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan};
use klogger_toolchain::host_kernel;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBufferBuilder};
use load::{
    CALLS, Config, ENABLED, LARGER, Part, STACKLESS, STACKS, Shared, larger_ring, load_object,
    map_fd, map_memory,
};
use pins::Pins;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// As the registry has it.
pub const INFO: EngineInfo = EngineInfo {
    name: "bpf",
    description: "probes in the kernel, as BPF programs",
    check: can_run,
};

fn can_run() -> Result<(), Error> {
    host_kernel::check_privilege()?;
    host_kernel::check_has_types()
}

/// Loaded programs, and the memory that they share with us.
pub struct BpfEngine {
    objects: Vec<Loaded>,
    links: Vec<Link>,
    rings: Rings,
    config: Config,
    nested: Rings,
    scope: Scope,
    ringless: Mapping,
    unread: Mapping,
    limits: Limits,
    stacks: Option<Stacks>,
    probes: Vec<ProbeState>,
    shared: Shared,
    /// What would outlive this process if it were killed.
    kept: Arc<Mutex<Kept>>,
    places: Arc<Places>,
    hits: Mutex<Hits>,
}

/// What would outlive this process if it were killed, as soon as there is a log that it belongs to.
#[derive(Default)]
struct Kept {
    pins: Option<Pins>,
    /// Larger rings that came before.
    waiting: Vec<(u16, MapHandle)>,
}

impl Kept {
    fn keep(&mut self, cpu: u16, ring: &MapHandle) -> Result<(), Error> {
        match &self.pins {
            Some(pins) => pins.map(&pins::larger(cpu), ring.as_fd()),
            None => {
                let again = MapHandle::try_from(ring);
                let again = again.map_err(|e| {
                    Error::new(format!("cannot keep the larger ring of CPU {cpu}: {e}"))
                })?;
                self.waiting.push((cpu, again));
                Ok(())
            }
        }
    }
}

/// Where the rings are in the kernel's memory, should it crash.
struct Places {
    anchors: Anchors,
    nested: Rings,
    ringless: OwnedFd,
    /// Larger rings that came before there was an anchor.
    waiting: Mutex<Vec<(u16, Rings)>>,
}

struct Loaded {
    object: Object,
    plan: Vec<Plan>,
    schema: String,
    base: u16,
    events: usize,
    enabled: Mapping,
    /// If copies of its programs may be wanted.
    unit: Option<CompiledSchema>,
}

/// Events that may come so often and no oftener; `struct klogger_rate` and `struct
/// klogger_left_out` of the BPF runtime.
struct Limits {
    rates: Mapping,
    left: Mapping,
    cpus: usize,
    ids: BTreeSet<u16>,
}

/// Words of either structure.
const RATE_WORDS: usize = 3;
/// Bytes of what was left out on one CPU.
const LEFT_BYTES: usize = 8 * RATE_WORDS * EVENTS_MAX;

impl Limits {
    fn new(shared: &Shared, cpus: usize) -> Result<Limits, Error> {
        let rates = map_memory(&shared.rates, LEFT_BYTES)?;
        Ok(Limits {
            rates,
            left: map_memory(&shared.left, cpus * LEFT_BYTES)?,
            cpus,
            ids: BTreeSet::new(),
        })
    }

    /// A tenth of a second's worth may come at once, and one event always.
    fn set(&mut self, id: u16, per_second: u64) {
        let step = 16_000_000_000 / per_second.max(1);
        let words = [0, step, (per_second / 10).saturating_sub(1) * step];
        for (i, word) in words.into_iter().enumerate() {
            self.rates.word(8 * (RATE_WORDS * usize::from(id) + i)).store(word, Ordering::Relaxed);
        }
        self.ids.insert(id);
    }

    fn left_out(&self) -> Vec<LeftOut> {
        let of = |cpu: usize, id: u16| {
            let at = cpu * LEFT_BYTES + 8 * RATE_WORDS * usize::from(id);
            let word = |i: usize| self.left.word(at + 8 * i).load(Ordering::Relaxed);
            LeftOut { id, cpu: cpu as u16, count: word(0), first: word(1), last: word(2) }
        };
        let all = (0..self.cpus).flat_map(|cpu| self.ids.iter().map(move |id| of(cpu, *id)));
        all.filter(|l| l.count > 0).collect()
    }
}

/// The kernel stacks of probe hits, and how many have no number.
pub struct Stacks {
    table: MapHandle,
    stackless: Mapping,
}

impl BpfEngine {
    /// Loads all units. Nothing is attached yet. `units`: each with the id of its first event;
    /// `plans`: of each; `example`: as [`load::example`] makes it.
    pub fn load(
        units: &[(&CompiledSchema, u16)],
        plans: Vec<Vec<Plan>>,
        config: &Config,
        example: Option<&MapHandle>,
    ) -> Result<BpfEngine, Error> {
        load::keep_messages();
        let mut objects: Vec<Loaded> = Vec::new();
        let mut shared: Option<Shared> = None;
        for ((unit, base), plan) in units.iter().zip(plans) {
            let probes = objects.iter().map(|o| o.plan.len() as u32).sum();
            let part = Part { base: *base, probes, copy: 0 };
            let object = load_object(unit, &plan, part, config, shared.as_ref(), example)?;
            if shared.is_none() {
                shared = Some(Shared::of(&object)?);
            }
            if let Some(shared) = shared.as_mut().filter(|s| s.stacks.is_none())
                && object.maps().any(|m| m.name() == STACKS)
            {
                shared.stacks = Some((map_fd(&object, STACKS)?, map_fd(&object, STACKLESS)?));
            }
            let enabled = map_memory(&map_fd(&object, ENABLED)?, EVENTS_MAX)?;
            let (schema, events) = (unit.schema.name.clone(), unit.schema.events.len());
            objects.push(Loaded {
                object,
                plan,
                schema,
                base: *base,
                events,
                enabled,
                unit: hits::keep(unit, config),
            });
        }
        let shared = shared.ok_or_else(|| Error::new("nothing to load"))?;
        let length = config.rings * Rings::stride(config.ring_size);
        let rings = Rings::new(
            map_memory(&shared.rings, length)?,
            config.ring_size,
            config.rings,
            config.lowwater,
        );
        let length = config.rings * Rings::stride(NESTED);
        let nested =
            Rings::new(map_memory(&shared.nested, length)?, NESTED, config.rings, config.lowwater);
        let places = Arc::new(Places {
            anchors: Anchors::new(Times::Ns),
            nested: nested.clone(),
            ringless: shared
                .ringless
                .try_clone()
                .map_err(|e| Error::new(format!("cannot use the map of events: {e}")))?,
            waiting: Mutex::default(),
        });
        let stacks = match &shared.stacks {
            Some((_, stackless)) => Some(Stacks::new(&objects, stackless)?),
            None => None,
        };
        Ok(BpfEngine {
            objects,
            links: Vec::new(),
            rings,
            config: *config,
            nested,
            scope: Scope::new(map_memory(&shared.scope, SCOPE_BYTES)?),
            ringless: map_memory(&shared.ringless, 8 * EVENTS_MAX)?,
            unread: map_memory(&shared.unread, 8 * EVENTS_MAX)?,
            limits: Limits::new(&shared, config.rings)?,
            hits: Mutex::new(Hits::new(config, &shared)?),
            stacks,
            probes: Vec::new(),
            shared,
            kept: Arc::default(),
            places,
        })
    }
}

impl BpfEngine {
    fn pin_all(&self, pins: &Pins) -> Result<(), Error> {
        let shared = &self.shared;
        pins.map(pins::RINGS, shared.rings.as_fd())?;
        pins.map(pins::NESTED, shared.nested.as_fd())?;
        pins.map(pins::RINGLESS, shared.ringless.as_fd())?;
        pins.map(pins::UNREAD, shared.unread.as_fd())?;
        pins.map(pins::CAUGHT, shared.caught.as_fd())?;
        if let Some((stacks, stackless)) = &shared.stacks {
            pins.map(pins::STACKS, stacks.as_fd())?;
            pins.map(pins::STACKLESS, stackless.as_fd())?;
        }
        for o in &self.objects {
            for p in o.object.progs_mut().filter(|p| p.as_fd().as_raw_fd() >= 0) {
                pins.program(&o.schema, &p.name().to_string_lossy(), p.as_fd())?;
            }
        }
        Ok(())
    }
}

impl BpfEngine {
    /// In a map, which outlives this process as the rings do.
    fn drop_anchor(&self, about: &[u8], pins: &Pins) -> Result<(), Error> {
        let place = |cpu| {
            let (main, nested) = (self.rings.place(cpu), self.nested.place(cpu));
            Place { cpu: cpu as u16, size: self.rings.size(), main, nested }
        };
        let places: Vec<Place> = (0..self.rings.count()).map(place).collect();
        let room = |bytes: usize| {
            let map = pins.memory(pins::ANCHOR, bytes)?;
            map_memory(&map, bytes)
        };
        self.places.begin(about, &places, &self.ringless, &room)
    }
}

impl Places {
    fn begin(
        &self,
        about: &[u8],
        places: &[Place],
        ringless: &Mapping,
        room: &dyn Fn(usize) -> Result<Mapping, Error>,
    ) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.anchors.add(Some(about), places, ringless, room)?;
        waiting.drain(..).try_for_each(|(cpu, larger)| self.add_larger(cpu, &larger))
    }

    /// A ring that takes the place of a CPU's own.
    fn add(&self, cpu: u16, larger: &Rings) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.anchors.are_there() {
            return self.add_larger(cpu, larger);
        }
        waiting.push((cpu, larger.clone()));
        Ok(())
    }

    fn add_larger(&self, cpu: u16, larger: &Rings) -> Result<(), Error> {
        let (main, nested) = (larger.place(0), self.nested.place(cpu.into()));
        let place = Place { cpu, size: larger.size(), main, nested };
        let room = |bytes: usize| {
            let map = pins::memory("anchor", bytes)
                .map_err(|e| Error::new(format!("no memory for an anchor: {e}")))?;
            let fd = map.as_fd().try_clone_to_owned();
            map_memory(
                &fd.map_err(|e| Error::new(format!("cannot use memory for an anchor: {e}")))?,
                bytes,
            )
        };
        self.anchors.add(None, &[place], &map_memory(&self.ringless, 8 * EVENTS_MAX)?, &room)
    }
}

impl Probing for BpfEngine {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn attach(&mut self, units: &[(&CompiledSchema, u16)]) -> Result<(), Error> {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        for (n, (loaded, (unit, base))) in self.objects.iter().zip(units).enumerate() {
            let schema = &unit.schema;
            let part = Part { base: *base, probes: self.probes.len() as u32, copy: 0 };
            for (i, p) in loaded.plan.iter().enumerate() {
                let mut state = ProbeState { schema: schema.name.clone(), ..ProbeState::default() };
                state.events = events_of(&schema.probes[i]);
                let shown = &schema.probes[i].targets[p.target.unwrap_or(0)];
                state.target = shown.label();
                state.note = p
                    .refusals
                    .iter()
                    .map(|(_, r)| r.message.as_str())
                    .collect::<Vec<_>>()
                    .join("; ");
                if let Some(target) = p.target {
                    let function =
                        programs(schema).into_iter().find(|f| f.probe == i && f.target == target);
                    let function = function
                        .ok_or_else(|| Error::new("a planned program was not generated"))?;
                    self.links.push(attach::attach(&loaded.object, &function.name, shown)?);
                    state.attached = true;
                    hits.add(n, part, i, &function.name, shown);
                }
                self.probes.push(state);
            }
        }
        Ok(())
    }

    fn probes(&self) -> &[ProbeState] {
        &self.probes
    }

    fn readers(&self) -> Result<Vec<(u16, CpuReader)>, Error> {
        let reader = |cpu| CpuReader::new(self.rings.reader(cpu), Some(self.nested.reader(cpu)));
        // One that is offline may come back.
        Ok((0..self.config.rings).map(|cpu| (cpu as u16, reader(cpu))).collect())
    }

    fn calls(&self) -> Result<Box<dyn Calls>, Error> {
        let object = self.objects.first().ok_or_else(|| Error::new("nothing is loaded"))?;
        let map = object.object.maps().find(|m| m.name() == CALLS);
        let map =
            map.ok_or_else(|| Error::new(format!("the compiled schema has no map '{CALLS}'")))?;
        let handle = MapHandle::try_from(&map)
            .map_err(|e| Error::new(format!("cannot use the map '{CALLS}': {e}")))?;
        Ok(Box::new(CallMap(handle)))
    }

    fn growth(&self) -> Option<Box<dyn Growth>> {
        let Config { larger: size, larger_memory: left, overwrite, .. } = self.config;
        let all = self.objects.first()?.object.maps().find(|m| m.name() == LARGER)?;
        let all = MapHandle::try_from(&all).ok().filter(|_| size > 0 && !overwrite)?;
        Some(Box::new(LargerRings {
            all,
            size,
            left,
            kept: self.kept.clone(),
            places: self.places.clone(),
        }))
    }

    fn times(&self) -> Times {
        Times::Ns
    }

    fn keep(&mut self, about: &[u8]) -> Result<(), Error> {
        let pins = Pins::new()?;
        self.pin_all(&pins)?;
        // Where the kernel does not say which pages are ours, an image of its memory will not have
        // them.
        let _ = self.drop_anchor(about, &pins);
        // Last: who finds it finds all.
        pins.about(about)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut kept.waiting);
        let pinned =
            waiting.iter().try_for_each(|(cpu, ring)| pins.map(&pins::larger(*cpu), ring.as_fd()));
        kept.pins = Some(pins);
        pinned?;
        Ok(())
    }

    fn detach(&mut self) {
        self.links.clear();
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).detach();
        grace::wait();
    }

    fn forget(&self) -> Result<(), Error> {
        for map in self
            .objects
            .iter()
            .flat_map(|o| o.object.maps())
            .filter(|m| m.name().to_string_lossy().ends_with(".bss"))
        {
            let zeros = vec![0; map.value_size() as usize];
            let cannot = |e| Error::new(format!("cannot clear the variables of a schema: {e}"));
            map.update(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY).map_err(cannot)?;
        }
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).begin(&self.objects);
        Ok(())
    }

    fn set_enabled(&self, id: u16, enabled: bool) {
        if let Some(o) =
            self.objects.iter().find(|o| (o.base..o.base + o.events as u16).contains(&id))
        {
            let at = o.enabled.at(usize::from(id - o.base), 1);
            // As enum klogger_state has it.
            let state = if enabled { 1 + u8::from(self.limits.ids.contains(&id)) } else { 0 };
            // SAFETY: within the mapping; programs read the byte with single loads.
            unsafe { AtomicU8::from_ptr(at) }.store(state, Ordering::Relaxed);
        }
    }

    fn limit(&mut self, id: u16, per_second: u64) -> Result<(), Error> {
        self.limits.set(id, per_second);
        Ok(())
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.limits.left_out()
    }

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn ringless(&self, id: u16) -> u64 {
        self.ringless.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn unread(&self, id: u16) -> u64 {
        self.unread.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn look(&self) {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).look(&self.objects, true);
    }

    fn missed_hits(&self) -> Vec<MissedHits> {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        hits.look(&self.objects, false);
        hits.missed(&self.objects)
    }

    fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    /// While the kernel copies a stack, its place looks free to others.
    fn stacks(&self) -> Option<Vec<(u32, Vec<u64>)>> {
        self.stacks.as_ref().map(Stacks::read)
    }

    fn stackless(&self) -> (u64, u64) {
        self.stacks.as_ref().map_or((0, 0), Stacks::without_number)
    }
}

impl Stacks {
    /// The table is the same in all objects that have one.
    fn new(objects: &[Loaded], stackless: &OwnedFd) -> Result<Stacks, Error> {
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

    pub fn read(&self) -> Vec<(u32, Vec<u64>)> {
        let stack = |key: Vec<u8>| {
            let place = u32::from_ne_bytes(*key.first_chunk()?);
            let bytes = self.table.lookup(&key, MapFlags::ANY).ok()??;
            let (words, _) = bytes.as_chunks();
            let addresses = words.iter().map(|w| u64::from_ne_bytes(*w)).take_while(|a| *a != 0);
            Some((place + 1, addresses.collect()))
        };
        self.table.keys().filter_map(stack).collect()
    }

    /// (places taken, could not be walked)
    pub fn without_number(&self) -> (u64, u64) {
        let word = |n: usize| self.stackless.word(8 * n).load(Ordering::Relaxed);
        (word(0), word(1))
    }
}

/// A ring buffer of the kernel's own, with the numbers of CPUs.
struct CallMap(MapHandle);

impl Calls for CallMap {
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(Call)) -> Result<(), Error> {
        let broken = |e| Error::new(format!("cannot listen for rings that fill up: {e}"));
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .into_iter()
                .for_each(|b| heard(Call::Filling(u32::from_ne_bytes(*b))));
            0
        };
        builder.add(&self.0, take).map_err(broken)?;
        let buffer = builder.build().map_err(broken)?;
        while go_on() {
            match buffer.poll(Duration::from_millis(100)) {
                Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => return Err(broken(e)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Larger rings, until they take more memory than they may.
struct LargerRings {
    all: MapHandle,
    size: usize,
    left: u64,
    kept: Arc<Mutex<Kept>>,
    places: Arc<Places>,
}

impl Growth for LargerRings {
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error> {
        let bytes = Rings::stride(self.size);
        let Some(left) = self.left.checked_sub(bytes as u64) else { return Ok(None) };
        let cannot =
            |e: String| Error::new(format!("cannot make a larger ring for CPU {cpu}: {e}"));
        let map = larger_ring(self.size).map_err(|e| cannot(e.to_string()))?;
        let fd = map.as_fd().try_clone_to_owned().map_err(|e| cannot(e.to_string()))?;
        // Half of it is room for whatever holds up its reader.
        let ring = Rings::new(map_memory(&fd, bytes)?, self.size, 1, 50);
        let reader = ring.reader(0);
        reader.open(false);
        // As for those that it began with.
        let _ = self.places.add(cpu, &ring);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(cpu, &map)?;
        let (key, value) = (u32::from(cpu).to_ne_bytes(), fd.as_raw_fd().to_ne_bytes());
        self.all.update(&key, &value, MapFlags::ANY).map_err(|e| cannot(e.to_string()))?;
        self.left = left;
        Ok(Some(reader))
    }
}
