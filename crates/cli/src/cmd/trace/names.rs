// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads that lines name before the recording has told them: those that were there when
//! it began, and of which no event of their own has come.

use klogger_log::event::{EventRef, Value};
use klogger_log::process::Processes;
use klogger_os::processes;
use klogger_schema::model::Decode;
use std::collections::HashSet;

/// Ids without a name that are kept, so that each is looked up once.
const UNNAMED_MAX: usize = 4096;

/// Which threads have been looked up in vain.
#[derive(Default)]
pub struct Names {
    unnamed: HashSet<u32>,
}

impl Names {
    /// Looks up the threads of an event that have no name yet.
    pub fn complete(&mut self, event: &EventRef, processes: &mut Processes) {
        let threads = event.layout.fields.iter().filter(|field| field.decode == Decode::Thread);
        for field in threads {
            let tid = Value::int(event.value(field)).and_then(|tid| u32::try_from(tid).ok());
            let Some(tid) = tid.filter(|tid| *tid > 0) else { continue };
            if processes.name(tid.into()).is_none() && !self.unnamed.contains(&tid) {
                self.look_up(tid, processes);
            }
        }
    }

    fn look_up(&mut self, tid: u32, processes: &mut Processes) {
        match processes::named(tid) {
            Some(named) => processes.found(tid.into(), named.tgid.into(), named.comm),
            None => {
                // An id may be used again.
                if self.unnamed.len() >= UNNAMED_MAX {
                    self.unnamed.clear();
                }
                self.unnamed.insert(tid);
            }
        }
    }
}
