// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of keys: each way in which data can be missing, how bad it is, and what one can do.

use super::Severity;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    RingFull,
    ProbeNotAttached,
    ProbeMissed,
    RateLimited,
    RingGrown,
    StackUnknown,
    TextUnread,
    SymbolsHidden,
    EventsDisabled,
    Overwritten,
    DrainLate,
    CpuOffline,
    CpuWent,
    ClockStep,
    DiskFull,
    RecorderKilled,
    Rescued,
    InFlight,
    FileCut,
    BlockCorrupt,
    SerialGap,
    TimeDisorder,
    UnknownBlock,
    BeingWritten,
    Mended,
    UserRefused,
    UserMemory,
    UserHostile,
}

/// A row of the table of keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    pub name: &'static str,
    pub severity: Severity,
    pub explanation: &'static str,
    pub remedy: &'static str,
}

impl Key {
    pub const ALL: [Key; 28] = [
        Key::RingFull,
        Key::ProbeNotAttached,
        Key::ProbeMissed,
        Key::RateLimited,
        Key::RingGrown,
        Key::StackUnknown,
        Key::TextUnread,
        Key::SymbolsHidden,
        Key::EventsDisabled,
        Key::Overwritten,
        Key::DrainLate,
        Key::CpuOffline,
        Key::CpuWent,
        Key::ClockStep,
        Key::DiskFull,
        Key::RecorderKilled,
        Key::Rescued,
        Key::InFlight,
        Key::FileCut,
        Key::BlockCorrupt,
        Key::SerialGap,
        Key::TimeDisorder,
        Key::UnknownBlock,
        Key::BeingWritten,
        Key::Mended,
        Key::UserRefused,
        Key::UserMemory,
        Key::UserHostile,
    ];

    /// The table of all keys.
    pub fn about(self) -> KeyInfo {
        use Severity::{Info, Loss, Notice};
        let (name, severity, explanation, remedy) = match self {
            Key::RingFull => (
                "ring_full",
                Loss,
                "events found no space in their ring",
                "record with a larger --max-memory or --buffer-size (programs: --user-buffer), \
                 limit the rate of events that come \
                 too often (--rate-limit), or disable those that are not needed",
            ),
            Key::ProbeNotAttached => (
                "probe_not_attached",
                Notice,
                "a probe could not be attached, so its events are missing",
                "see 'klogger show SCHEMA' for what this kernel offers, or add an alternative with \
                 'or' to the probe",
            ),
            Key::ProbeMissed => (
                "probe_missed",
                Loss,
                "the kernel skipped hits of a probe, because it had not returned yet from another \
                 one on that CPU",
                "record with --engine kernel, whose probes are not preempted, or probe a place \
                 that is hit less often, or that \
                 the probe itself does not reach",
            ),
            Key::RateLimited => (
                "rate_limited",
                Info,
                "events came more often than --rate-limit allows, so that the log has a sample of \
                 them",
                "none needed: multiply, or count these as well; record with a higher --rate-limit \
                 to keep more",
            ),
            Key::RingGrown => (
                "ring_grown",
                Info,
                "a ring was filled too fast, and a larger one took its place",
                "none needed; record with this --buffer-size to have it from the beginning",
            ),
            Key::StackUnknown => (
                "stack_unknown",
                Notice,
                "the kernel stacks of events were not kept, because others had their places in the \
                 table of stacks; \
                 their number is 0",
                "record less at a time: fewer threads, or for a shorter time",
            ),
            Key::TextUnread => (
                "text_unread",
                Notice,
                "texts or arrays of events could not be read, so they are empty or zeros in the \
                 log",
                "a program's memory can be read only while it is there: log it at the end of a \
                 system call that has read it, \
                 or let the program touch it before; otherwise the pointer is wrong",
            ),
            Key::SymbolsHidden => (
                "symbols_hidden",
                Notice,
                "the kernel hides its symbols, so code has addresses and no names",
                "record as root, after 'sysctl kernel.kptr_restrict=1'",
            ),
            Key::EventsDisabled => (
                "events_disabled",
                Info,
                "events were switched off for a part of the recording",
                "none needed; 'klogger enable EVENT' switches them on again",
            ),
            Key::Overwritten => (
                "overwritten",
                Info,
                "older events gave way to newer ones, as --overwrite asks",
                "record with a larger --buffer-size to reach further back",
            ),
            Key::DrainLate => (
                "drain_late",
                Notice,
                "a ring was emptied later than planned",
                "let the recorder run with a real-time priority (as root), or record with a larger \
                 --buffer-size",
            ),
            Key::CpuOffline => (
                "cpu_offline",
                Loss,
                "events happened on a CPU that has no ring, because it came online after recording \
                 had begun",
                "bring all CPUs online before you record; the kernel engine gives it a ring when \
                 something is written to \
                 /proc/sys/klogger/buffer_size",
            ),
            Key::CpuWent => (
                "cpu_went",
                Notice,
                "a CPU was offline for a part of the recording, so it has no events there",
                "leave that time of this CPU out when you compute rates; keep CPUs online while \
                 you record",
            ),
            Key::ClockStep => (
                "clock_step",
                Notice,
                "times of events go on evenly, but wall times that follow from them are wrong from \
                 there on",
                "trust differences of times, and not wall times after the step; stop what sets the \
                 clock (chronyd, ntpd), and \
                 do not let the machine sleep, while you record",
            ),
            Key::DiskFull => (
                "disk_full",
                Loss,
                "the log could not be written",
                "free some space, or write the log to another file system with -o",
            ),
            Key::RecorderKilled => (
                "recorder_killed",
                Loss,
                "the log has no end: the recorder was killed, or its machine crashed",
                "what its rings held may still be there: run 'klogger rescue' on that machine. End \
                 a recording with Ctrl-C, \
                 --for, or 'kill -INT', and not with 'kill -9'",
            ),
            Key::Rescued => (
                "rescued",
                Notice,
                "the recorder was killed, and what its rings held was saved afterwards; the last \
                 half second of its own \
                 events (MARK, LOGGING_EVENT) may be missing",
                "none needed: the log ends where the recorder did. What programs logged besides is \
                 in their own rings: \
                 'klogger rescue' lists them",
            ),
            Key::InFlight => (
                "in_flight",
                Loss,
                "events had left their ring, and were not in the file yet, when the recorder was \
                 killed",
                "end a recording with Ctrl-C, --for, or 'kill -INT', and not with 'kill -9'",
            ),
            Key::FileCut => (
                "file_cut",
                Loss,
                "the file ends in the middle of a block",
                "if this is a copy, copy it again; the events that it held cannot be recovered \
                 from it",
            ),
            Key::BlockCorrupt => (
                "block_corrupt",
                Loss,
                "bytes of the file are not what was written, so the events in them were left out",
                "if this is a copy, copy it again; otherwise check the disk",
            ),
            Key::SerialGap => (
                "serial_gap",
                Loss,
                "serial numbers are missing, and no LOST record says why",
                "expected where the file is damaged; report it if the file is whole",
            ),
            Key::TimeDisorder => (
                "time_disorder",
                Loss,
                "events are too far from their place in time, and were left out",
                "the clock ran backwards, or the file is damaged; record with another clock source",
            ),
            Key::UnknownBlock => (
                "unknown_block",
                Notice,
                "the log holds parts that this klogger does not know",
                "read it with the klogger that wrote it, or a newer one",
            ),
            Key::BeingWritten => (
                "being_written",
                Notice,
                "the log has no end yet: a recorder still writes it, and what is not in it may be \
                 yet to come",
                "read it again when the recording has ended; what is there is whole",
            ),
            Key::Mended => (
                "mended",
                Notice,
                "bytes of the file are not what was written, but what they said stands in it a \
                 second time",
                "nothing is missing; if this is a copy, copy it again, otherwise check the disk",
            ),
            Key::UserRefused => (
                "user_refused",
                Loss,
                "the events of a program could not be recorded",
                "build the program with the schema that the recorder has, and run it as a user who \
                 may be recorded",
            ),
            Key::UserMemory => (
                "user_memory",
                Loss,
                "threads of programs got no ring, because all rings together would have been \
                 larger than --max-memory",
                "record with a larger --max-memory or a smaller --user-buffer",
            ),
            Key::UserHostile => (
                "user_hostile",
                Loss,
                "the memory that a program shares with the recorder held what klogger does not \
                 write there, so what it \
                 said was dropped",
                "look for stray writes in the program; its other threads were recorded",
            ),
        };
        KeyInfo { name, severity, explanation, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name_of_its_own_and_a_remedy() {
        let mut names: Vec<_> = Key::ALL.iter().map(|k| k.about().name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Key::ALL.len());
        for key in Key::ALL {
            assert!(key.about().remedy.len() > 20, "{key:?}");
        }
    }
}
