// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tracepoints: a handler with the kernel's own parameters, of which the body may use fewer.

use super::{AttachPoint, Headers, Row};
use crate::kernel::tracepoints::{Tracepoint, name_of};
use crate::refusal::{Refusal, did_you_mean};
use crate::text::Text;
use klogger_schema::model::{ProbeKind, Target};

pub(super) static ROW: Row = Row {
    kind: ProbeKind::Tracepoint,
    in_headers: true,
    find,
    config: None,
    handler,
    constant: "KLOGGER_TRACEPOINT",
    member: |function| format!(".call = {function}"),
};

fn find(target: &Target, headers: &Headers) -> Result<Option<Tracepoint>, Refusal> {
    let name = &target.name;
    let Some(theirs) = headers.tracepoints.get(name) else {
        return Err(Refusal::of_this_kernel(
            format!("the headers of kernel {} have no tracepoint '{name}'", headers.release),
            did_you_mean(name, headers.tracepoints.keys().map(String::as_str)),
        ));
    };
    if headers.differs || target.params.len() > theirs.parameters.len() {
        return Err(Refusal::of_the_schema(
            format!("the prototype of '{name}' is not the kernel's"),
            format!("schema: {}\nkernel: {}", target.prototype(), theirs.spell(name)),
        ));
    }
    Ok(Some(theirs.clone()))
}

fn handler(out: &mut Text, target: &Target, point: &AttachPoint, function: &str) {
    let parameters = point.tracepoint.as_ref().map_or(&[][..], |t| &t.parameters);
    let theirs: String = parameters.iter().map(|p| format!(", {p}")).collect();
    let names: Vec<&str> = parameters.iter().map(|p| name_of(p)).collect();
    let wanted = &names[..target.params.len().min(names.len())];
    let passed: String = wanted.iter().map(|name| format!(", {name}")).collect();
    let same = target.params.iter().zip(&names).map(|(p, name)| {
        format!(
            "\t_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {}), \"{}\");\n",
            p.ty,
            prototype_message(point)
        )
    });
    out.push(format_args!(
        "\nstatic void {function}(void *klogger_data{theirs})\n{{\n\tstruct klogger_hit \
         klogger_hit = {{}};\n\n{}\
         \tbody_of_{function}(&klogger_hit{passed});\n\tklogger_leave(&klogger_hit);\n}}\n\n\
         /* Never called: the compiler compares the function with what the kernel calls. */\n\
         static __maybe_unused void \
         check_{function}(void)\n{{\n\tcheck_trace_callback_type_{}({function});\n}}\n",
        same.collect::<String>(),
        target.name
    ));
}

/// What the compiler says if the prototype of a point is not the kernel's.
fn prototype_message(point: &AttachPoint) -> String {
    format!("klogger: prototype {} {}", point.probe, point.target)
}

/// The (probe, target) in a compiler message about a prototype that differs from the kernel's.
pub fn prototype_complaint(message: &str) -> Option<(usize, usize)> {
    let (_, rest) = message.split_once("klogger: prototype ")?;
    let mut numbers = rest.trim_end_matches('"').split(' ').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
