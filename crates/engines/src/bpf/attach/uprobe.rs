// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Uprobes: at functions and static probes of programs. Since Linux 6.6 one link has all places of
//! a probe in a file; before, perf has an event for each.

use super::Site;
use klogger_os::Error;
use klogger_programs::arguments::{Argument, From};
use klogger_programs::{Found, Location, Programs};
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::ProbeKind;
use libbpf_rs::{
    Link, MapCore, MapFlags, ProgramAttachType, ProgramMut, UprobeMultiOpts, UprobeOpts,
};
use std::cell::Cell;
use std::os::fd::AsRawFd;

/// The map with the places of static probes.
const PLACES: &str = "klogger_usdt_places";
/// In every process that executes the file, now or later.
const ANY: i32 = -1;

/// What the probes of one object that are in programs need.
pub struct InPrograms {
    /// What names of programs mean.
    programs: Programs,
    /// How many places of static probes this object has until now.
    places: Cell<u32>,
}

impl InPrograms {
    pub fn new(programs: Programs) -> InPrograms {
        InPrograms { programs, places: Cell::new(0) }
    }

    /// The number of one more place of a static probe.
    fn next_place(&self) -> Result<u32, Error> {
        let number = self.places.get();
        if number >= layout::USDT_PLACES {
            let most = layout::USDT_PLACES;
            let what = format!("the static probes of a schema have more than {most} places");
            return Err(Error::new(what).help("record fewer of them at once"));
        }
        self.places.set(number + 1);
        Ok(number)
    }
}

pub fn attach(program: &ProgramMut, site: &Site) -> Result<Vec<Link>, Box<dyn std::error::Error>> {
    let own = site.programs.ok_or_else(|| Error::new("no copies of such programs are attached"))?;
    let found = own.programs.find(site.target);
    let found = found.map_err(|r| Error { help: r.help, ..Error::new(r.message) })?;
    let mut links = Vec::new();
    for file in &found {
        let cookies = file.locations.iter().map(|location| cookie(site, own, location));
        let cookies = cookies.collect::<Result<Vec<u64>, Error>>()?;
        links.extend(attach_to(program, site.target.kind, file, cookies)?);
    }
    Ok(links)
}

/// By which a program finds out where it is, and that of a static probe where its arguments are.
fn cookie(site: &Site, own: &InPrograms, location: &Location) -> Result<u64, Error> {
    let place = match location.place.as_str() {
        "" => site.target.name.as_str(),
        place => place,
    };
    let at = site.cookie(place);
    if site.target.kind != ProbeKind::Usdt {
        return Ok(at);
    }
    let number = own.next_place()?;
    let map = site.object.maps().find(|m| m.name() == PLACES);
    let map = map.ok_or_else(|| Error::new("the compiled schema has no map of static probes"))?;
    map.update(&number.to_ne_bytes(), &arguments(location), MapFlags::ANY)
        .map_err(|e| Error::new(format!("cannot describe a static probe to its program: {e}")))?;
    Ok(at | u64::from(number))
}

fn attach_to(
    program: &ProgramMut,
    kind: ProbeKind,
    found: &Found,
    cookies: Vec<u64>,
) -> libbpf_rs::Result<Vec<Link>> {
    let retprobe = kind == ProbeKind::ReturnUser && !found.at_returns;
    // Exactly this file, whatever its name leads to by now, and in which mount namespace it is.
    let path = format!("/proc/self/fd/{}", found.file.as_raw_fd());
    let places = &found.locations;
    if matches!(program.attach_type(), ProgramAttachType::TraceUprobeMulti) {
        let options = UprobeMultiOpts {
            offsets: places.iter().map(|l| l.offset as usize).collect(),
            ref_ctr_offsets: match kind {
                ProbeKind::Usdt => places.iter().map(|l| l.semaphore as usize).collect(),
                _ => Vec::new(),
            },
            cookies,
            retprobe,
            ..UprobeMultiOpts::default()
        };
        return Ok(vec![program.attach_uprobe_multi_with_opts(ANY, path, "", options)?]);
    }
    let one = |(location, cookie): (&Location, u64)| {
        let options = UprobeOpts {
            ref_ctr_offset: location.semaphore as usize,
            cookie,
            retprobe,
            ..UprobeOpts::default()
        };
        program.attach_uprobe_with_opts(ANY, &path, location.offset as usize, options)
    };
    places.iter().zip(cookies).map(one).collect()
}

/// A `struct klogger_usdt`.
fn arguments(location: &Location) -> Vec<u8> {
    let mut bytes = vec![0; layout::USDT];
    for (argument, to) in
        location.arguments.iter().zip(bytes.chunks_exact_mut(layout::USDT_ARGUMENT))
    {
        put(argument, to);
    }
    bytes
}

fn put(argument: &Argument, to: &mut [u8]) {
    let none = layout::NO_REGISTER;
    let bits = 8 * argument.size;
    let (plus, base, index, scale, kind, shift) = match argument.from {
        From::Constant(value) => (value, none, none, 0, 0, 0),
        From::Register { word, shift } => (0, word, none, 0, 0, shift),
        From::Memory { base, index, scale, plus } => {
            (plus, base.unwrap_or(none), index.unwrap_or(none), scale, layout::USDT_MEMORY, 0)
        }
    };
    to[layout::USDT_PLUS..][..8].copy_from_slice(&plus.to_ne_bytes());
    to[layout::USDT_BASE..][..2].copy_from_slice(&base.to_ne_bytes());
    to[layout::USDT_INDEX..][..2].copy_from_slice(&index.to_ne_bytes());
    to[layout::USDT_SCALE] = scale;
    to[layout::USDT_KIND] = kind;
    to[layout::USDT_LEFT] = (64 - bits).saturating_sub(shift);
    to[layout::USDT_RIGHT] = 64 - bits;
    to[layout::USDT_IS_SIGNED] = argument.signed.into();
}
