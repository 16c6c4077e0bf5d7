// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Probes at several places: a program for each place, which is the loaded program of the probe
//! once more, for another attach point and with the number of its place.
//!
//! libbpf loads one program for one attach point. What it has loaded has been relocated, so that
//! its instructions can be loaded again: an object for each place would take several times as long.

use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::{Program, numbers_places, programs};
use klogger_codegen::kernel_types::AttachType;
use klogger_os::Error;
use klogger_os::perf_events;
use klogger_os::programs::{self, Kind};
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::{ProbeKind, Schema, Target};
use klogger_toolchain::compiled_schema::{Place, Plan};
use libbpf_rs::{AsRawLibbpf, Object};
use libbpf_sys::{bpf_insn, bpf_program__expected_attach_type, bpf_program__type};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The program of a probe at one of its places.
pub struct Placed {
    /// Index of the probe in its schema.
    pub probe: usize,
    /// The place, as a target.
    pub target: Target,
    pub program: OwnedFd,
    /// It was loaded for a type of the kernel, which says where it is attached.
    by_type: bool,
}

/// What a program was loaded as, and is loaded as again.
struct Loaded {
    /// Numbers of the kernel, as in [`Kind`].
    program: u32,
    attach: u32,
    attached_by: Option<AttachType>,
}

impl Loaded {
    fn load(&self, name: &str, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
        let by = self.attached_by.as_ref();
        let module = by.and_then(|by| by.module.as_deref());
        let btf = module.map(programs::btf_of_module).transpose()?;
        let kind = Kind {
            program: self.program,
            attach: self.attach,
            btf_id: by.map_or(0, |by| by.id),
            btf: btf.as_ref().map_or(0, AsRawFd::as_raw_fd),
        };
        programs::load(kind, name, instructions)
    }
}

/// Whether the probe has a program for each place, in place of one that libbpf attaches.
fn has_placed(schema: &Schema, target: &Target) -> bool {
    target.is_many() || target.kind.takes_many() && numbers_places(schema)
}

/// The places of a schema's probes that have programs of their own, as targets; their numbers
/// follow each other.
pub fn places_of(schema: &Schema, plans: &[Plan]) -> Vec<(usize, Target, Place)> {
    let mut found = Vec::new();
    for (n, (probe, plan)) in schema.probes.iter().zip(plans).enumerate() {
        let target = plan.target.map(|target| &probe.targets[target]);
        let Some(target) = target.filter(|target| has_placed(schema, target)) else { continue };
        found.extend(plan.places.iter().map(|place| (n, target.at(&place.name), place.clone())));
    }
    found
}

/// How a place is called where its number is shown.
pub fn name_of(target: &Target) -> String {
    match target.kind {
        ProbeKind::Return => target.label(),
        _ => target.name.clone(),
    }
}

/// Loads the programs of all places of a schema's probes. `object` has the loaded programs that
/// they are made of; `first`: the number of the first place.
pub fn load(
    object: &Object,
    schema: &Schema,
    plans: &[Plan],
    types: &KernelTypes,
    first: usize,
) -> Result<Vec<Placed>, Error> {
    let programs = programs(schema);
    let places = places_of(schema, plans).into_iter().enumerate();
    let one = |(n, (probe, target, place)): (usize, (usize, Target, Place))| {
        let is_its = |p: &&Program| {
            (p.probe, Some(p.target), p.way) == (probe, plans[probe].target, place.way)
        };
        let template = programs.iter().find(is_its).map(|p| p.name.clone()).unwrap_or_default();
        let label = target.label();
        let cannot = |e: String| Error::new(format!("cannot load the program of {label}: {e}"));
        let number = u16::try_from(first + n).map_err(|_| {
            cannot("more places than 65535".into()).help("name fewer places in the schema")
        })?;
        let (as_what, instructions) = again(object, &template, &target, types, number)?;
        let name = format!("klogger_{probe}");
        let program = as_what.load(&name, &instructions);
        let program = program.map_err(|e| cannot(e.to_string()))?;
        let by_type = as_what.attached_by.is_some();
        Ok(Placed { probe, target, program, by_type })
    };
    places.map(one).collect()
}

/// The instructions of a loaded program, with the number of another place, and what they are loaded
/// as.
fn again(
    object: &Object,
    template: &str,
    target: &Target,
    types: &KernelTypes,
    number: u16,
) -> Result<(Loaded, Vec<bpf_insn>), Error> {
    let program = object.progs_mut().find(|p| p.name() == template);
    let program = program
        .ok_or_else(|| Error::new(format!("the compiled schema has no program '{template}'")))?;
    let raw = program.as_libbpf_object().as_ptr();
    // SAFETY: the program belongs to the object, which outlives these calls.
    let (kind, attach) =
        unsafe { (bpf_program__type(raw), bpf_program__expected_attach_type(raw)) };
    let attached_by = match kind {
        libbpf_sys::BPF_PROG_TYPE_TRACING if attach == libbpf_sys::BPF_TRACE_RAW_TP => {
            types.type_of_tracepoint(&target.name).map(Some)
        }
        libbpf_sys::BPF_PROG_TYPE_TRACING => types.type_of_function(&target.name).map(Some),
        _ => Ok(None),
    };
    let attached_by = attached_by.map_err(Error::new)?;
    let mut instructions = program.insns().to_vec();
    set_number(&mut instructions, number);
    Ok((Loaded { program: kind, attach, attached_by }, instructions))
}

/// Finds `klogger_place()`: a constant and a mask.
fn set_number(instructions: &mut [bpf_insn], number: u16) {
    const MOVE: u8 = 0xb7;
    const AND: u8 = 0x57;
    for n in 1..instructions.len() {
        let (place, mask) = (instructions[n - 1], instructions[n]);
        let is_one = place.code == MOVE
            && mask.code == AND
            && place.imm == layout::PLACE
            && mask.imm == 0xffff
            && place.dst_reg() == mask.dst_reg();
        if is_one {
            instructions[n - 1].imm |= i32::from(number);
        }
    }
}

impl Placed {
    /// As those of programs in objects, so that the place is found in it; `number` makes it unique.
    pub fn name(&self, number: usize) -> String {
        format!("klogger_{}_p{number}_{}", self.probe, self.target.name)
    }

    /// It is detached when the descriptors are closed.
    pub fn attach(&self) -> Result<Vec<OwnedFd>, Error> {
        let attached = self.attach_there();
        let label = self.target.label();
        attached.map_err(|e| {
            Error::new(format!("cannot attach to {label}: {e}"))
                .help(super::attach::help(self.target.kind))
        })
    }

    fn attach_there(&self) -> io::Result<Vec<OwnedFd>> {
        if self.by_type {
            return Ok(vec![programs::attach(self.program.as_fd())?]);
        }
        let at_return = self.target.kind == ProbeKind::Return;
        let event = perf_events::kprobe(&self.target.name, at_return)?;
        let link = programs::attach_to_event(self.program.as_fd(), event.as_fd())?;
        Ok(vec![link, event])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, register: u8, imm: i32) -> bpf_insn {
        let mut made = bpf_insn { code, imm, ..Default::default() };
        made.set_dst_reg(register);
        made
    }

    #[test]
    fn only_the_number_of_the_place_is_set() {
        let place = layout::PLACE;
        let mut program = vec![
            instruction(0xb7, 1, place),
            instruction(0x57, 1, 0xffff),
            // Another register, another mask, no mask.
            instruction(0xb7, 2, place),
            instruction(0x57, 1, 0xffff),
            instruction(0xb7, 1, place),
            instruction(0x57, 1, 0xff),
            instruction(0xb7, 1, place),
        ];
        set_number(&mut program, 0x1234);
        let numbers: Vec<i32> = program.iter().map(|i| i.imm - place).collect();
        assert_eq!((numbers[0], numbers[2], numbers[4], numbers[6]), (0x1234, 0, 0, 0));
        set_number(&mut [], 1);
    }
}
