// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads that lines name before the recording has told them: those that were there when
//! it began, and of which no event of their own has come. An id may be used again: a name counts if
//! its thread had started before the event.

use klogger_log::event::{EventRef, Value};
use klogger_log::names::Processes;
use klogger_os::clocks;
use klogger_os::processes::{self, Named};
use klogger_schema::model::Decode;
use std::collections::HashMap;

/// Ids that are kept, so that each is looked up once.
const KEPT_MAX: usize = 4096;
/// ns of the log after which it is asked whether an id is still that of the thread that was found.
const AGAIN_NS: u64 = 1_000_000_000;

/// Which threads have been looked up.
pub struct Names {
    /// By how much CLOCK_BOOTTIME is ahead of the log's clock, in ns.
    ahead_ns: u64,
    /// By id.
    looked: HashMap<u32, Looked>,
}

/// A thread that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Looked {
    /// When it started, in ns since boot; `None`: there was none yet when it was looked up.
    start_ns: Option<u64>,
    /// By the log's clock.
    seen_ns: u64,
}

impl Default for Names {
    fn default() -> Names {
        Names { ahead_ns: ahead_ns(), looked: HashMap::new() }
    }
}

fn ahead_ns() -> u64 {
    let now = clocks::read();
    now.boot.saturating_sub(now.monotonic)
}

impl Names {
    /// Looks up the threads of an event that have no name yet, or perhaps another one by now.
    pub fn complete(&mut self, event: &EventRef, processes: &mut Processes) {
        let threads = event.layout.fields.iter().filter(|field| field.decode == Decode::Thread);
        for field in threads {
            let tid = Value::int(event.value(field)).and_then(|tid| u32::try_from(tid).ok());
            let Some(tid) = tid.filter(|tid| *tid > 0) else { continue };
            let is_due = match self.looked.get(&tid) {
                Some(Looked { start_ns: Some(_), seen_ns }) => event.time_ns >= seen_ns + AGAIN_NS,
                // Not at each event of a thread that has ended.
                Some(Looked { start_ns: None, .. }) => false,
                None => processes.name(tid.into()).is_none(),
            };
            if is_due {
                // It changes when the machine was suspended.
                self.ahead_ns = ahead_ns();
                self.look_up(tid, event.time_ns, processes, processes::named(tid));
            }
        }
    }

    /// `named`: the thread that has this id now.
    fn look_up(&mut self, tid: u32, time_ns: u64, processes: &mut Processes, named: Option<Named>) {
        // The start is rounded down to a hundredth of a second.
        let had = |named: &Named| named.start_ns <= time_ns.saturating_add(self.ahead_ns);
        let named = named.filter(had);
        let before = self.looked.get(&tid).and_then(|looked| looked.start_ns);
        // An id may be used again.
        if self.looked.len() >= KEPT_MAX && !self.looked.contains_key(&tid) {
            self.looked.clear();
        }
        let start_ns = named.as_ref().map(|named| named.start_ns).or(before);
        self.looked.insert(tid, Looked { start_ns, seen_ns: time_ns });
        let Some(named) = named else { return };
        match before {
            Some(start_ns) if start_ns != named.start_ns => {
                let since_ns = named.start_ns.saturating_sub(self.ahead_ns);
                processes.found_anew(tid.into(), named.tgid.into(), named.comm, since_ns);
            }
            Some(_) => {}
            None => processes.found(tid.into(), named.tgid.into(), &named.comm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::preamble::Preamble;

    fn named(comm: &str, start_ns: u64) -> Option<Named> {
        Some(Named { tgid: 7, comm: comm.into(), start_ns })
    }

    #[test]
    fn an_id_that_is_used_again_has_the_name_of_its_thread() {
        let mut names = Names { ahead_ns: 500, looked: HashMap::new() };
        let mut processes = Processes::live(&Preamble::default());
        // It started after the event, which is of another thread with this id.
        names.look_up(7, 1_000, &mut processes, named("later", 1_501));
        assert!(processes.name(7).is_none());
        assert_eq!(names.looked[&7], Looked { start_ns: None, seen_ns: 1_000 });
        names.look_up(8, 1_000, &mut processes, named("first", 1_500));
        assert_eq!(processes.name(8), Some(&b"first"[..]));
        // The same thread, then another one, then none.
        names.look_up(8, 2_000, &mut processes, named("other", 1_500));
        assert_eq!(processes.name(8), Some(&b"first"[..]));
        names.look_up(8, 9_000, &mut processes, named("second", 7_000));
        assert_eq!(processes.name(8), Some(&b"second"[..]));
        names.look_up(8, 9_500, &mut processes, None);
        assert_eq!(processes.name(8), Some(&b"second"[..]));
        // It is not asked for again before its time.
        assert_eq!(names.looked[&8], Looked { start_ns: Some(7_000), seen_ns: 9_500 });
    }
}
