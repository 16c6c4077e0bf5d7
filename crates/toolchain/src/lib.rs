// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Everything that runs compilers: clang for BPF, the kernel's build system for modules, and the
//! integration into a kernel's source tree.

pub mod bundled;
pub mod clang;
pub mod compiled_schema;
pub mod condition;
pub mod host_kernel;
pub mod integrate;
pub mod kbuild;
mod lacking;
pub mod portable;
