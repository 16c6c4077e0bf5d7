// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The entry of a kernel function, with a kprobe.

use super::{AttachPoint, Headers, Row};
use crate::kernel::tracepoints::Tracepoint;
use crate::refusal::Refusal;
use crate::text::{Text, quote};
use klogger_schema::model::{Param, ProbeKind, Target};

pub(super) static ROW: Row = Row {
    kind: ProbeKind::Function,
    in_headers: false,
    find,
    config: Some("KPROBES"),
    handler,
    constant: "KLOGGER_FUNCTION",
    member: |function| format!(".kprobe = &kprobe_of_{function}"),
};

/// Parameters that are passed in registers.
const PARAMETERS_MAX: usize = 6;

fn find(target: &Target, _: &Headers) -> Result<Option<Tracepoint>, Refusal> {
    match target.params.len() > PARAMETERS_MAX {
        false => Ok(None),
        true => Err(Refusal::of_the_schema(
            format!("the probe of '{}' has more than {PARAMETERS_MAX} parameters", target.name),
            format!(
                "only the first {PARAMETERS_MAX} come in registers, where a probe finds them: \
                 leave \
                 the others out"
            ),
        )),
    }
}

fn handler(out: &mut Text, target: &Target, _: &AttachPoint, function: &str) {
    let argument = |(n, p): (usize, &Param)| {
        format!(", klogger_as({}, regs_get_kernel_argument(regs, {n}))", p.ty)
    };
    let arguments: String = target.params.iter().enumerate().map(argument).collect();
    out.push(format_args!(
        "\nstatic int {function}(struct kprobe *kprobe, struct pt_regs *regs)\n{{\n\tstruct \
         klogger_hit klogger_hit = {{}};\n\n\
         \tbody_of_{function}(&klogger_hit{arguments});\n\tklogger_leave(&klogger_hit);\n\treturn \
         0;\n}}\n\n\
         static struct kprobe kprobe_of_{function} = {{\n\t.symbol_name = {},\n\t.pre_handler = \
         {function},\n}};\n",
        quote(&target.name)
    ));
}
