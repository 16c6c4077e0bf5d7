// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! CPU affinity and priority of the calling thread.

use crate::check;
use std::io;
use std::time::Duration;

/// Binds the calling thread to one CPU until dropped; then its old affinity is restored.
pub struct Affinity(libc::cpu_set_t);

impl Affinity {
    pub fn to(cpu: u32) -> io::Result<Affinity> {
        let before = affinity()?;
        pin_to_cpu(cpu)?;
        Ok(Affinity(before))
    }
}

/// The lowest CPU on which the calling thread may run.
pub fn lowest_cpu() -> io::Result<u32> {
    let set = affinity()?;
    // SAFETY: within the set.
    let lowest = (0..8 * size_of_val(&set)).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    lowest.map(|cpu| cpu as u32).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn affinity() -> io::Result<libc::cpu_set_t> {
    // SAFETY: zeros are a valid set, and the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of_val(&set), &mut set))?;
        Ok(set)
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // SAFETY: the set is valid. If the call fails, the affinity stays.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

/// Whether the calling thread may run on this CPU and on no other one.
pub fn is_bound_to(cpu: u32) -> bool {
    let is_in = |set: libc::cpu_set_t| {
        // SAFETY: both stay within the set.
        (cpu as usize) < 8 * size_of_val(&set)
            && unsafe { libc::CPU_ISSET(cpu as usize, &set) && libc::CPU_COUNT(&set) == 1 }
    };
    affinity().is_ok_and(is_in)
}

/// Binds the calling thread to one CPU.
pub fn pin_to_cpu(cpu: u32) -> io::Result<()> {
    // SAFETY: set is valid, and CPU_SET stays within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        libc::CPU_SET(cpu as usize, &mut set);
        check(libc::sched_setaffinity(0, size_of_val(&set), &set)).map(drop)
    }
}

/// Gives the calling thread the lowest SCHED_FIFO priority: above all ordinary threads, below the
/// kernel's threads.
pub fn become_fifo() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: param is valid.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }).map(drop)
}

/// Sets the nice value of the calling thread to -15: it gets its share of a busy CPU, and other
/// threads still get theirs.
pub fn become_important() -> io::Result<()> {
    const NICE: libc::c_int = -15;
    // SAFETY: no pointers; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }).map(drop)
}

/// Returns after everything that was running with preemption off when it was called has finished:
/// this system call waits until all CPUs have passed through the scheduler. For BPF programs see
/// `bpf::grace`.
pub fn wait_for_all_cpus() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result != 0 {
        // Not supported on nohz_full kernels. A program takes microseconds.
        std::thread::sleep(Duration::from_millis(20));
    }
}
