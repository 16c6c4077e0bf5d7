// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From a checked schema to C.
//!
//! **Invariant:** pure functions, model in, named texts out: no files, no compiler, no clock.

pub mod bpf;
pub mod events;
mod header;
pub mod kernel;
pub mod kernel_types;
mod refusal;
mod stack;
mod text;
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

/// The headers of the runtime which generated C includes, under the names by which it includes
/// them.
pub const RUNTIME: &[(&str, &str)] = &[
    ("klogger/types.h", include_str!("../../../runtime/include/klogger/types.h")),
    ("klogger/ring.h", include_str!("../../../runtime/include/klogger/ring.h")),
    ("klogger/record.h", include_str!("../../../runtime/include/klogger/record.h")),
    ("klogger/program_shm.h", include_str!("../../../runtime/include/klogger/program_shm.h")),
    ("klogger.user.h", include_str!("../../../runtime/user/klogger.user.h")),
    ("klogger.bpf.h", include_str!("../../../runtime/bpf/klogger.bpf.h")),
    ("copies.h", include_str!("../../../runtime/bpf/copies.h")),
    ("kernel.h", include_str!("../../../runtime/bpf/kernel.h")),
];

/// The schema of the built-in events.
pub const BUILTIN_SCHEMA: &str = include_str!("../../../runtime/klogger.klogger");
