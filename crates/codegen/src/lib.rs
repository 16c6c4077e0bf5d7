// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Generates C and Rust from a checked schema.
//!
//! **Invariant:** pure functions from a model to named texts: no files, no compiler, no clock.

pub mod bpf;
pub mod events;
mod header;
pub mod kernel;
pub mod kernel_types;
pub mod made;
pub mod parameters;
mod refusal;
mod stack;
pub mod states;
pub mod system_calls;
mod text;
pub mod trace_event;
pub mod user;

pub use kernel_types::{KernelTypes, Runs};
pub use refusal::Refusal;
pub use text::printable;

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

/// The headers of the BPF engine's runtime, under the names by which generated C includes them.
pub const RUNTIME: &[(&str, &str)] = &[
    ("klogger/types.h", include_str!("../../../runtime/include/klogger/types.h")),
    ("klogger/ring.h", include_str!("../../../runtime/include/klogger/ring.h")),
    ("klogger/record.h", include_str!("../../../runtime/include/klogger/record.h")),
    ("klogger/writer.h", include_str!("../../../runtime/include/klogger/writer.h")),
    ("klogger.bpf.h", include_str!("../../../runtime/bpf/klogger.bpf.h")),
    ("helpers.h", include_str!("../../../runtime/bpf/helpers.h")),
    ("config.h", include_str!("../../../runtime/bpf/config.h")),
    ("maps.h", include_str!("../../../runtime/bpf/maps.h")),
    ("filter.h", include_str!("../../../runtime/bpf/filter.h")),
    ("scope.h", include_str!("../../../runtime/bpf/scope.h")),
    ("names.h", include_str!("../../../runtime/bpf/names.h")),
    ("list.h", include_str!("../../../runtime/bpf/list.h")),
    ("objects.h", include_str!("../../../runtime/bpf/objects.h")),
    ("slow.h", include_str!("../../../runtime/bpf/slow.h")),
    ("triggers.h", include_str!("../../../runtime/bpf/triggers.h")),
    ("registers.h", include_str!("../../../runtime/bpf/registers.h")),
    ("read.h", include_str!("../../../runtime/bpf/read.h")),
    ("state.h", include_str!("../../../runtime/bpf/state.h")),
    ("user.h", include_str!("../../../runtime/bpf/user.h")),
    ("user_stack.h", include_str!("../../../runtime/bpf/user_stack.h")),
    ("otel.h", include_str!("../../../runtime/bpf/otel.h")),
    ("namespaces.h", include_str!("../../../runtime/bpf/namespaces.h")),
    ("libc.h", include_str!("../../../runtime/bpf/libc.h")),
    ("copies.h", include_str!("../../../runtime/bpf/copies.h")),
    ("calls.h", include_str!("../../../runtime/bpf/calls.h")),
    ("kernel.h", include_str!("../../../runtime/bpf/kernel.h")),
];

/// Texts that schemata can include, by name.
pub const SHARED: &[(&str, &str)] = &[
    ("arguments", include_str!("../../../runtime/shared/arguments.shared")),
    ("calls", include_str!("../../../runtime/shared/calls.shared")),
    ("files", include_str!("../../../runtime/shared/files.shared")),
    ("keys", include_str!("../../../runtime/shared/keys.shared")),
    ("paths", include_str!("../../../runtime/shared/paths.shared")),
    ("requests", include_str!("../../../runtime/shared/requests.shared")),
];

/// The schema of the built-in events.
pub const BUILTIN_SCHEMA: &str = include_str!("../../../runtime/klogger.klogger");
