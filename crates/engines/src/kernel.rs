// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kernel engine, from the recorder's side: modules whose code logs events, and `/dev/klogger`,
//! by which the core module lends us its rings.

mod costs;
mod device;
mod load;
mod probes;

use crate::anchor::{Anchors, Place};
use crate::engine::{Call, Calls, MissedHits, Probing, Times};
use crate::registry::EngineInfo;
use crate::scope::{SCOPE_BYTES, Scope};
use device::{Device, SchemaAbout, Start, Use};
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os as os;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_os::machine;
use klogger_ring::CpuReader;
use klogger_ring::clock::SharedClock;
use klogger_ring::{EVENTS_MAX, RingReader, Rings};
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use load::{Modules, cannot_open, module_of};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LISTEN: Duration = Duration::from_millis(100);

/// As the registry has it.
pub const INFO: EngineInfo = EngineInfo {
    name: "kernel",
    description: "probes in the kernel, as modules that are built for it; and programs, as user",
    check: can_run,
};

fn can_run() -> Result<(), Error> {
    host_kernel::check_module_privilege()?;
    host_kernel::check_takes_modules()
}

/// What the recorder decides before loading.
pub struct Config<'a> {
    /// The folder of modules that are not in the kernel yet.
    pub modules: Option<&'a Path>,
    /// Bytes of a CPU's main ring, a power of two.
    pub ring_size: u64,
    /// Only threads whose bit is set are logged.
    pub scoped: bool,
    pub overwrite: bool,
    /// Percent of a ring; when less is free, its drain thread is called.
    pub lowwater: u32,
    /// Whether to measure what events cost.
    pub calibrate: bool,
}

/// Everything that is lent to us. Mappings keep the device open and the device keeps modules
/// loaded, so the fields' order, in which they are given back, matters.
pub struct KernelEngine {
    rings: Arc<Mapping>,
    scope: Scope,
    ringless: Mapping,
    stacks: Option<Mapping>,
    layout: Layout,
    device: Arc<Device>,
    anchors: Arc<Anchors>,
    /// Of each unit: what the kernel says of it.
    schemata: Vec<SchemaAbout>,
    /// Of each unit: whether its module is ours. Others may know places that its text does not.
    ours: Vec<bool>,
    probes: Vec<ProbeState>,
    times: Times,
    pub costs: Option<Costs>,
    _modules: Modules,
}

/// Where rings are in their mapping.
#[derive(Clone, Copy)]
struct Layout {
    ring_size: usize,
    stride: usize,
    cpus: usize,
}

/// The digest by which two texts of one schema are told apart.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// The schemata among `wanted` that the kernel has already, with the same text.
pub fn resident(wanted: &[&Schema]) -> Result<Vec<String>, Error> {
    let device = match Device::open() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(cannot_open)?,
    };
    check_version(&device)?;
    let there = device.schemata().map_err(failed("say which schemata it has"))?;
    let mut names = Vec::new();
    for schema in wanted {
        if find(&there, schema)?.is_some() {
            names.push(schema.name.clone());
        }
    }
    Ok(names)
}

fn find<'a>(there: &'a [SchemaAbout], schema: &Schema) -> Result<Option<&'a SchemaAbout>, Error> {
    let Some(found) = there.iter().find(|s| s.name() == schema.name) else { return Ok(None) };
    let same = found.text_digest == digest(&schema.text)
        && found.text_length as usize == schema.text.len();
    match (same, schema.name == load::CORE) {
        (true, _) => Ok(Some(found)),
        (false, true) => Err(other_version()),
        (false, false) => {
            Err(Error::new(format!("the kernel has another text of schema '{}'", schema.name))
                .help(format!(
                    "unload it: rmmod {}; or record with its own text",
                    module_of(&schema.name)
                )))
        }
    }
}

fn other_version() -> Error {
    Error::new("the module klogger that is loaded belongs to another version of klogger")
        .help("unload it: rmmod klogger (after those that use it: lsmod | grep klogger)")
}

fn check_version(device: &Device) -> Result<device::About, Error> {
    // The requests' numbers contain the structures' sizes, so that an other version may not know
    // them.
    match device.about() {
        Ok(about) if about.version == device::VERSION => Ok(about),
        Ok(_) => Err(other_version()),
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => Err(other_version()),
        Err(e) => Err(failed("say what it is")(e)),
    }
}

/// An error of a request.
fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |e| {
        Error::new(format!("the kernel engine could not {what}: {e}"))
            .help("the end of 'dmesg' may say why")
    }
}

impl KernelEngine {
    /// Loads what is missing, and makes the rings. Nothing is attached yet. `units`: each with the
    /// id of its first event, the built-in one first.
    pub fn load(units: &[(&CompiledSchema, u16)], config: &Config) -> Result<KernelEngine, Error> {
        let mut modules = Modules::new(config.modules);
        let device = modules.open_device()?;
        let about = check_version(&device)?;
        let (schemata, ours) = use_schemata(&device, &mut modules, units)?;
        let costs =
            config.calibrate.then(|| costs::measure(units, about.clock == device::CLOCK_COUNTER));
        let mut start = Start {
            ring_size: config.ring_size,
            stride: 0,
            lowwater: config.lowwater,
            scoped: config.scoped.into(),
            overwrite: config.overwrite.into(),
            stacks: 0,
            unused: 0,
        };
        device.start(&mut start).map_err(|e| cannot_start(e, config.ring_size))?;
        let layout = Layout {
            ring_size: start.ring_size as usize,
            stride: start.stride as usize,
            cpus: about.cpus as usize,
        };
        let map = |offset, length| device.map(offset, length).map_err(failed("share its memory"));
        // Chosen when the recording began.
        let times = match check_version(&device)?.clock {
            device::CLOCK_COUNTER => Times::Counter(SharedClock::start()),
            _ => Times::Ns,
        };
        Ok(KernelEngine {
            costs,
            rings: Arc::new(layout.map(&device)?),
            scope: Scope::new(map(device::MAP_SCOPE, SCOPE_BYTES)?),
            ringless: map(device::MAP_RINGLESS, 8 * EVENTS_MAX)?,
            stacks: match start.stacks {
                0 => None,
                _ => Some(map(
                    device::MAP_STACKS,
                    device::STACKS_HEAD + device::STACK_SLOTS * device::STACK_SLOT,
                )?),
            },
            layout,
            schemata,
            ours,
            probes: Vec::new(),
            anchors: Arc::new(Anchors::new(times.clone())),
            times,
            device: Arc::new(device),
            _modules: modules,
        })
    }
}

/// Loads the units that the kernel does not have, and lays claim to all of them.
fn use_schemata(
    device: &Device,
    modules: &mut Modules,
    units: &[(&CompiledSchema, u16)],
) -> Result<(Vec<SchemaAbout>, Vec<bool>), Error> {
    let there = || device.schemata().map_err(failed("say which schemata it has"));
    let before = there()?;
    let mut ours = Vec::new();
    for (unit, _) in units {
        let missing = find(&before, &unit.schema)?.is_none();
        if missing {
            modules.load(&module_of(&unit.schema.name))?;
        }
        ours.push(missing || unit.schema.name == load::CORE);
    }
    let (now, mut schemata) = (there()?, Vec::new());
    for (unit, base) in units {
        let name = &unit.schema.name;
        let found = *find(&now, &unit.schema)?.ok_or_else(|| {
            Error::new(format!("the module {} does not bring the schema '{name}'", module_of(name)))
                .help("make it again with 'klogger build'")
        })?;
        let claim =
            Use { index: found.index, base: (*base).into(), text_digest: found.text_digest };
        device.use_schema(claim).map_err(failed(&format!("use schema '{name}'")))?;
        schemata.push(found);
    }
    Ok((schemata, ours))
}

fn cannot_start(error: io::Error, ring_size: u64) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            let cpus = machine::online_cpus().map_or(1, |c| c.len());
            let needed = (cpus * Rings::stride(ring_size as usize)) >> 20;
            Error::new(format!(
                "the rings need {needed} MiB of kernel memory, which are not to be had"
            ))
            .help("choose a smaller --buffer-size")
        }
        Some(libc::EINVAL) => {
            Error::new(format!("the kernel engine cannot make a ring of {ring_size} bytes"))
                .help("choose another --buffer-size")
        }
        _ => failed("make its rings")(error),
    }
}

impl Layout {
    fn map(&self, device: &Device) -> Result<Mapping, Error> {
        device.map(device::MAP_RINGS, self.stride * self.cpus).map_err(failed("share its rings"))
    }

    /// CPUs that have rings. One that was offline has none: its part of the mapping is empty.
    fn there(&self, rings: &Mapping) -> impl Iterator<Item = usize> {
        let has_ring = |cpu: &usize| {
            rings.word(cpu * self.stride + device::RING_MASK).load(Ordering::Relaxed) != 0
        };
        (0..self.cpus).filter(has_ring)
    }

    fn readers(&self, rings: &Arc<Mapping>) -> Vec<(u16, CpuReader)> {
        self.there(rings).map(|cpu| (cpu as u16, self.reader(rings, cpu))).collect()
    }

    fn place<'a>(&self, rings: &'a Mapping, cpu: usize) -> Place<'a> {
        let main = cpu * self.stride;
        let nested = main + Rings::stride(self.ring_size);
        Place {
            cpu: cpu as u16,
            size: self.ring_size,
            main: (rings, main),
            nested: (rings, nested),
        }
    }

    /// The nested ring stands right behind the main one.
    fn reader(&self, rings: &Arc<Mapping>, cpu: usize) -> CpuReader {
        let main = cpu * self.stride;
        let nested = main + Rings::stride(self.ring_size);
        CpuReader::new(
            RingReader::of_kernel(rings.clone(), main, self.ring_size),
            Some(RingReader::of_kernel(rings.clone(), nested, klogger_ring::NESTED)),
        )
    }
}

impl Probing for KernelEngine {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn attach(&mut self, units: &[(&CompiledSchema, u16)]) -> Result<(), Error> {
        self.device.attach().map_err(failed("attach its probes"))?;
        for (((unit, _), about), ours) in units.iter().zip(&self.schemata).zip(&self.ours) {
            let places = self.places(about)?;
            let states = probes::states(&unit.schema, &places);
            if *ours {
                probes::check(&unit.schema, &states)?;
            }
            self.probes.extend(states);
        }
        Ok(())
    }

    fn probes(&self) -> &[ProbeState] {
        &self.probes
    }

    fn readers(&self) -> Result<Vec<(u16, CpuReader)>, Error> {
        Ok(self.layout.readers(&self.rings))
    }

    fn calls(&self) -> Result<Box<dyn Calls>, Error> {
        let (device, anchors) = (self.device.clone(), self.anchors.clone());
        Ok(Box::new(DeviceCalls { device, anchors, cpus: self.layout.cpus }))
    }

    fn times(&self) -> Times {
        self.times.clone()
    }

    /// Nothing outlives the recorder. But if the kernel crashes, an image of its memory has the
    /// rings.
    fn keep(&mut self, about: &[u8]) -> Result<(), Error> {
        // Where the kernel does not say which pages are ours, an image will not have them.
        let _ = add_anchor(&self.anchors, &self.device, &self.layout, &self.rings, Some(about));
        Ok(())
    }

    fn detach(&mut self) {
        // It cannot fail. If it did, closing the device would do the same.
        let _ = self.device.detach();
    }

    fn forget(&self) -> Result<(), Error> {
        self.device.forget().map_err(failed("clear the variables of a schema"))
    }

    fn set_enabled(&self, id: u16, enabled: bool) {
        // Events of programs alone are unknown to the kernel.
        let _ = self.device.event(id, enabled);
    }

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn ringless(&self, id: u16) -> u64 {
        self.ringless.word(8 * usize::from(id)).load(Ordering::Relaxed)
    }

    fn missed_hits(&self) -> Vec<MissedHits> {
        let mut missed = Vec::new();
        for about in &self.schemata {
            for place in self.places(about).unwrap_or_default().iter().filter(|p| p.missed > 0) {
                let (schema, place, count) = (about.name(), place.name(), place.missed);
                missed.push(MissedHits {
                    schema,
                    place,
                    count,
                    spans: Vec::new(),
                    why: String::new(),
                });
            }
        }
        missed
    }

    fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    fn stacks(&self) -> Option<Vec<(u32, Vec<u64>)>> {
        let table = self.stacks.as_ref()?;
        Some(
            (0..device::STACK_SLOTS)
                .filter_map(|n| Some((n as u32 + 1, stack(table, n)?)))
                .collect(),
        )
    }

    fn stackless(&self) -> (u64, u64) {
        (self.stacks.as_ref().map_or(0, |table| table.word(0).load(Ordering::Relaxed)), 0)
    }
}

/// The frames of a slot, if one of them is complete.
fn stack(table: &Mapping, slot: usize) -> Option<Vec<u64>> {
    let at = device::STACKS_HEAD + slot * device::STACK_SLOT;
    // State and number of frames share a word. Pairs with the release store in klogger_take_slot().
    let head = table.word(at).load(Ordering::Acquire);
    let (state, frames) = (head as u32, (head >> 32) as usize);
    let frame = |n: usize| table.word(at + 8 + 8 * n).load(Ordering::Relaxed);
    (state == device::STACK_COMPLETE)
        .then(|| (0..frames.min(device::STACK_DEPTH)).map(frame).collect())
}

impl KernelEngine {
    fn places(&self, about: &SchemaAbout) -> Result<Vec<device::ProbeAbout>, Error> {
        (0..about.probes)
            .map(|place| {
                self.device.place(about.index, place).map_err(failed("say where its probes are"))
            })
            .collect()
    }
}

/// Says where these rings are in the machine's memory, for whoever has an image of it.
fn add_anchor(
    anchors: &Anchors,
    device: &Device,
    layout: &Layout,
    rings: &Mapping,
    about: Option<&[u8]>,
) -> Result<(), Error> {
    let ringless =
        device.map(device::MAP_RINGLESS, 8 * EVENTS_MAX).map_err(failed("share its memory"))?;
    let places: Vec<Place> = layout.there(rings).map(|cpu| layout.place(rings, cpu)).collect();
    let room = |bytes: usize| {
        device.map(device::MAP_ANCHOR, bytes).map_err(failed("share memory for an anchor"))
    };
    anchors.add(about, &places, &ringless, &room)
}

/// Calls by way of the device.
struct DeviceCalls {
    device: Arc<Device>,
    anchors: Arc<Anchors>,
    cpus: usize,
}

impl DeviceCalls {
    fn pass_on(&self, heard: &dyn Fn(Call)) -> Result<(), Error> {
        for call in self.device.calls().map_err(failed("say which rings fill up"))? {
            heard(match call {
                device::CALL_RESIZED => Call::NewRings(self.new_rings()?),
                cpu => Call::Filling(cpu),
            });
        }
        Ok(())
    }

    fn new_rings(&self) -> Result<Vec<(u16, CpuReader)>, Error> {
        let about = self.device.rings().map_err(failed("say how large its new rings are"))?;
        let layout = Layout {
            ring_size: about.ring_size as usize,
            stride: about.stride as usize,
            cpus: self.cpus,
        };
        let rings = Arc::new(layout.map(&self.device)?);
        // A recording goes on that will not survive a crash of the kernel.
        let _ = add_anchor(&self.anchors, &self.device, &layout, &rings, None);
        Ok(layout.readers(&rings))
    }
}

impl Calls for DeviceCalls {
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(Call)) -> Result<(), Error> {
        while go_on() {
            os::poll_readable(&[self.device.as_fd()], LISTEN)
                .map_err(failed("say which rings fill up"))?;
            self.pass_on(heard)?;
        }
        // What came while the answer changed.
        self.pass_on(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of our own in the place of the device's.
    fn memory(length: usize) -> Mapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length as u64).unwrap();
        Mapping::new(file.as_fd(), length).unwrap()
    }

    #[test]
    fn digests_are_fnv_1a() {
        assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn stacks_are_those_that_are_complete() {
        let table = memory(device::STACKS_HEAD + device::STACK_SLOTS * device::STACK_SLOT);
        let write = |slot: usize, state: u64, frames: &[u64]| {
            let at = device::STACKS_HEAD + slot * device::STACK_SLOT;
            table.word(at).store((frames.len() as u64) << 32 | state, Ordering::Relaxed);
            frames
                .iter()
                .enumerate()
                .for_each(|(i, f)| table.word(at + 8 + 8 * i).store(*f, Ordering::Relaxed));
        };
        write(0, 2, &[10, 20]);
        write(1, 1, &[30]);
        write(device::STACK_SLOTS - 1, 2, &[40; device::STACK_DEPTH]);
        assert_eq!(stack(&table, 0), Some(vec![10, 20]));
        assert_eq!(stack(&table, 1), None);
        assert_eq!(stack(&table, device::STACK_SLOTS - 1), Some(vec![40; device::STACK_DEPTH]));
    }

    #[test]
    fn rings_stand_side_by_side() {
        let ring_size = 16 << 10;
        let stride = Rings::stride(ring_size) + Rings::stride(klogger_ring::NESTED);
        let layout = Layout { ring_size, stride, cpus: 3 };
        let rings = Arc::new(memory(3 * stride));
        // CPU 2 was offline, and has none.
        let masks = [0, stride].map(|cpu| cpu + device::RING_MASK);
        masks.iter().for_each(|at| rings.word(*at).store(ring_size as u64 - 1, Ordering::Relaxed));
        // Heads of CPU 1's rings.
        rings.word(stride).store(8, Ordering::Relaxed);
        rings.word(stride + Rings::stride(ring_size)).store(16, Ordering::Relaxed);
        let fills: Vec<_> =
            layout.readers(&rings).iter().map(|(cpu, reader)| (*cpu, reader.fill())).collect();
        assert_eq!(fills, [(0, 0), (1, 24)]);
    }
}
