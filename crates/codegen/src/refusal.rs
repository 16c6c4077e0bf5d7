// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Why an engine cannot attach a probe to one of its targets.

use klogger_schema::model::ProbeKind;
use klogger_schema::nearest::{alternatives, nearest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub help: Option<String>,
    /// The schema is wrong, rather than the kernel different.
    pub wrong: bool,
}

impl Refusal {
    /// The schema may be correct for another kernel.
    pub fn of_this_kernel(message: String, help: Option<String>) -> Refusal {
        Refusal { message, help, wrong: false }
    }

    pub fn of_the_schema(message: String, help: String) -> Refusal {
        Refusal { message, help: Some(help), wrong: true }
    }

    /// The engine's table has no row for the kind; it has rows for `has`.
    pub(crate) fn of_kind(engine: &str, kind: ProbeKind, has: &[ProbeKind], help: &str) -> Refusal {
        let words: Vec<&str> = has.iter().map(|k| k.word()).collect();
        Refusal::of_this_kernel(
            format!("the {engine} engine does not attach probes of kind '{}'", kind.word()),
            Some(format!("it knows {}{help}", alternatives(&words, "and").replace('`', "'"))),
        )
    }
}

/// "did you mean ...?", if a known name is near.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let near = nearest(name, known);
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(", ")))
}
