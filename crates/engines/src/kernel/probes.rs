// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which probes of a schema the kernel module has attached, and why the others are not.

use super::device::ProbeAbout;
use crate::engine::{events_of, reasons};
use klogger_log::preamble::ProbeState;
use klogger_os::Error;
use klogger_schema::model::{Probe, ProbeKind, Schema, Target};
use std::io;

/// The state of each probe of the schema. `places`: the attach points of the module, in the order
/// of probes and alternatives.
pub fn states(schema: &Schema, places: &[ProbeAbout]) -> Vec<ProbeState> {
    let state = |(number, probe): (usize, &Probe)| {
        let of_probe: Vec<&ProbeAbout> =
            places.iter().filter(|p| p.probe as usize == number).collect();
        let attached = of_probe.iter().find(|p| p.attached != 0).map(|p| p.target as usize);
        let tried =
            &probe.targets[..attached.unwrap_or(probe.targets.len()).min(probe.targets.len())];
        let notes = tried.iter().enumerate().map(|(i, target)| {
            let place = of_probe.iter().find(|p| p.target as usize == i);
            why_not(target, place.map(|p| p.error))
        });
        let shown = probe.targets.get(attached.unwrap_or(0)).unwrap_or(&probe.targets[0]);
        ProbeState {
            schema: schema.name.clone(),
            target: shown.label(),
            attached: attached.is_some(),
            note: reasons(notes),
            events: events_of(probe),
        }
    };
    schema.probes.iter().enumerate().map(state).collect()
}

/// What the kernel's errors mean for a kind of attach point: one row each.
struct Row {
    kind: ProbeKind,
    /// The message if there is no such attach point.
    missing: fn(name: &str) -> String,
    /// Errors that mean: the kernel has it, but allows no probe there.
    forbidden: &'static [i32],
}

static ROWS: [Row; 3] = [
    Row {
        kind: ProbeKind::Tracepoint,
        missing: |name| format!("this kernel has no tracepoint '{name}'"),
        forbidden: &[],
    },
    Row { kind: ProbeKind::Function, missing: no_function, forbidden: FORBIDDEN },
    Row { kind: ProbeKind::Return, missing: no_function, forbidden: FORBIDDEN },
];

/// The errors of kprobes on functions that the tracing itself uses.
const FORBIDDEN: &[i32] = &[libc::EINVAL, libc::EILSEQ];

fn no_function(name: &str) -> String {
    format!("this kernel has no function '{name}', or has inlined it")
}

/// `error`: of the kernel; `None` if the module has no such attach point.
fn why_not(target: &Target, error: Option<i32>) -> String {
    let what = target.label();
    let row = ROWS.iter().find(|row| row.kind == target.kind);
    match (error, row) {
        (None, _) => format!("{what} did not exist when the module was built"),
        (Some(libc::ENOENT), Some(row)) => (row.missing)(&target.name),
        (Some(error), Some(row)) if row.forbidden.contains(&error) => {
            format!("{what}: this kernel forbids probes there")
        }
        (Some(libc::EOPNOTSUPP), _) => {
            format!("{what}: this kernel was built without CONFIG_KPROBES")
        }
        (Some(other), _) => format!("{what}: {}", io::Error::from_raw_os_error(other)),
    }
}

/// A missing attach point is an error if the schema names no alternative for it, as in the bpf
/// engine.
pub fn check(schema: &Schema, states: &[ProbeState]) -> Result<(), Error> {
    let unforeseen =
        schema.probes.iter().zip(states).find(|(p, s)| p.targets.len() == 1 && !s.attached);
    if let Some((probe, state)) = unforeseen {
        let (file, line) = schema.place(probe.targets[0].span);
        return Err(Error::new(format!("{file}:{line}: {}", state.note)).help(
            "name an alternative with 'or', or see 'klogger tracepoints' for what this \
                   kernel offers",
        ));
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

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_codegen::kernel::attach_points;

    #[test]
    fn every_generated_kind_has_messages_for_its_errors() {
        for kind in ProbeKind::ALL {
            let rows = ROWS.iter().filter(|row| row.kind == kind).count();
            assert_eq!(rows, usize::from(attach_points::of(kind).is_some()), "{kind:?}");
        }
    }

    #[test]
    fn a_missing_attach_point_is_named_by_its_file_and_line() {
        let own = "schema s\ninclude \"long\"\nevent E { }\n\nprobe tracepoint t() { klogger(E); }";
        let find = |_: &str| Ok(("long.shared".into(), "enum a {\n 1 \"one\"\n}\n".into()));
        let whole = klogger_schema::include::whole("s.klogger", own, &find);
        let options = klogger_schema::Options { includes: whole.includes, ..Default::default() };
        let schema = klogger_schema::parse("s.klogger", &whole.text, &options).unwrap().schema;
        let gone =
            ProbeState { attached: false, note: "there is no t".into(), ..ProbeState::default() };
        let error = check(&schema, &[gone]).unwrap_err();
        assert_eq!(error.message, "s.klogger:5: there is no t");
    }

    /// As of a tracepoint that has other parameters in other kernels.
    #[test]
    fn alternatives_of_one_name_have_one_reason() {
        let text = "schema s\nevent E { }\n\nprobe tracepoint t(int a) or tracepoint t(int a, \
                    int b) or tracepoint u(int a) or tracepoint t()\n{ klogger(E); }";
        let options = klogger_schema::Options::default();
        let schema = klogger_schema::parse("s.klogger", text, &options).unwrap().schema;
        let [state] = states(&schema, &[]).try_into().unwrap();
        assert_eq!(
            state.note,
            "tracepoint t did not exist when the module was built; \
             tracepoint u did not exist when the module was built"
        );
    }

    #[test]
    fn errors_in_words() {
        let exit = Target::bare(ProbeKind::Return, "do_exit");
        assert_eq!(why_not(&exit, None), "return do_exit did not exist when the module was built");
        assert!(why_not(&exit, Some(libc::ENOENT)).contains("inlined"));
        assert!(why_not(&exit, Some(libc::EINVAL)).contains("forbids"));
        let switch = Target::bare(ProbeKind::Tracepoint, "sched_switch");
        assert!(why_not(&switch, Some(libc::EINVAL)).contains("Invalid argument"));
    }
}
