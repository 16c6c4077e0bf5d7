// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Probes at several places: their numbers; and, where a program cannot find out at a hit where it
//! is, a program for each place, which is the loaded program of the probe once more, for another
//! attach point and with the number of its place.
//!
//! libbpf loads one program for one attach point. What it has loaded has been relocated, so that
//! its instructions can be loaded again: an object for each place would take several times as long.

use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::places::have_numbers;
use klogger_codegen::bpf::{Program, programs};
use klogger_codegen::kernel_types::AttachType;
use klogger_os::Error;
use klogger_os::perf_events;
use klogger_os::programs::{self, Kind};
use klogger_os::threads;
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::{ProbeKind, Schema, Target};
use klogger_toolchain::compiled_schema::{Place, Plan};
use libbpf_rs::{AsRawLibbpf, Object};
use libbpf_sys::{bpf_insn, bpf_program__expected_attach_type, bpf_program__type};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;

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

/// A place with a number.
pub struct Numbered {
    /// Index of the probe in its schema.
    pub probe: usize,
    /// The place, as a target.
    pub target: Target,
    way: usize,
    pub number: u16,
}

impl Numbered {
    /// How the place is called where its number is shown.
    pub fn name(&self) -> String {
        match self.target.kind {
            ProbeKind::Return | ProbeKind::ReturnSyscall | ProbeKind::ReturnUser => {
                self.target.label()
            }
            _ => self.target.name.clone(),
        }
    }
}

/// The places of a schema's probes that have numbers, which follow each other from `first` on.
pub fn numbered(schema: &Schema, plans: &[Plan], first: usize) -> Result<Vec<Numbered>, Error> {
    let mut found = Vec::new();
    for (probe, (declared, plan)) in schema.probes.iter().zip(plans).enumerate() {
        let target = plan.target.map(|target| &declared.targets[target]);
        let Some(target) = target.filter(|target| have_numbers(schema, target)) else { continue };
        for Place { name, way } in &plan.places {
            let number = u16::try_from(first + found.len()).map_err(|_| {
                Error::new(format!("{}: more places than 65535", target.label()))
                    .help("name fewer places in the schema")
            })?;
            found.push(Numbered { probe, target: target.at(name), way: *way, number });
        }
    }
    Ok(found)
}

/// What the program of a place is loaded from.
struct Made {
    as_what: Loaded,
    instructions: Vec<bpf_insn>,
}

/// Loads the programs of those places that have their own. `object` has the loaded programs that
/// they are made of.
pub fn load(
    object: &Object,
    schema: &Schema,
    plans: &[Plan],
    types: &KernelTypes,
    places: &[Numbered],
) -> Result<Vec<Placed>, Error> {
    let programs = programs(schema);
    let mut made = Vec::new();
    for place in places.iter().filter(|place| !place.target.kind.finds_place()) {
        let is_its = |p: &&Program| {
            (p.probe, Some(p.target), p.way) == (place.probe, plans[place.probe].target, place.way)
        };
        let template = programs.iter().find(is_its).map(|p| p.name.clone()).unwrap_or_default();
        let (as_what, instructions) = again(object, &template, &place.target, types, place.number)?;
        made.push((place, Made { as_what, instructions }));
    }
    load_all(&made)
}

/// Fewer programs than these are loaded by one thread.
const SHARE_MIN: usize = 8;

/// The time is the verifier's, and it runs in as many threads as ask for it.
fn load_all(made: &[(&Numbered, Made)]) -> Result<Vec<Placed>, Error> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = made.len().div_ceil(threads).max(SHARE_MIN);
    let load = |part: &[(&Numbered, Made)]| part.iter().map(load_one).collect::<Vec<_>>();
    thread::scope(|scope| {
        let parts = made.chunks(share).map(|part| threads::start_in(scope, move || load(part)));
        let parts: Vec<_> = parts.collect();
        let failed = || vec![Err(Error::new("a thread that loads programs has ended"))];
        let join = |part: Result<thread::ScopedJoinHandle<_>, Error>| match part {
            Ok(part) => part.join().unwrap_or_else(|_| failed()),
            Err(e) => vec![Err(e)],
        };
        parts.into_iter().flat_map(join).collect()
    })
}

fn load_one((place, made): &(&Numbered, Made)) -> Result<Placed, Error> {
    let (probe, target) = (place.probe, place.target.clone());
    let program = made.as_what.load(&format!("klogger_{probe}"), &made.instructions);
    let program = program
        .map_err(|e| Error::new(format!("cannot load the program of {}: {e}", target.label())))?;
    let by_type = made.as_what.attached_by.is_some();
    Ok(Placed { probe, target, program, by_type })
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
