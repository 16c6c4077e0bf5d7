// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Log files: writing, reading, merging.
//!
//! **Invariant:** no other crate knows the bytes of a log or of a record.

pub mod arriving;
pub mod builder;
pub mod builtin;
pub mod code;
pub mod cut;
pub mod damage;
pub mod decode;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod filter;
pub mod format;
pub mod ledger;
pub mod live;
pub mod lock;
pub mod merge;
pub mod names;
pub mod origin;
mod parts;
pub mod preamble;
pub mod reader;
pub mod record;
pub mod rules;
pub mod scan;
pub mod seen;
pub mod segments;
mod source;
pub mod stacks;
pub mod stats;
mod stream;
pub mod symbols;
pub mod text;
pub mod trigger;
mod validate;
pub mod writer;
