// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens performance events and trace events, as perf does, so that programs can be attached to
//! them and counts be read.

use crate::tracefs::TraceFs;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// `struct perf_event_attr` up to its third version (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Or `sample_freq`.
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    /// Or `bp_addr`.
    config1: u64,
    /// Or `bp_len`.
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_TYPE_BREAKPOINT: u32 = 5;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// `read()` also says for how long the event was enabled, and for how long it has counted.
const TOTAL_TIMES: u64 = 1 | 2;
const DISABLED: u64 = 1;
const PINNED: u64 = 1 << 2;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FREQ: u64 = 1 << 10;
/// `PERF_EVENT_IOC_...`: _IO('$', N).
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_RESET: libc::c_ulong = 0x2403;

/// What a breakpoint waits for: `HW_BREAKPOINT_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Write = 2,
    ReadWrite = 3,
    Execute = 4,
}

impl Attributes {
    /// A count of an event, which `kind` and `config` name. It is disabled at first.
    pub fn count(kind: u32, config: u64) -> Attributes {
        Attributes {
            kind,
            config,
            size: size_of::<Attributes>() as u32,
            read_format: TOTAL_TIMES,
            flags: DISABLED,
            ..Attributes::default()
        }
    }

    /// Nothing is counted: an event for the sake of its records, which `flags` select, with what
    /// `sample_type` adds to each and times of the clock `clockid`.
    pub fn records(flags: u64, sample_type: u64, clockid: libc::clockid_t) -> Attributes {
        let own = Attributes::count(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
        Attributes { read_format: 0, flags, sample_type, clockid, ..own }
    }

    /// An access to `length` bytes of memory.
    pub fn breakpoint(address: u64, length: u64, access: Access) -> Attributes {
        let own = Attributes::count(PERF_TYPE_BREAKPOINT, 0);
        let own = Attributes { bp_type: access as u32, config1: address, config2: length, ..own };
        own.every(1)
    }

    /// With a sample each time that so many have been counted.
    pub fn every(self, period: u64) -> Attributes {
        Attributes { sample_period: period, ..self }
    }

    /// With a period that the kernel adjusts, so that there are so many samples a second.
    pub fn at_hz(self, hz: u64) -> Attributes {
        Attributes { sample_period: hz, flags: self.flags | FREQ, ..self }
    }

    /// Only while a program's own code runs.
    pub fn without_kernel(self) -> Attributes {
        Attributes { flags: self.flags | EXCLUDE_KERNEL, ..self }
    }

    /// Only while the kernel runs.
    pub fn without_user(self) -> Attributes {
        Attributes { flags: self.flags | EXCLUDE_USER, ..self }
    }

    /// It counts all the time, and never takes turns with others on a counter of the CPU.
    pub fn pinned(self) -> Attributes {
        Attributes { flags: self.flags | PINNED, ..self }
    }
}

/// The system call that opens performance events, or a double of it in tests.
pub trait Opener {
    /// An event of all threads on a CPU.
    fn open(&self, attributes: &Attributes, cpu: u32) -> io::Result<OwnedFd>;
}

/// The kernel that runs.
pub struct Kernel;

impl Opener for Kernel {
    fn open(&self, attributes: &Attributes, cpu: u32) -> io::Result<OwnedFd> {
        open(attributes, -1, cpu as libc::c_int)
    }
}

fn open(attributes: &Attributes, thread: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
    let no_group: libc::c_int = -1;
    // SAFETY: the attributes are as long as they say.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            thread,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0);
    // SAFETY: the descriptor is new and ours.
    fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).ok_or_else(io::Error::last_os_error)
}

/// Whether this machine counts an event. If it may not be asked: yes.
pub fn can_count(kind: u32, config: u64) -> bool {
    let own = Attributes::count(kind, config);
    // So that it can be asked by any user, of the thread that asks.
    let own = Attributes { flags: own.flags | EXCLUDE_KERNEL | EXCLUDE_HV, ..own };
    match open(&own, 0, -1) {
        Ok(_) => true,
        Err(e) => !is_unknown(&e),
    }
}

/// Whether an error says that the machine does not count such an event.
pub fn is_unknown(error: &io::Error) -> bool {
    let unknown = [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV, libc::EINVAL, libc::ENXIO];
    error.raw_os_error().is_some_and(|e| unknown.contains(&e))
}

/// What an event has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub value: u64,
    /// Nanoseconds during which it was enabled, and during which it has counted.
    pub enabled_ns: u64,
    pub running_ns: u64,
}

impl Count {
    /// Of an event that was opened here. `None` if it cannot count any more: a pinned event that
    /// found no counter of the CPU.
    pub fn read(fd: BorrowedFd) -> Option<Count> {
        let mut words = [0; 24];
        let mut file = File::from(fd.try_clone_to_owned().ok()?);
        file.read_exact(&mut words).ok()?;
        let (words, _) = words.as_chunks();
        let [value, enabled_ns, running_ns] = [0, 1, 2].map(|n| u64::from_ne_bytes(words[n]));
        Some(Count { value, enabled_ns, running_ns })
    }

    /// With what it would have counted while it waited for a counter of the CPU.
    pub fn scaled(self) -> u64 {
        if self.running_ns == 0 || self.running_ns >= self.enabled_ns {
            return self.value;
        }
        let scaled =
            u128::from(self.value) * u128::from(self.enabled_ns) / u128::from(self.running_ns);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

pub fn enable(event: BorrowedFd) -> io::Result<()> {
    control(event, IOC_ENABLE)
}

pub fn disable(event: BorrowedFd) -> io::Result<()> {
    control(event, IOC_DISABLE)
}

/// Counts from 0 on.
pub fn reset(event: BorrowedFd) -> io::Result<()> {
    control(event, IOC_RESET)
}

fn control(event: BorrowedFd, what: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these have no argument.
    crate::check(unsafe { libc::ioctl(event.as_raw_fd(), what, 0) }).map(drop)
}

/// The largest number of samples a second that the kernel takes of an event.
pub fn max_sample_rate() -> Option<u64> {
    crate::machine::line("/proc/sys/kernel/perf_event_max_sample_rate").parse().ok()
}

/// The trace event `GROUP:NAME`, on CPU 0; programs that are attached to it run on all CPUs.
pub fn trace_event(full_name: &str) -> io::Result<OwnedFd> {
    let tracefs = TraceFs::find()?;
    let path = tracefs.root().join("events").join(full_name.replacen(':', "/", 1)).join("id");
    let id = fs::read_to_string(path)?;
    let config = id.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    let own = Attributes::count(PERF_TYPE_TRACEPOINT, config);
    Kernel.open(&Attributes { flags: 0, ..own }, 0)
}

/// A kprobe in a function, or at its return, on CPU 0; it hits on all CPUs.
pub fn kprobe(function: &str, at_return: bool) -> io::Result<OwnedFd> {
    let root = Path::new("/sys/bus/event_source/devices/kprobe");
    let number = |text: &str| text.trim().parse().map_err(|_| io::ErrorKind::InvalidData);
    let kind = number(&fs::read_to_string(root.join("type"))?)?;
    // As `config:0`.
    let format = fs::read_to_string(root.join("format/retprobe"))?;
    let bit = number(format.trim().trim_start_matches("config:"))?;
    let name = CString::new(function)?;
    let own = Attributes::count(kind, u64::from(at_return) << bit);
    Kernel.open(&Attributes { flags: 0, config1: name.as_ptr() as u64, ..own }, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_includes_the_time_without_a_counter() {
        let count = |enabled_ns, running_ns| Count { value: 1000, enabled_ns, running_ns }.scaled();
        assert_eq!(count(10, 10), 1000);
        assert_eq!(count(10, 5), 2000);
        assert_eq!(count(10, 0), 1000);
        let large = Count { value: u64::MAX, enabled_ns: u64::MAX, running_ns: 1 };
        assert_eq!(large.scaled(), u64::MAX);
    }

    #[test]
    fn software_is_counted_and_nonsense_is_not() {
        // Of this thread, which has page faults if it writes to new memory.
        let attributes = Attributes::count(1, 2);
        let attributes = Attributes { flags: attributes.flags | EXCLUDE_KERNEL, ..attributes };
        let Ok(event) = open(&attributes, 0, -1) else { return };
        enable(std::os::fd::AsFd::as_fd(&event)).unwrap();
        let memory = vec![1u8; 1 << 20];
        let count = Count::read(std::os::fd::AsFd::as_fd(&event)).unwrap();
        assert!(memory.iter().all(|b| *b == 1) && count.value > 0, "{count:?}");
        assert!(!can_count(1, 12345));
    }
}
