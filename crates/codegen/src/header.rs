// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Common parts of the headers for programs and for kernel code: the embedded runtime, and calls
//! that are removed.

use crate::events::{arguments, declaration};
use crate::text::{Text, comment};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Event, Schema};

/// A line of the comment at the top of a header.
pub(crate) fn usage(event: &Event) -> String {
    let doc = event.doc.as_ref().map_or(String::new(), |d| format!("  {}", comment(d)));
    let fields = event.fields.iter().filter(|f| f.context.is_none());
    let names: String = fields.map(|f| format!(", {}", f.name)).collect();
    format!(" *   klogger({}{names});{doc}\n", event.name)
}

/// Embeds the headers of a runtime, once for any number of generated headers, and only of one
/// version.
pub(crate) fn embed(out: &mut Text, parts: &[&str]) {
    let number = number_of(parts);
    out.push(format_args!(
        "#ifndef KLOGGER_RUNTIME\n#define KLOGGER_RUNTIME {number:#018x}ull\n#endif\n"
    ));
    for text in parts {
        let own = |line: &&str| {
            let include = line.starts_with("#include \"") || line.starts_with("#include <klogger/");
            !include && !line.starts_with("/* SPDX")
        };
        text.lines().filter(own).for_each(|line| out.push(format_args!("{line}\n")));
    }
    out.push(format_args!(
        "\n#if KLOGGER_RUNTIME != {number:#018x}ull\n#error \"the header before this one is from \
         another version of klogger; generate both again\"\n#endif\n"
    ));
}

/// Identifies the version of a runtime.
pub(crate) fn number_of(parts: &[&str]) -> u64 {
    fnv1a(&parts.concat().into_bytes())
}

/// A call that is type-checked but never made.
pub(crate) fn off_function(out: &mut Text, schema: &Schema, event: &Event) {
    let layout = EventLayout::new(&schema.name, event, 1);
    let unused: String = arguments(&layout).map(|f| format!(" (void){};", f.name)).collect();
    out.push(format_args!(
        "static inline void klogger_off_{}({}) {{{unused} }}\n",
        event.name,
        parameters(&layout)
    ));
}

/// The parameters of a function that logs one event.
pub(crate) fn parameters(layout: &EventLayout) -> String {
    let list: Vec<_> = arguments(layout).map(declaration).collect();
    if list.is_empty() { "void".into() } else { list.join(", ") }
}

pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| {
        (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}
