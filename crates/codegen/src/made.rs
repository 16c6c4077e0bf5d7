// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What each engine generates from a schema: one row each, for `klogger show --engine`.

use crate::{BUILTIN_SCHEMA, KernelTypes, NamedText, Refusal, Runs, bpf, kernel, user};
use klogger_schema::model::{ProbeKind, Schema};
use klogger_schema::{Options, parse};

pub struct Maker {
    /// The engine's name, as in its registry.
    pub engine: &'static str,
    /// Whether the engine attaches probes of a kind.
    pub attaches: fn(ProbeKind) -> bool,
    /// The C of a schema's events, and of its probes if these are compiled with the types of a
    /// kernel.
    pub texts: fn(&Schema, &Types) -> Result<Vec<NamedText>, Refusal>,
}

/// The types of the running kernel, or why there are none; computed only if needed.
pub type Types<'a> = dyn Fn() -> Result<KernelTypes, Refusal> + 'a;

pub static MAKERS: [Maker; 3] = [
    Maker {
        engine: "bpf",
        attaches: |kind| bpf::attach_points::of(kind).is_some(),
        texts: |schema, types| {
            bpf::source(schema, &types()?, Runs::Here)
                .map_err(|e| Refusal::of_this_kernel(e.to_string(), None))
        },
    },
    Maker {
        engine: "kernel",
        attaches: |kind| kernel::attach_points::of(kind).is_some(),
        texts: |schema, _| Ok(vec![kernel::header(schema, false)]),
    },
    Maker { engine: "user", attaches: |_| false, texts: |schema, _| header_of_programs(schema) },
];

fn header_of_programs(schema: &Schema) -> Result<Vec<NamedText>, Refusal> {
    let options = Options { builtin: true, ..Options::default() };
    let builtin = parse("klogger.klogger", BUILTIN_SCHEMA, &options)
        .map_err(|_| Refusal::of_this_kernel("klogger's own schema is damaged".into(), None))?;
    match user::header(schema, &builtin.schema) {
        Ok(header) => Ok(vec![header]),
        Err(refused) => Err(Refusal::of_the_schema(refused.message, refused.help)),
    }
}
