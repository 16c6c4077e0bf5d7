// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How a program is attached: one row for each kind of attach point.
//! `crates/codegen/src/bpf/attach_points.rs` has the same rows for the text of programs.

use klogger_os::Error;
use klogger_schema::model::{ProbeKind, Target};
use libbpf_rs::{Link, Object, ProgramMut};

struct Row {
    kind: ProbeKind,
    attach: fn(&ProgramMut, &Target) -> libbpf_rs::Result<Link>,
    /// What the user can do if the kernel refuses.
    help: &'static str,
}

static ROWS: [Row; 1] = [Row {
    kind: ProbeKind::Tracepoint,
    // The section of the program names the attach point.
    attach: |program, _| program.attach_trace(),
    help: "if other tracers are running, they may have used up what the kernel allows on one \
           tracepoint",
}];

/// Attaches the program `name` of a loaded object. It is detached when the link is dropped.
///
/// # Errors
///
/// If the object has no such program, this engine has no such attach points, or the kernel refuses.
pub fn attach(object: &Object, name: &str, target: &Target) -> Result<Link, Error> {
    let label = target.label();
    let row = ROWS
        .iter()
        .find(|row| row.kind == target.kind)
        .ok_or_else(|| Error::new(format!("the bpf engine cannot attach to {label}")))?;
    let program = object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| Error::new(format!("the compiled schema has no program '{name}'")))?;
    (row.attach)(&program, target)
        .map_err(|e| Error::new(format!("cannot attach to {label}: {e}")).help(row.help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_codegen::bpf::attach_points;

    #[test]
    fn every_generated_kind_can_be_attached() {
        for kind in ProbeKind::ALL {
            let attaches = ROWS.iter().filter(|row| row.kind == kind).count();
            assert_eq!(attaches, usize::from(attach_points::of(kind).is_some()), "{kind:?}");
        }
    }
}
