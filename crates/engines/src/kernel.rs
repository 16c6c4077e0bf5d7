// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kernel engine: modules whose code logs events, and `/dev/klogger`, by which the core module
//! shares its rings with the recorder.

mod costs;
mod device;
mod engine;
mod layout;
mod load;
mod parameters;
mod probes;
mod schemata;
mod stacks;
mod wake_ups;

pub use engine::INFO;
pub use schemata::resident;

use crate::anchor::Anchors;
use crate::request::{RECORDER, Request};
use crate::scope::{SCOPE_BYTES, Scope};
use crate::times::Times;
use device::{Device, SchemaAbout, Start};
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::{Error, Mapping};
use klogger_os::{cgroup_memory, machine};
use klogger_ring::clock::SharedClock;
use klogger_ring::{EVENTS_MAX, Rings};
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use layout::Layout;
use load::Modules;
use schemata::{check_version, failed, use_schemata};
use stacks::Stacks;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Everything that the core module shares. Mappings keep the device open, and the device keeps
/// modules loaded, so the order of the fields, which is the order of release, matters.
pub struct KernelEngine {
    rings: Arc<Mapping>,
    /// CPUs that may have rings: numbers below this.
    cpus: usize,
    scope: Scope,
    ringless: Mapping,
    fired: Mapping,
    stacks: Option<Stacks>,
    layout: Layout,
    device: Arc<Device>,
    anchors: Arc<Anchors>,
    /// For each compiled schema: its entry in the kernel.
    schemata: Vec<SchemaAbout>,
    /// Of all events that it logs.
    ids: Vec<u16>,
    /// For each compiled schema: whether we loaded its module. Others may have attach points that
    /// its text does not have.
    ours: Vec<bool>,
    probes: Vec<ProbeState>,
    times: Times,
    costs: Option<Costs>,
    _modules: Modules,
}

impl KernelEngine {
    /// Loads missing modules and makes the rings. Attaches nothing.
    /// `units`: those whose events it logs, each with the id of its first event.
    fn load(request: &Request, units: &[(&CompiledSchema, u16)]) -> Result<KernelEngine, Error> {
        host_kernel::check_module_privilege()?;
        let cpus = request.check_for_probes()?;
        // The core module's rings and tables (`ring.c`, `stack.c`) and the code of modules count
        // for no control group: the kernel charges only what is asked for with __GFP_ACCOUNT.
        cgroup_memory::left().map(|l| request.check_group(0, RECORDER, &l)).transpose()?;
        let mut modules = Modules::new(request.modules.as_deref());
        let device = modules.open_device()?;
        let about = check_version(&device)?;
        let (schemata, ours) = use_schemata(&device, &mut modules, units)?;
        parameters::set(units)?;
        let is_counter = about.clock == device::CLOCK_COUNTER;
        let costs = request.calibrate.then(|| costs::measure(units, is_counter));
        let mut start = Start {
            ring_size: request.buffer_size,
            stride: 0,
            lowwater: request.lowwater,
            scoped: request.target.is_scoped().into(),
            overwrite: request.overwrite.into(),
            stacks: 0,
            unused: 0,
        };
        device.start(&mut start).map_err(|e| cannot_start(e, request.buffer_size))?;
        let layout = Layout {
            ring_size: start.ring_size as usize,
            stride: start.stride as usize,
            cpus: about.cpus as usize,
        };
        let map = |offset, length| device.map(offset, length).map_err(failed("share its memory"));
        // The clock is chosen when the recording begins.
        let times = match check_version(&device)?.clock {
            device::CLOCK_COUNTER => Times::Counter(SharedClock::start()),
            _ => Times::Ns,
        };
        Ok(KernelEngine {
            costs,
            cpus,
            ids: units.iter().flat_map(|(unit, base)| ids(unit, *base)).collect(),
            rings: Arc::new(layout.map(&device)?),
            scope: Scope::new(map(device::MAP_SCOPE, SCOPE_BYTES)?),
            ringless: map(device::MAP_RINGLESS, 8 * EVENTS_MAX)?,
            fired: map(device::MAP_FIRED, device::FIRED_BYTES)?,
            stacks: match start.stacks {
                0 => None,
                _ => Some(Stacks::new(map(device::MAP_STACKS, Stacks::BYTES)?)),
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

fn ids(unit: &CompiledSchema, base: u16) -> Range<u16> {
    base..base + unit.schema.events.len() as u16
}

fn cannot_start(error: io::Error, ring_size: u64) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            let cpus = machine::online_cpus().map_or(1, |c| c.len());
            let needed = (cpus * Rings::stride(ring_size as usize)) >> 20;
            Error::new(format!("not enough memory for the rings: {needed} MiB needed"))
                .help("choose a smaller --buffer-size")
        }
        Some(libc::EINVAL) => {
            Error::new(format!("the kernel engine cannot make a ring of {ring_size} bytes"))
                .help("choose another --buffer-size")
        }
        _ => failed("make its rings")(error),
    }
}
