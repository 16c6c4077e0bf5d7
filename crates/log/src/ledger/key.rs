// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The table of ledger keys: each cause of missing data, its severity, and a remedy.

use super::Severity;

/// The causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    RingFull,
    ProbeNotAttached,
    ProbeMissed,
    SampleMissed,
    CounterMissing,
    RateLimited,
    Excluded,
    RingGrown,
    StackUnknown,
    /// Files that are there.
    CodeUnnamed,
    TextUnread,
    /// Of OpenTelemetry, for events.
    RequestUnknown,
    StateFull,
    SymbolsHidden,
    PollMissed,
    PollIncomplete,
    /// Threads out of scope without a name.
    ThreadsUnnamed,
    EventsDisabled,
    Overwritten,
    RingBusy,
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
    BeforeStart,
    UnknownBlock,
    BeingWritten,
    Mended,
    /// The oldest segments of a recording.
    SegmentsRemoved,
    /// Others.
    SegmentsMissing,
    SegmentNotBegun,
    UserRefused,
    UserMemory,
    UserHostile,
    /// Threads of programs in another PID namespace that had ended too soon.
    UserThread,
    Snapshot,
    SnapshotShort,
    SnapshotMissing,
    TriggerFull,
    LookFailed,
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
    pub const ALL: [Key; 48] = [
        Key::RingFull,
        Key::ProbeNotAttached,
        Key::ProbeMissed,
        Key::SampleMissed,
        Key::CounterMissing,
        Key::RateLimited,
        Key::Excluded,
        Key::RingGrown,
        Key::StackUnknown,
        Key::CodeUnnamed,
        Key::TextUnread,
        Key::RequestUnknown,
        Key::StateFull,
        Key::SymbolsHidden,
        Key::PollMissed,
        Key::PollIncomplete,
        Key::ThreadsUnnamed,
        Key::EventsDisabled,
        Key::Overwritten,
        Key::RingBusy,
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
        Key::BeforeStart,
        Key::UnknownBlock,
        Key::BeingWritten,
        Key::Mended,
        Key::SegmentsRemoved,
        Key::SegmentsMissing,
        Key::SegmentNotBegun,
        Key::UserRefused,
        Key::UserMemory,
        Key::UserHostile,
        Key::UserThread,
        Key::Snapshot,
        Key::SnapshotShort,
        Key::SnapshotMissing,
        Key::TriggerFull,
        Key::LookFailed,
    ];

    /// The table of all keys.
    pub fn info(self) -> KeyInfo {
        use Severity::{Info, Loss, Notice};
        let (name, severity, explanation, remedy) = match self {
            Key::RingFull => (
                "ring_full",
                Loss,
                "the ring was full",
                "use a larger --max-memory or --buffer-size (programs: --user-buffer), limit the \
                 rate of frequent events (--rate-limit), or disable events that are not needed",
            ),
            Key::ProbeNotAttached => (
                "probe_not_attached",
                Notice,
                "a probe could not be attached, so its events are missing",
                "run 'klogger show SCHEMA' to see what this kernel offers, or add an alternative \
                 with 'or' to the probe",
            ),
            Key::ProbeMissed => (
                "probe_missed",
                Loss,
                "the kernel skipped hits of a probe, because the probe was still active on that \
                 CPU",
                "use a place that is hit less often, or that the probe itself does not reach; or \
                 record with --engine kernel, whose probes are not preempted, if the kernel can \
                 load modules",
            ),
            Key::SampleMissed => (
                "sample_missed",
                Loss,
                "the kernel took fewer samples than were due, of all threads together",
                "timers: the hypervisor ran something else, interrupts were off, or the kernel \
                 throttled them (sysctl kernel.perf_event_max_sample_rate), and the `u64 period` \
                 of the next hit has the missed time; samples and breakpoints: they hit in the \
                 program of another one or of a trace event; add this count to all others when \
                 you compute shares",
            ),
            Key::CounterMissing => (
                "counter_missing",
                Notice,
                "the machine does not have an optional counter of the schema, which reads 0",
                "record on a machine that has it; virtual machines often have no hardware counters",
            ),
            Key::RateLimited => (
                "rate_limited",
                Info,
                "events exceeded --rate-limit, so the log has a sample of them",
                "none needed: add this count when you count events, or record with a higher \
                 --rate-limit",
            ),
            Key::Excluded => (
                "excluded",
                Info,
                "options of the recording excluded events, which were neither logged nor counted",
                "record without the option to have all events",
            ),
            Key::RingGrown => (
                "ring_grown",
                Info,
                "a ring filled up too fast and was replaced by a larger one",
                "none needed; to start with a ring of this size, record with this --buffer-size",
            ),
            Key::StackUnknown => (
                "stack_unknown",
                Notice,
                "stacks were dropped because the table of stacks had no place for them; their \
                 number in events is 0",
                "record fewer threads, or for a shorter time",
            ),
            Key::CodeUnnamed => (
                "code_unnamed",
                Notice,
                "code of programs may have no names in user stacks, because it is not known which \
                 file it was of, or the file with its names was gone or refused, or could not be \
                 read or fetched",
                "a map of code that a program makes (/tmp/perf-PID.map) counts if the program's \
                 own user or root has written it, and up to 128 MiB; 'klogger symbolize' names \
                 the code of files later",
            ),
            Key::TextUnread => (
                "text_unread",
                Notice,
                "texts or arrays of events could not be read and are empty or zero in the log",
                "the memory of a program can be read only while it is resident: log it at the end \
                 of a system call that has read it, or let the program touch it before; otherwise \
                 the pointer is wrong",
            ),
            Key::RequestUnknown => (
                "request_unknown",
                Notice,
                "events may have no ids of OpenTelemetry although their threads worked on a \
                 request",
                "its variable otel_thread_ctx_v1 is found in programs and libraries for x86-64 \
                 that export it, and their records must be in memory",
            ),
            Key::StateFull => (
                "state_full",
                Loss,
                "a probe could not remember something, because a state of its schema had no room, \
                 so what it would have logged later is missing",
                "give the state more entries in the schema: 'state NAME[N]'; if N is a parameter, \
                 with --set",
            ),
            Key::SymbolsHidden => (
                "symbols_hidden",
                Notice,
                "the kernel hides its symbols, so code addresses have no names",
                "record as root, after 'sysctl kernel.kptr_restrict=1'",
            ),
            Key::PollMissed => (
                "poll_missed",
                Notice,
                "a file was not read at some of its times",
                "choose a longer interval after 'every'",
            ),
            Key::PollIncomplete => (
                "poll_incomplete",
                Notice,
                "a polled file has no value for some fields, which are 0 or empty",
                "compare the keys or columns of the schema with the file on this kernel",
            ),
            Key::ThreadsUnnamed => (
                "threads_unnamed",
                Info,
                "threads that are not recorded, but that events name, had ended before their names \
                 were read; the log has their ids only",
                "none needed; record with -a to have the names of all threads",
            ),
            Key::EventsDisabled => (
                "events_disabled",
                Info,
                "events were disabled for a part of the recording",
                "none needed; 'klogger enable EVENT' enables them again",
            ),
            Key::Overwritten => (
                "overwritten",
                Info,
                "older events were overwritten by newer ones, as requested with --overwrite",
                "record with a larger --buffer-size to keep more",
            ),
            Key::RingBusy => (
                "ring_busy",
                Loss,
                "a ring was dumped while events were being logged to it, because there was no \
                 moment without; its newest events may be incomplete",
                "dump again, or record with a larger --buffer-size, and fewer events",
            ),
            Key::DrainLate => (
                "drain_late",
                Notice,
                "a ring was drained later than planned",
                "run the recorder with a real-time priority (as root), or record with a larger \
                 --buffer-size",
            ),
            Key::CpuOffline => (
                "cpu_offline",
                Loss,
                "events happened on a CPU that came online after the recording began and has no \
                 ring",
                "bring all CPUs online before you record; the kernel engine adds rings when \
                 something is written to /proc/sys/klogger/buffer_size",
            ),
            Key::CpuWent => (
                "cpu_went",
                Notice,
                "a CPU was offline for a part of the recording and has no events there",
                "exclude that time of this CPU from rates; keep CPUs online while you record",
            ),
            Key::ClockStep => (
                "clock_step",
                Notice,
                "the clock of events did not step, but wall times computed from it are wrong from \
                 here on",
                "use differences of times, and no wall times after the step; while you record, \
                 stop what sets the clock (chronyd, ntpd) and do not suspend the machine",
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
                "run 'klogger rescue' on that machine: its rings may still have the last events. \
                 End a recording with Ctrl-C, --for, or 'kill -INT', not with 'kill -9'",
            ),
            Key::Rescued => (
                "rescued",
                Notice,
                "the recorder was killed, and the contents of its rings were saved afterwards; the \
                 last half second of its own events (MARK, LOGGING_EVENT) may be missing",
                "none needed: the log ends where the recorder did. Events of programs are in rings \
                 of their own: 'klogger rescue' lists them",
            ),
            Key::InFlight => (
                "in_flight",
                Loss,
                "events had left their ring and were not yet in the file when the recorder was \
                 killed",
                "end a recording with Ctrl-C, --for, or 'kill -INT', not with 'kill -9'",
            ),
            Key::FileCut => (
                "file_cut",
                Loss,
                "the file ends in the middle of a block",
                "if this is a copy, copy it again; the missing events cannot be recovered from it",
            ),
            Key::BlockCorrupt => (
                "block_corrupt",
                Loss,
                "a part of the file is damaged, and its events were dropped",
                "if this is a copy, copy it again; otherwise check the disk",
            ),
            Key::SerialGap => (
                "serial_gap",
                Loss,
                "serial numbers are missing without a LOST record",
                "expected where the file is damaged; otherwise report a bug",
            ),
            Key::TimeDisorder => (
                "time_disorder",
                Loss,
                "events out of order beyond the reader's look-ahead were dropped",
                "the clock ran backwards, or the file is damaged; record with another clock source",
            ),
            Key::BeforeStart => (
                "before_start",
                Notice,
                "events have times before the start of the log; in SQL and reports they are at its \
                 start",
                "none needed if they are few; otherwise the clocks of the CPUs differ: record with \
                 another clock source",
            ),
            Key::UnknownBlock => (
                "unknown_block",
                Notice,
                "the log has blocks of an unknown kind",
                "read it with the klogger version that wrote it, or a newer one",
            ),
            Key::BeingWritten => (
                "being_written",
                Notice,
                "the log is still being written and may be incomplete",
                "read it again when the recording has ended; what is there is complete",
            ),
            Key::Mended => (
                "mended",
                Notice,
                "a part of the file is damaged, but was read from its copy in the file",
                "nothing is missing; if this is a copy, copy it again, otherwise check the disk",
            ),
            Key::SegmentsRemoved => (
                "segments_removed",
                Info,
                "the oldest segments of the recording are not there any more: a recording with \
                 --keep removes them, also on a full disk",
                "none needed; record with a larger --keep, or to a larger disk, to have more of \
                 the past",
            ),
            Key::SegmentsMissing => (
                "segments_missing",
                Loss,
                "segments of the recording are missing between others",
                "if this is a copy, copy the whole folder again; otherwise look for what removed \
                 the files",
            ),
            Key::SegmentNotBegun => (
                "segment_not_begun",
                Notice,
                "the next segment could not be begun, so that the one before it became longer",
                "look whether the folder of the segments is there, and whether its disk has room",
            ),
            Key::UserRefused => (
                "user_refused",
                Loss,
                "the events of a program could not be recorded",
                "build the program with the schema that the recorder has, and run it as a user \
                 whose programs may be recorded",
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
                "the memory that a program shares with the recorder had invalid contents, which \
                 were dropped",
                "look for stray writes in the program; its other threads were recorded",
            ),
            Key::UserThread => (
                "user_thread",
                Notice,
                "threads of a program in a PID namespace, or all of it, had ended before the \
                 kernel's number of them was known: their events have numbers above 4194304, \
                 which no thread has",
                "none needed: one thread has one number; 'context pidns_tid' logs the one in the \
                 namespace",
            ),
            Key::Snapshot => (
                "snapshot",
                Info,
                "this log is a snapshot and has the events of this time only; losses of which no \
                 ring knows, such as skipped hits and rate limits, are in the ledger of the \
                 recording",
                "none needed; the log of the recording has the other events, unless it was \
                 /dev/null",
            ),
            Key::SnapshotShort => (
                "snapshot_short",
                Notice,
                "the history in memory did not have all of the time that the snapshot was to \
                 cover, so its first events are missing",
                "use a larger --snapshot-memory or a longer --snapshot-before, or record fewer \
                 events",
            ),
            Key::SnapshotMissing => (
                "snapshot_missing",
                Notice,
                "snapshots of the recording are missing",
                "make space on the disk, use a larger --snapshot-keep, or choose a condition \
                 that is met less often",
            ),
            Key::TriggerFull => (
                "trigger_full",
                Notice,
                "a trigger could not remember so many events or values of its key, so it may have \
                 missed hits",
                "use a shorter time, or a condition that fewer events meet",
            ),
            Key::LookFailed => (
                "look_failed",
                Notice,
                "the recorder could not look at something of the machine, so that names, scope or \
                 changes which depend on it may be missing from the log",
                "look whether /proc and /sys are mounted and show all processes (hidepid), and \
                 whether the recorder may open more files (ulimit -n)",
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
        let mut names: Vec<_> = Key::ALL.iter().map(|k| k.info().name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Key::ALL.len());
        for key in Key::ALL {
            assert!(key.info().remedy.len() > 20, "{key:?}");
        }
    }
}
