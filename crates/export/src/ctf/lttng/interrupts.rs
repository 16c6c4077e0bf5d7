// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Interrupts and system calls: finds the events that LTTng has under other names, by the slices
//! that their schemata declare.

use crate::roles::{Place, number};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{self, Shape, Slice};

/// The meaning of an event in LTTng. Fields are indices into the event's fields.
#[derive(Clone, Copy)]
pub enum Part {
    /// Of `slice irq`: the field that matches its ends is the interrupt's number.
    IrqEntry {
        irq: usize,
    },
    /// With the field `handled`, if there is one.
    IrqExit {
        irq: usize,
        handled: Place,
    },
    /// Of `slice softirq`.
    SoftirqEntry {
        vec: usize,
    },
    SoftirqExit {
        vec: usize,
    },
    /// Of `slice system_call`, with the field `id`.
    CallEntry {
        id: usize,
    },
    /// With the field `ret` as well.
    CallExit {
        id: usize,
        ret: usize,
    },
}

impl Part {
    pub fn of(event: &EventLayout) -> Option<Part> {
        event
            .begins
            .iter()
            .find_map(|s| begin(event, s))
            .or_else(|| event.ends.iter().find_map(|s| end(event, s)))
    }
}

fn begin(event: &EventLayout, slice: &Slice) -> Option<Part> {
    Some(match slice.name.as_str() {
        "irq" => Part::IrqEntry { irq: key(event, slice)? },
        "softirq" => Part::SoftirqEntry { vec: key(event, slice)? },
        "system_call" => Part::CallEntry { id: number(event, "id")? },
        _ => return None,
    })
}

fn end(event: &EventLayout, slice: &Slice) -> Option<Part> {
    Some(match slice.name.as_str() {
        "irq" => Part::IrqExit { irq: key(event, slice)?, handled: number(event, "handled") },
        "softirq" => Part::SoftirqExit { vec: key(event, slice)? },
        "system_call" => Part::CallExit { id: number(event, "id")?, ret: long(event, "ret")? },
        _ => return None,
    })
}

/// The only field that matches the ends of a slice on a CPU.
fn key(event: &EventLayout, slice: &Slice) -> Place {
    match slice.by.as_slice() {
        [name] if slice.on == model::Place::Cpu => number(event, name),
        _ => None,
    }
}

fn long(event: &EventLayout, name: &str) -> Place {
    event.fields.iter().position(|f| f.name == name && f.shape == Shape::One)
}

/// System calls whose arguments the LTTng analyses read; without arguments they abort. A log does
/// not have these.
const WITH_ARGUMENTS: [&str; 28] = [
    "open",
    "openat",
    "socket",
    "fcntl",
    "dup",
    "dup2",
    "dup3",
    "close",
    "sync",
    "sync_file_range",
    "fsync",
    "fdatasync",
    "read",
    "recvmsg",
    "recvfrom",
    "readv",
    "pread",
    "pread64",
    "preadv",
    "write",
    "sendmsg",
    "sendto",
    "writev",
    "pwrite",
    "pwrite64",
    "pwritev",
    "splice",
    "sendfile64",
];

/// A system call's name; `None` if the numbers of this machine are not known, or readers need more
/// than the name.
pub fn call_name(machine: &str, id: i64) -> Option<&'static str> {
    let id = usize::try_from(id).ok()?;
    let name = match machine {
        "x86_64" => syscalls::x86_64::Sysno::new(id)?.name(),
        "aarch64" => syscalls::aarch64::Sysno::new(id)?.name(),
        _ => return None,
    };
    Some(name).filter(|name| !WITH_ARGUMENTS.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_their_machine() {
        assert_eq!(call_name("x86_64", 39), Some("getpid"));
        assert_eq!(call_name("aarch64", 172), Some("getpid"));
        assert_eq!(call_name("x86_64", 0), None, "read: the analyses would look for the file");
        assert_eq!(
            (call_name("x86_64", -1), call_name("x86_64", 99_999), call_name("odd", 0)),
            (None, None, None)
        );
    }
}
