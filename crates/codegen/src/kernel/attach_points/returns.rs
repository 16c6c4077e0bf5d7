// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The return of a kernel function, with a kretprobe.

use super::{AttachPoint, Headers, Row};
use crate::kernel::tracepoints::Tracepoint;
use crate::refusal::Refusal;
use crate::text::{Text, quote};
use klogger_schema::model::{ProbeKind, Target};

pub(super) static ROW: Row = Row {
    kind: ProbeKind::Return,
    in_headers: false,
    find,
    config: Some("KRETPROBES"),
    handler,
    constant: "KLOGGER_RETURN",
    member: |function| format!(".kretprobe = &kretprobe_of_{function}"),
};

fn find(target: &Target, _: &Headers) -> Result<Option<Tracepoint>, Refusal> {
    match target.params.len() > 1 {
        false => Ok(None),
        true => Err(Refusal::of_the_schema(
            format!(
                "a probe of kind 'return' has one parameter, the result, and this one of '{}' has \
                 more",
                target.name
            ),
            "log the function's parameters by a probe of kind 'function'".into(),
        )),
    }
}

fn handler(out: &mut Text, target: &Target, _: &AttachPoint, function: &str) {
    let result = target.params.first();
    let result = result.map(|p| format!(", klogger_as({}, regs_return_value(regs))", p.ty));
    out.push(format_args!(
        "\nstatic int {function}(struct kretprobe_instance *instance, struct pt_regs *regs)\n{{\n\
         \tstruct klogger_hit klogger_hit = {{}};\n\n\tbody_of_{function}(&klogger_hit{});\n\
         \tklogger_leave(&klogger_hit);\n\treturn 0;\n}}\n\n\
         static struct kretprobe kretprobe_of_{function} = {{\n\t.kp.symbol_name = {},\n\t.handler \
         = {function},\n}};\n",
        result.unwrap_or_default(),
        quote(&target.name)
    ));
}
