// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The trace events of the running kernel, from tracefs, which only root can read.

use klogger_codegen::kernel_types::Formats;
use klogger_os::tracefs::TraceFs;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;

/// Finds tracefs when it is first needed, and reads `events/GROUP/NAME/format` each time.
#[derive(Default)]
pub struct TraceEvents {
    tracefs: OnceLock<Result<TraceFs, String>>,
}

impl TraceEvents {
    fn with_root<T>(&self, read: impl Fn(&Path) -> io::Result<T>) -> Result<T, String> {
        let tracefs = self.tracefs.get_or_init(|| TraceFs::find().map_err(|e| unreadable(&e)));
        let tracefs = tracefs.as_ref().map_err(String::clone)?;
        read(tracefs.root()).map_err(|e| unreadable(&e))
    }
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "only root, or CAP_DAC_READ_SEARCH where tracefs is mounted, can read the kernel's \
             descriptions of trace events (tracefs)"
                .into()
        }
        _ => format!("cannot read the kernel's descriptions of trace events (tracefs): {error}"),
    }
}

/// ftrace's own events, which perf cannot record, and the descriptions of pages.
const NO_EVENTS: [&str; 3] = ["ftrace", "header_event", "header_page"];

impl Formats for TraceEvents {
    fn format(&self, group: &str, name: &str) -> Result<Option<String>, String> {
        let path = |root: &Path| root.join("events").join(group).join(name).join("format");
        let read = self.with_root(|root| match fs::read_to_string(path(root)) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        });
        Ok(read?.filter(|_| !NO_EVENTS.contains(&group)))
    }

    fn names(&self) -> Result<Vec<String>, String> {
        let mut all = self.with_root(|root| {
            let events = root.join("events");
            let mut all = Vec::new();
            for group in folders_in(&events)?.into_iter().filter(|g| !NO_EVENTS.contains(&&**g)) {
                let names = folders_in(&events.join(&group))?;
                all.extend(names.into_iter().map(|name| format!("{group}:{name}")));
            }
            Ok(all)
        })?;
        all.sort();
        Ok(all)
    }
}

fn folders_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}
