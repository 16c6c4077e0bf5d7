// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads the programs of a schema without attaching them, to find those that the kernel refuses.

use super::load::{Config, Part, choose_programs, keep_messages, load_opened, open_object};
use super::refused::Refused;
use crate::request::BUFFER_MIN;
use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::{Program, programs};
use klogger_os::{Error, uname};
use klogger_ring::layout::bpf as layout;
use klogger_toolchain::compiled_schema::{CompiledSchema, plan};
use klogger_toolchain::host_kernel;

/// Loads each planned program of a schema alone, as for a recording of some threads, and attaches
/// none. Returns those that the kernel refuses.
pub fn try_load(unit: &CompiledSchema, types: &KernelTypes) -> Result<Vec<Refused>, Error> {
    keep_messages();
    let (release, version, ..) = uname();
    let config = Config {
        rings: 1,
        ring_size: BUFFER_MIN as usize,
        larger: 0,
        larger_memory: 0,
        scoped: true,
        overwrite: false,
        lowwater: 10,
        preempt: host_kernel::preempts_programs(types, &release, &version),
        preemption: host_kernel::preemption(types, &version),
        preempt_count: types.preempt_count(),
        calls_32: klogger_codegen::system_calls::has_32_bit(types),
        uprobe_multi: host_kernel::has_uprobe_multi(types),
        cpus: [0; layout::CPUS_MAX / 64],
        choice: None,
    };
    let plan = plan(&unit.schema, types)?;
    let mut refused = Vec::new();
    let planned = |one: &&Program| plan[one.probe].places_of(one).next().is_some();
    for one in programs(&unit.schema).iter().filter(planned) {
        let mut open = open_object(unit, Part::default(), &config, None, None)?;
        choose_programs(&mut open, &unit.schema, &plan, &config, |p| p.name == one.name)?;
        refused.extend(load_opened(open, &unit.schema).err().map(|refused| *refused));
    }
    Ok(refused)
}
