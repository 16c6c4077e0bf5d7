// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The klogger schema language: text in, checked model out.
//!
//! **Invariant:** this crate knows neither C nor files. A probe's body is an opaque text with a position.

pub mod layout;
pub mod model;
