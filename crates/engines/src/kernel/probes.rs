// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What became of a schema's probes in the kernel, in words.

use super::device::ProbeAbout;
use crate::engine::events_of;
use klogger_log::preamble::ProbeState;
use klogger_os::Error;
use klogger_schema::model::{Probe, ProbeKind, Schema};
use klogger_toolchain::compiled_schema::short;
use std::io;

/// One for each probe of the schema. `places`: all that the module has, in the order of probes and
/// alternatives.
pub fn states(schema: &Schema, places: &[ProbeAbout]) -> Vec<ProbeState> {
    let state = |(number, probe): (usize, &Probe)| {
        let of_probe: Vec<&ProbeAbout> =
            places.iter().filter(|p| p.probe as usize == number).collect();
        let attached = of_probe.iter().find(|p| p.attached != 0).map(|p| p.target as usize);
        let tried =
            &probe.targets[..attached.unwrap_or(probe.targets.len()).min(probe.targets.len())];
        let notes = tried.iter().enumerate().map(|(i, target)| {
            let place = of_probe.iter().find(|p| p.target as usize == i);
            why_not(target.kind, &target.name, place.map(|p| p.error))
        });
        let shown = probe.targets.get(attached.unwrap_or(0)).unwrap_or(&probe.targets[0]);
        ProbeState {
            schema: schema.name.clone(),
            target: short(shown.kind, &shown.name),
            attached: attached.is_some(),
            note: notes.collect::<Vec<_>>().join("; "),
            events: events_of(probe),
        }
    };
    schema.probes.iter().enumerate().map(state).collect()
}

/// `error`: a number of the kernel's; none if the module has no such place.
fn why_not(kind: ProbeKind, name: &str, error: Option<i32>) -> String {
    let what = short(kind, name);
    match (error, kind) {
        (None, _) => format!("{what} was not there when the module was made"),
        (Some(libc::ENOENT), ProbeKind::Tracepoint) => {
            format!("this kernel has no tracepoint '{name}'")
        }
        (Some(libc::ENOENT), _) => {
            format!("this kernel has no function '{name}', or has inlined it")
        }
        (Some(libc::EINVAL | libc::EILSEQ), ProbeKind::Function | ProbeKind::Return) => {
            format!("{what}: this kernel forbids probes there")
        }
        (Some(libc::EOPNOTSUPP), _) => {
            format!("{what}: this kernel was built without what it takes (CONFIG_KPROBES)")
        }
        (Some(other), _) => format!("{what}: {}", io::Error::from_raw_os_error(other)),
    }
}

/// A place that is missing is an error where the schema names no alternative for it, as with the
/// bpf engine.
pub fn check(schema: &Schema, states: &[ProbeState]) -> Result<(), Error> {
    let unforeseen =
        schema.probes.iter().zip(states).find(|(p, s)| p.targets.len() == 1 && !s.attached);
    if let Some((probe, state)) = unforeseen {
        let line = schema
            .text
            .get(..probe.targets[0].span.start)
            .map_or(1, |t| t.matches('\n').count() + 1);
        return Err(Error::new(format!("{}:{line}: {}", schema.file, state.note))
            .help("name an alternative with 'or', or see 'klogger tracepoints' for what this kernel offers"));
    }
    if !states.is_empty() && states.iter().all(|s| !s.attached) {
        let notes: Vec<&str> = states.iter().map(|s| s.note.as_str()).collect();
        let none = format!(
            "none of the probes of schema '{}' can be attached to this kernel",
            schema.name
        );
        return Err(Error::new(none).help(notes.join("\n")));
    }
    Ok(())
}
