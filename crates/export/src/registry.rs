// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The formats of `klogger export`. One more format is one module that implements
//! [`crate::exporter::FileExporter`] or [`crate::exporter::DirectoryExporter`], and one line of
//! [`EXPORTERS`], from which the values of `--to` and its help are made.

use crate::cache::Parquet;
use crate::ctf;
use crate::exporter::Exporter;
use crate::perfetto::Perfetto;
use crate::stacks;

/// All formats; the first one is the default.
pub const EXPORTERS: &[Exporter] = &[
    Exporter::Directory(&Parquet),
    Exporter::File(&Perfetto),
    Exporter::Directory(&ctf::Version::One),
    Exporter::Directory(&ctf::Version::Two),
    Exporter::Directory(&ctf::Version::Lttng),
    Exporter::File(&stacks::FOLDED),
    Exporter::File(&stacks::PPROF),
    Exporter::File(&stacks::FIREFOX),
    Exporter::File(&stacks::SPEEDSCOPE),
];
