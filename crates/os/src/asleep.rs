// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether a child waits for something that does not come, such as the answer of a file system
//! whose server has stopped.

use std::fs;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A single wait that takes longer. However busy the machine is, it begins with the sleep.
const TOO_LONG: Duration = Duration::from_secs(3);
/// How often one should look.
pub const LOOK: Duration = Duration::from_millis(50);

/// Of a child that has one thread.
#[derive(Debug)]
pub struct Sleep {
    pid: u32,
    /// How often it had slept, and since when it has been seen in this sleep.
    last: Option<(Slept, Instant)>,
}

/// How often a thread has slept; `None`: it cannot be read.
type Slept = Option<u64>;

/// `None`: the thread does not sleep.
fn slept(status: &str) -> Option<Slept> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let sleeps = line("State:").is_some_and(|state| state.trim_start().starts_with(['S', 'D']));
    sleeps.then(|| line("voluntary_ctxt_switches:")?.trim().parse().ok())
}

impl Sleep {
    pub fn of(child: &Child) -> Sleep {
        Sleep::of_pid(child.id())
    }

    pub fn of_pid(pid: u32) -> Sleep {
        Sleep { pid, last: None }
    }

    /// Whether it has slept for too long, in one piece. If that cannot be read, as without /proc,
    /// whether it has taken as long.
    pub fn is_too_long(&mut self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
        let now = status.map_or(Some(None), |status| slept(&status));
        match (now, &self.last) {
            (None, _) => self.last = None,
            (Some(now), Some((last, since))) if now == *last => {
                return since.elapsed() >= TOO_LONG;
            }
            (Some(now), _) => self.last = Some((now, Instant::now())),
        }
        false
    }
}

/// Children that were given up: a signal may not end them until the server answers.
static LEFT: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Whether a child has ended, and is reaped.
fn is_over(child: libc::pid_t) -> bool {
    // SAFETY: takes numbers. Nobody else waits for it.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Has a child that was killed reaped later, when another one is left.
pub fn leave(child: libc::pid_t) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.push(child);
    left.retain(|child| !is_over(*child));
}

/// Ends a child without waiting for it for long.
pub fn give_up(mut child: Child) {
    // It fails if it has ended.
    let _ = child.kill();
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    leave(child.id().cast_signed());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_runs_does_not_sleep() {
        let status =
            |state: &str| format!("Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t7\n");
        assert_eq!(slept(&status("S (sleeping)")), Some(Some(7)));
        assert_eq!(slept(&status("D (disk sleep)")), Some(Some(7)));
        assert_eq!(slept(&status("R (running)")), None);
        assert_eq!(slept("State:\tS (sleeping)\n"), Some(None));
    }

    #[test]
    fn who_sleeps_in_one_piece_is_told_from_who_wakes_up() {
        let script = |text: &str| Command::new("sh").args(["-c", text]).spawn().unwrap();
        let (one, many) = (script("exec sleep 60"), script("while :; do sleep 0.05; done"));
        let mut sleeps = [Sleep::of(&one), Sleep::of(&many)];
        let begin = Instant::now();
        while !sleeps[0].is_too_long() {
            assert!(!sleeps[1].is_too_long());
            std::thread::sleep(LOOK);
        }
        assert!(begin.elapsed() >= TOO_LONG);
        [one, many].into_iter().for_each(give_up);
        assert!(LEFT.lock().unwrap().is_empty());
    }
}
