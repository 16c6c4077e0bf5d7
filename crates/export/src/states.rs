// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! States of threads: converts the kernel's bits, whose names are in the log's schema, to the
//! values of the kernel's own event `sched_switch`, which readers of traces know.

use crate::scheduler;
use klogger_log::preamble::Preamble;
use klogger_schema::model::{Decoding, Role};

/// The state in which a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As in the kernel's memory.
    Kernel(i64),
    /// Unknown: shown as parked, a state that no working thread has. Without a state it would be
    /// shown as runnable, and the time until it runs again as a wait for a CPU.
    Unknown,
}

/// States as `sched_switch` shows them, by their letters in `ps` and the schema, in ascending
/// order: the highest one decides.
const SHOWN: [(&str, i64); 5] = [("S", 0x01), ("D", 0x02), ("T", 0x04), ("t", 0x08), ("P", PARKED)];
const UNINTERRUPTIBLE: i64 = 0x02;
const DEAD: i64 = 0x10;
const PARKED: i64 = 0x40;
const IDLE: i64 = 0x80;

/// The meaning of the kernel's bits.
pub struct States {
    /// (bit of the kernel, the state shown), in the order of [`SHOWN`].
    shown: Vec<(i64, i64)>,
    dead: i64,
    /// Both bits of an idle kernel thread; 0 if the schema does not name them.
    idle: i64,
    /// The thread waits for a sleeping lock.
    lock: i64,
}

impl States {
    /// From the decoding of the log's own `switch_out`; without one, from that of the bundled
    /// schema.
    pub fn new(preamble: &Preamble) -> States {
        let outs = preamble.events.iter().filter(|e| e.role == Some(Role::SwitchOut));
        let fields = outs.flat_map(|e| e.fields.iter().filter(|f| f.name == "state"));
        let own = fields.filter_map(|f| scheduler::decoding(&f.decode, &preamble.decodings)).next();
        States::of(match own {
            Some(own) => Some(own),
            None => scheduler::states(),
        })
    }

    fn of(decoding: Option<&Decoding>) -> States {
        let values = decoding.map_or(&[][..], |d| &d.values[..]);
        let bit = |name: &str| values.iter().find(|v| v.1 == name).map_or(0, |v| v.0 as i64);
        let (waits, quiet) = (bit("D"), bit("noload"));
        States {
            shown: SHOWN.iter().map(|(name, shown)| (bit(name), *shown)).collect(),
            dead: bit("X") | bit("Z") | bit("dead"),
            idle: if waits != 0 && quiet != 0 { waits | quiet } else { 0 },
            lock: bit("rtlock"),
        }
    }

    /// The event has the lowest bits unchanged, one bit for idle kernel threads, and one for dead
    /// threads. (It also says whether a runnable thread was preempted, which is not in a log.)
    pub fn shown(&self, state: State) -> i64 {
        let State::Kernel(state) = state else { return PARKED };
        match state {
            _ if state & self.dead != 0 => DEAD,
            _ if self.idle != 0 && state & self.idle == self.idle => IDLE,
            _ if state & self.lock != 0 => UNINTERRUPTIBLE,
            _ => {
                let set = self.shown.iter().rfind(|(bit, _)| state & bit != 0);
                set.map_or(0, |(_, shown)| *shown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_states_as_sched_switch_shows_them() {
        let states = States::of(scheduler::states());
        let pairs = [
            (0, 0),
            (1, 1),
            (0x2001, 1),
            (0x402, 0x80),
            (0x1402, 0x80),
            (0x1000, 2),
            (0x80, 0x10),
            (0x102, 2),
            (0x08, 8),
            (0x40, 0x40),
            (0x20, 0x10),
        ];
        for (kernel, shown) in pairs {
            assert_eq!(states.shown(State::Kernel(kernel)), shown, "{kernel:#x}");
        }
        assert_eq!(states.shown(State::Unknown), PARKED);
    }

    #[test]
    fn bits_are_those_that_the_log_names() {
        let values = vec![(0x100, "S".to_string()), (0x1, "dead".into()), (0x2, "D".into())];
        let moved = Decoding { name: "state".into(), flags: true, values };
        let states = States::of(Some(&moved));
        let shown = [0x100, 0x1, 0x2, 0x402, 0x8].map(|state| states.shown(State::Kernel(state)));
        assert_eq!(shown, [0x01, DEAD, UNINTERRUPTIBLE, UNINTERRUPTIBLE, 0]);
    }
}
