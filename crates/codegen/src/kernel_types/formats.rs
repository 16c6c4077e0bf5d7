// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The trace events of a kernel, from the `format` files that describe their records.

use super::{Error, KernelTypes, Result};
use crate::trace_event::TraceEvent;

/// The `format` files of a kernel's trace events. Errors are messages for the user.
pub trait Formats: Send + Sync {
    /// The text of an event's file; `None` if there is no such event.
    fn format(&self, group: &str, name: &str) -> std::result::Result<Option<String>, String>;

    /// All trace events, as `GROUP:NAME`.
    fn names(&self) -> std::result::Result<Vec<String>, String>;
}

impl KernelTypes {
    /// The same, of a kernel whose descriptions of trace events can be read.
    pub fn with_formats(self, formats: impl Formats + 'static) -> KernelTypes {
        KernelTypes { formats: Some(Box::new(formats)), ..self }
    }

    fn formats(&self) -> Result<&dyn Formats> {
        self.formats.as_deref().ok_or_else(|| {
            Error(
                "a probe of kind 'trace_event' is compiled for the kernel that runs, whose tracefs \
                 describes the records"
                    .into(),
            )
        })
    }

    /// The trace event `GROUP:NAME`, or `None` if the kernel has none of that name.
    pub fn trace_event(&self, full_name: &str) -> Result<Option<TraceEvent>> {
        let Some((group, name)) = full_name.split_once(':') else { return Ok(None) };
        let Some(text) = self.formats()?.format(group, name).map_err(Error)? else {
            return Ok(None);
        };
        TraceEvent::parse(group, name, &text).map(Some).map_err(Error)
    }

    /// The names of all trace events.
    pub fn trace_events(&self) -> Result<Vec<String>> {
        self.formats()?.names().map_err(Error)
    }
}
