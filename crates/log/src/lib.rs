// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The klogger log: write, read, merge.
//!
//! **Invariant:** no other crate knows the bytes of a log or of a record.

pub mod builder;
pub mod format;
pub mod ledger;
pub mod preamble;
pub mod record;
pub mod writer;
