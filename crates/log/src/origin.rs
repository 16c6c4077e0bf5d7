// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The origin of an event: a CPU, the recorder itself, or a thread of a program.
//!
//! The events of one origin are a stream: they have their own serial numbers, and are in the order
//! in which space was reserved for them in one ring.

use crate::format::RECORDER_CPU;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The order is that of events with equal times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    Cpu(u16),
    Recorder,
    /// Each use of a ring by a thread is a separate stream, numbered from 1, because the kernel
    /// reuses thread ids.
    Thread {
        stream: u32,
        thread: Thread,
    },
}

/// A thread of a program, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    /// The process that it belongs to.
    pub tgid: u32,
}

impl Origin {
    /// The CPU, or the recorder, by its number in a log.
    pub fn of_cpu(number: u16) -> Origin {
        if number == RECORDER_CPU { Origin::Recorder } else { Origin::Cpu(number) }
    }

    /// [`RECORDER_CPU`] for the recorder; `None` for a thread, whose CPU is not known.
    pub fn cpu(self) -> Option<u16> {
        match self {
            Origin::Cpu(cpu) => Some(cpu),
            Origin::Recorder => Some(RECORDER_CPU),
            Origin::Thread { .. } => None,
        }
    }

    /// The CPU as in texts and tables: -1 is the recorder. All other CPU numbers fit.
    #[inline]
    pub fn cpu_column(self) -> Option<i16> {
        self.cpu().map(|cpu| cpu as i16)
    }

    /// The number of a thread's stream; otherwise 0.
    pub fn stream(self) -> u32 {
        match self {
            Origin::Thread { stream, .. } => stream,
            Origin::Cpu(_) | Origin::Recorder => 0,
        }
    }

    #[inline]
    pub fn thread(self) -> Option<Thread> {
        match self {
            Origin::Thread { thread, .. } => Some(thread),
            Origin::Cpu(_) | Origin::Recorder => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Origin::Recorder => write!(f, "the recorder"),
            Origin::Thread { thread, .. } => thread.fmt(f),
        }
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.tid)
    }
}
