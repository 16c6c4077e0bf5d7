// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Converts a log to formats of other programs: one module for each format, all listed in
//! [`EXPORTERS`]. The default is columns: a directory with one Parquet table for each event, and a
//! few tables about the log.
//!
//! **Invariant:** this crate knows neither the bytes of a log nor SQL. Its tables are the only way
//! from logs to analyses.
//!
//! - `EVENT.parquet`: `time` (ns since the log's start), `cpu` (-1: the recorder), `serial`, then
//!   the event's fields. Events that programs may log, and `MARK` and `LOST`, have `tid` and `tgid`
//!   after `serial`: null for those of a CPU; `cpu` is null for those of a thread.
//! - `process.parquet`: the names of threads over time
//! - `ledger.parquet`: what was lost
//! - `event.parquet`: the events of the log, with counts
//! - `decoding.parquet`: texts for values
//! - `stack.parquet`: stacks: the number in the events, the functions, and the text; whether of the
//!   kernel or of a program, for each frame its file and its place in the source, and the frames of
//!   a flame graph
//! - `variable.parquet`: what addresses of data are, each from a time on
//! - `meta.json`: what the tables were made from, and the log's preamble; written last
//!
//! The tables of events are sorted by `time`. Each says in its metadata what the event is and where
//! it was recorded, and each column its unit and meaning. Ids of threads have 32 bits in all
//! tables.
//!
//! Events without rows have their table too. A field `NAME` which is an address in code has a
//! second column, `NAME_symbol`.

mod about;
mod cache;
mod column;
mod ctf;
pub mod exporter;
mod output;
mod pairing;
mod perfetto;
mod registry;
mod roles;
mod scheduler;
mod stacks;
mod states;
mod switches;
mod table;
mod trace;
mod writing;

pub use cache::export;
pub use exporter::Exporter;
pub use output::{Error, Export};
pub use registry::EXPORTERS;
pub use roles::owner;

/// Changes when the tables do, so that older ones are made again.
pub const VERSION: u32 = 10;
