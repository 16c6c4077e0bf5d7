// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! System calls that the standard library does not have, each behind a safe function.

pub mod answers;
pub mod asleep;
pub mod bpffs;
pub mod cgroup_memory;
pub mod cgroups;
pub mod children;
pub mod clocks;
pub mod code_events;
pub mod confine;
mod cpu;
mod error;
pub mod files;
pub mod futex;
pub mod inotify;
pub mod machine;
pub mod mapped;
mod mapping;
pub mod maps;
pub mod memory;
pub mod missed;
pub mod modules;
pub mod mounts;
pub mod outputs;
pub mod patient;
pub mod perf_events;
pub mod process_memory;
pub mod processes;
pub mod programs;
pub mod recorders;
pub mod robust;
pub mod roots;
mod signals;
mod sockets;
pub mod terminal;
pub mod threads;
pub mod tracefs;
pub mod tsc;
pub mod uprobes;
pub mod users;

pub use clocks::{clock_pair, monotonic_ns, thread_cpu_ns};
pub use cpu::{
    Affinity, become_fifo, become_important, is_bound_to, lowest_cpu, pin_to_cpu, wait_for_all_cpus,
};
pub use error::Error;
pub use mapping::Mapping;
pub use signals::{
    SecondEnds, Signal, Signals, Uninterrupted, asked_to_end, become_ordinary, end_by_signals,
    ignored_at_start, survive_file_limits, times_asked_to_end,
};
pub use sockets::{connect_abstract, peer_has_our_files, peer_uid};

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until one of `fds` can be read, or the timeout. The result has one element for each of
/// them.
pub fn poll_readable(fds: &[BorrowedFd], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let millis = timeout.as_millis().min(i32::MAX as u128) as libc::c_int;
    // SAFETY: list is valid and as long as is said.
    match check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(list.iter().map(|p| p.revents != 0).collect()),
    }
}

/// Waits until `fd` can be written to, or the timeout.
pub fn poll_writable(fd: BorrowedFd, timeout: Duration) -> io::Result<()> {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let millis = timeout.as_millis().min(i32::MAX as u128) as libc::c_int;
    // SAFETY: it is one valid structure.
    match check(unsafe { libc::poll(&mut one, 1, millis) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// What standard output is, as another descriptor.
pub fn stdout_file() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// What standard output was: from here on it is standard error.
pub fn take_stdout() -> io::Result<File> {
    let taken = stdout_file()?;
    // SAFETY: both are descriptors of this process, which has them for good.
    check(unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) })?;
    Ok(taken)
}

/// True if the process is in our own process group, to which a terminal sends its signals.
pub fn in_our_group(pid: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getpgid(pid as libc::pid_t) == libc::getpgrp() }
}

/// A descriptor that becomes readable when the process ends. Fails for a thread that is not the
/// first of its process.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    pidfd(pid, 0)
}

/// A descriptor that becomes readable when one thread of a process has ended. Kernels before 6.9
/// have none (EINVAL).
pub fn pidfd_open_thread(tid: u32) -> io::Result<OwnedFd> {
    // PIDFD_THREAD
    pidfd(tid, libc::O_EXCL)
}

fn pidfd(id: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, id, flags) as libc::c_int)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub fn kill(pid: u32, signal: libc::c_int) {
    // SAFETY: no pointers. If the process has ended already, nothing happens.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Makes this process a member of a process group of its session.
pub fn join_group(group: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::setpgid(0, group as libc::pid_t) }).map(drop)
}

/// Makes a copy of a descriptor the standard error of this process.
pub fn make_stderr(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers. The standard error has no owner.
    check(unsafe { libc::dup2(fd, libc::STDERR_FILENO) }).map(drop)
}

/// Programs that this process starts do not get this descriptor.
pub fn do_not_pass_on(fd: RawFd) {
    // SAFETY: no pointers. Without such a descriptor, nothing happens.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Sends a signal to a process group.
pub fn kill_group(group: u32, signal: libc::c_int) {
    // SAFETY: no pointers. If there is no such group, nothing happens.
    unsafe { libc::kill(-(group as libc::pid_t), signal) };
}

/// (release, version, machine) of the running kernel, and the host name.
pub fn uname() -> (String, String, String, String) {
    let text = |bytes: &[libc::c_char]| {
        let bytes: Vec<u8> = bytes.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // SAFETY: names is valid, and zeros are a valid value of it.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        names
    };
    (text(&names.release), text(&names.version), text(&names.machine), text(&names.nodename))
}
