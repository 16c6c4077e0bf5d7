// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens trace events, as perf does, so that programs can be attached to them.

use crate::tracefs::TraceFs;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// `struct perf_event_attr` up to `branch_sample_type`, its first version (include/uapi/linux/
/// perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The trace event `GROUP:NAME`, on CPU 0; programs that are attached to it run on all CPUs.
pub fn trace_event(full_name: &str) -> io::Result<OwnedFd> {
    let tracefs = TraceFs::find()?;
    let path = tracefs.root().join("events").join(full_name.replacen(':', "/", 1)).join("id");
    let id = fs::read_to_string(path)?;
    let config = id.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    open(&Attributes { kind: PERF_TYPE_TRACEPOINT, config, ..Attributes::default() })
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
    let config = u64::from(at_return) << bit;
    open(&Attributes { kind, config, config1: name.as_ptr() as u64, ..Attributes::default() })
}

/// On CPU 0, of any thread.
fn open(attributes: &Attributes) -> io::Result<OwnedFd> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..*attributes };
    let (any, cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (-1, 0, -1);
    // SAFETY: the attributes are as long as they say.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0);
    // SAFETY: the descriptor is new and ours.
    fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).ok_or_else(io::Error::last_os_error)
}
