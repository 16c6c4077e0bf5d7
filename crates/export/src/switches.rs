// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Joins the two halves of context switches (`switch_out`, `switch_in`), CPU by CPU.
//!
//! Readers of Perfetto's format and of LTTng's events assume that the `next` thread of a switch
//! runs until the next switch, and is its `prev`. Where a log does not tell which thread ran
//! (before its first event, outside its scope, where events were lost), a placeholder thread runs
//! ([`not_recorded`]); and between two logged switches that do not fit together, a switch is
//! inserted.

use crate::roles::{Role, int};
use crate::states::State;
use klogger_log::event::{EventRef, Value};

/// The first number that is not a thread id: Linux's largest is 2^22 - 1.
const NOT_RECORDED: i64 = 1 << 22;

/// The placeholder thread that runs on a CPU where the log does not tell which one. One per CPU,
/// because a thread runs on one CPU at a time.
pub fn not_recorded(cpu: u16) -> i64 {
    NOT_RECORDED + i64::from(cpu)
}

pub fn is_recorded(pid: i64) -> bool {
    pid < NOT_RECORDED
}

/// One context switch. What the log does not say is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    pub time_ns: u64,
    pub prev: i64,
    pub prev_prio: Option<i64>,
    pub prev_state: Option<State>,
    pub next: i64,
    pub next_prio: Option<i64>,
}

/// A `switch_out`.
#[derive(Clone, Copy, Debug)]
struct Out {
    time_ns: u64,
    pid: i64,
    prio: Option<i64>,
    state: Option<State>,
    next: Option<i64>,
}

/// The state of one CPU after the last event.
pub struct Cpu {
    /// The placeholder thread.
    nobody: i64,
    /// `None`: there was no switch yet.
    running: Option<i64>,
    /// Waits for the `switch_in` of the same switch.
    pending: Option<Out>,
    /// Time of the latest switch: until then it is known which thread ran.
    last_ns: u64,
    /// All threads are recorded, so a `switch_out` alone tells which thread runs next.
    complete: bool,
    /// Serial number of the next event if none is missing.
    serial: u64,
    /// Time of the latest event.
    seen_ns: Option<u64>,
}

impl Cpu {
    pub fn new(number: u16, complete: bool) -> Cpu {
        Cpu {
            nobody: not_recorded(number),
            running: None,
            pending: None,
            last_ns: 0,
            complete,
            serial: 0,
            seen_ns: None,
        }
    }

    /// The time since when events of this CPU are missing before this event, if any: according to
    /// its serial number (they were overwritten or damaged), or if it is a `LOST` event.
    pub fn missing(&mut self, event: &EventRef, role: Role) -> Option<u64> {
        let since = self.seen_ns.replace(event.time_ns);
        let gap = event.serial > self.serial;
        if let Role::Lost = role {
            // It has the number of the event that comes next.
            self.serial = event.serial;
            return Some(event.get("since").and_then(Value::bits).unwrap_or_default());
        }
        // A damaged or forged log may have any number.
        self.serial = event.serial.wrapping_add(1);
        since.filter(|_| gap)
    }

    /// The serial number of the event that comes next.
    pub fn next_serial(&self) -> u64 {
        self.serial
    }

    /// Handles an event. Returns whether switches represent it completely; for any other event,
    /// switches before it are in `switches`.
    pub fn see(&mut self, event: &EventRef, role: Role, switches: &mut Vec<Switch>) -> bool {
        let number = |place| int(event, place);
        let time_ns = event.time_ns;
        match role {
            Role::Out { pid, prio, state, next } => {
                let pid = number(Some(pid)).unwrap_or_default();
                let [prio, state, next] = [prio, state, next].map(number);
                let state = state.map(State::Kernel);
                self.schedout(Out { time_ns, pid, prio, state, next }, switches);
            }
            Role::In { pid, prio } => {
                self.schedin(
                    time_ns,
                    number(Some(pid)).unwrap_or_default(),
                    number(prio),
                    switches,
                );
            }
            Role::Left { pid, state }
                if self.knows(time_ns, number(Some(pid)).unwrap_or_default(), number(state)) => {}
            _ => {
                self.settle(switches);
                return false;
            }
        }
        true
    }

    /// The thread that runs, as far as is known.
    pub fn running(&self) -> i64 {
        self.pending.and_then(|o| o.next).or(self.running).unwrap_or(self.nobody)
    }

    fn schedout(&mut self, out: Out, switches: &mut Vec<Switch>) {
        self.settle(switches);
        if self.running.is_some_and(|r| r != out.pid) {
            self.put_in(self.last_ns, self.nobody, switches);
            self.put_in(out.time_ns, out.pid, switches);
        }
        self.pending = Some(out);
    }

    fn schedin(&mut self, time_ns: u64, pid: i64, prio: Option<i64>, switches: &mut Vec<Switch>) {
        let same = |o: &Out| o.next.map_or(o.time_ns == time_ns, |next| next == pid);
        if let Some(out) = self.pending.take_if(|o| same(o)) {
            return self.push(out, pid, prio, switches);
        }
        self.settle(switches);
        self.put_in(self.last_ns, self.nobody, switches);
        let from =
            Out { time_ns, pid: self.nobody, prio: None, state: Some(State::Unknown), next: None };
        self.push(from, pid, prio, switches);
    }

    /// Whether a `dequeue` adds nothing to the `switch_out` before it.
    fn knows(&self, time_ns: u64, pid: i64, state: Option<i64>) -> bool {
        self.pending.is_some_and(|o| {
            (o.time_ns, o.pid, o.state) == (time_ns, pid, state.map(State::Kernel))
        })
    }

    /// Events are missing since `since_ns`.
    pub fn lost(&mut self, since_ns: u64, switches: &mut Vec<Switch>) {
        self.settle(switches);
        if self.running.is_some() {
            self.put_in(since_ns.max(self.last_ns), self.nobody, switches);
        }
    }

    /// Another event came, or the log ended: a waiting `switch_out` has no second half.
    pub fn settle(&mut self, switches: &mut Vec<Switch>) {
        if let Some(out) = self.pending.take() {
            let next = out.next.filter(|_| self.complete).unwrap_or(self.nobody);
            self.push(out, next, None, switches);
        }
    }

    fn push(&mut self, out: Out, next: i64, next_prio: Option<i64>, switches: &mut Vec<Switch>) {
        let Out { time_ns, pid, prio, state, .. } = out;
        switches.push(Switch {
            time_ns,
            prev: pid,
            prev_prio: prio,
            prev_state: state,
            next,
            next_prio,
        });
        self.running = Some(next);
        self.last_ns = time_ns;
    }

    /// Inserts a switch that was not logged, if one is needed for `next` to run.
    fn put_in(&mut self, time_ns: u64, next: i64, switches: &mut Vec<Switch>) {
        if let Some(pid) = self.running.filter(|r| *r != next) {
            let out = Out { time_ns, pid, prio: None, state: Some(State::Unknown), next: None };
            self.push(out, next, None, switches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(time_ns: u64, pid: i64, next: Option<i64>) -> Out {
        Out { time_ns, pid, prio: Some(120), state: Some(State::Kernel(1)), next }
    }

    /// (time, prev, next) of a CPU's switches.
    fn short(switches: &[Switch]) -> Vec<(u64, i64, i64)> {
        switches.iter().map(|s| (s.time_ns, s.prev, s.next)).collect()
    }

    #[test]
    fn out_and_in_are_one_switch() {
        let (mut cpu, mut made) = (Cpu::new(0, false), Vec::new());
        cpu.schedout(out(10, 1, Some(2)), &mut made);
        assert!(made.is_empty() && cpu.knows(10, 1, Some(1)) && cpu.running() == 2);
        cpu.schedin(10, 2, Some(99), &mut made);
        let expected = Switch {
            time_ns: 10,
            prev: 1,
            prev_prio: Some(120),
            prev_state: Some(State::Kernel(1)),
            next: 2,
            next_prio: Some(99),
        };
        assert_eq!(made, [expected]);
    }

    #[test]
    fn the_placeholder_runs_in_between() {
        let (mut cpu, mut made) = (Cpu::new(0, false), Vec::new());
        cpu.schedin(5, 1, None, &mut made);
        cpu.schedout(out(10, 1, Some(7)), &mut made);
        cpu.schedin(20, 1, None, &mut made);
        assert_eq!(
            short(&made),
            [(5, NOT_RECORDED, 1), (10, 1, NOT_RECORDED), (20, NOT_RECORDED, 1)]
        );
    }

    #[test]
    fn where_all_threads_are_recorded_a_schedout_alone_gives_the_next() {
        let (mut cpu, mut made) = (Cpu::new(0, true), Vec::new());
        cpu.schedout(out(10, 1, Some(7)), &mut made);
        cpu.schedout(out(20, 7, Some(1)), &mut made);
        cpu.settle(&mut made);
        assert_eq!(short(&made), [(10, 1, 7), (20, 7, 1)]);
    }

    #[test]
    fn switches_that_do_not_fit_are_joined_by_the_placeholder() {
        let (mut cpu, mut made) = (Cpu::new(0, true), Vec::new());
        cpu.schedin(5, 1, None, &mut made);
        cpu.schedout(out(10, 2, Some(3)), &mut made);
        cpu.settle(&mut made);
        // Of thread 1 only the begin is known.
        assert_eq!(
            short(&made),
            [(5, NOT_RECORDED, 1), (5, 1, NOT_RECORDED), (10, NOT_RECORDED, 2), (10, 2, 3)]
        );
        assert!(made[1].prev_prio.is_none() && made[2].next_prio.is_none());
        assert!(made[..3].iter().all(|s| s.prev_state == Some(State::Unknown)));
    }

    #[test]
    fn the_placeholder_runs_where_events_were_lost() {
        let (mut cpu, mut made) = (Cpu::new(0, true), Vec::new());
        cpu.lost(3, &mut made);
        cpu.schedin(5, 1, None, &mut made);
        cpu.lost(8, &mut made);
        cpu.schedin(9, 1, None, &mut made);
        assert_eq!(
            short(&made),
            [(5, NOT_RECORDED, 1), (8, 1, NOT_RECORDED), (9, NOT_RECORDED, 1)]
        );
    }
}
