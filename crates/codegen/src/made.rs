// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What an engine generates from a schema. Each engine has one [`Maker`], which its entry in the
//! registry of engines names.

use crate::{BUILTIN_SCHEMA, KernelTypes, NamedText, Refusal};
use klogger_schema::model::{ProbeKind, Schema};
use klogger_schema::{Options, parse};

/// What an engine makes of a schema.
pub struct Maker {
    /// Whether the engine attaches probes of a kind.
    pub attaches: fn(ProbeKind) -> bool,
    /// The C of a schema's events, and of its probes if these are compiled with the types of a
    /// kernel.
    pub texts: fn(&Schema, &Types) -> Result<Vec<NamedText>, Refusal>,
    /// The header with which code of one's own logs the events; `None` if only probes can.
    pub header: Option<Header>,
    /// The same for code of a kernel tree, where CONFIG_KLOGGER decides whether the calls are
    /// there.
    pub in_tree_header: Option<Header>,
}

/// Makes a header of a schema.
pub type Header = fn(&Schema) -> Result<NamedText, Refusal>;

/// The types of the running kernel, or why there are none; computed only if needed.
pub type Types<'a> = dyn Fn() -> Result<KernelTypes, Refusal> + 'a;

/// The schema of klogger's own events.
pub(crate) fn builtin() -> Result<Schema, Refusal> {
    let options = Options { builtin: true, ..Options::default() };
    parse("klogger.klogger", BUILTIN_SCHEMA, &options)
        .map(|parsed| parsed.schema)
        .map_err(|_| Refusal::of_this_kernel("klogger's own schema is damaged".into(), None))
}
