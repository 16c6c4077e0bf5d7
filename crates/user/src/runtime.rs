// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The C runtime as declared in Rust. layout.rs.in compares the structures with those of C.

use crate::layout::RING_DATA;
#[cfg(target_arch = "x86_64")]
use crate::layout::THREAD_TID;
#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::c_int;
use std::ops::Deref;
use std::ptr::NonNull;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The beginning of struct klogger_ring.
#[repr(C)]
pub(crate) struct RingHead {
    pub head: AtomicU64,
    pub limit: AtomicU64,
    pub missed: AtomicU64,
    pub missed_since: AtomicU64,
    pub hard: AtomicU64,
    pub nest: AtomicU64,
}

/// A main ring, which stays mapped until the module is unloaded.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Ring(NonNull<RingHead>);

impl Deref for Ring {
    type Target = RingHead;

    #[inline(always)]
    fn deref(&self) -> &RingHead {
        // SAFETY: mapped; what changes is atomic.
        unsafe { self.0.as_ref() }
    }
}

impl Ring {
    /// The address of the record at this position. A record that begins at the end of the ring
    /// extends into its slack.
    #[inline(always)]
    pub fn data(self, position: u64) -> *mut u8 {
        // SAFETY: the ring's data have mask + 1 bytes.
        unsafe {
            self.0
                .as_ptr()
                .cast::<u8>()
                .add(RING_DATA + (position & module().mask.load(Relaxed)) as usize)
        }
    }
}

/// struct klogger_hit
#[repr(C)]
pub(crate) struct Hit {
    pub ring: Option<Ring>,
    pub time: u64,
    pub nest: u64,
    pub base: u32,
    pub slow: u32,
    pub again: u32,
}

impl Default for Hit {
    fn default() -> Hit {
        Hit { ring: None, time: 0, nest: 0, base: 0, slow: 1, again: 0 }
    }
}

/// The beginning of struct klogger_module.
#[repr(C)]
pub(crate) struct Module {
    pub mask: AtomicU64,
    pub tsc: u32,
    pub pid: AtomicU32,
}

unsafe extern "C" {
    static klogger_module: Module;
    fn klogger_reserve_slow(hit: *mut Hit, id: u32, size: u32) -> *mut u8;
    #[cfg(not(target_arch = "x86_64"))]
    fn klogger_rust_tid() -> u32;
    fn prctl(option: c_int, ...) -> c_int;
}

#[inline(always)]
fn module() -> &'static Module {
    // SAFETY: defined in C; what changes is atomic.
    unsafe { &klogger_module }
}

/// Reserves space for a record of `size` bytes in the ring of `hit`; null: the event is lost and
/// was counted.
pub(crate) fn reserve_slow(hit: &mut Hit, id: u32, size: u32) -> *mut u8 {
    // SAFETY: it has no conditions; an `id` is that of a unit which is linked.
    unsafe { klogger_reserve_slow(hit, id, size) }
}

/// Whether the flag is 1. This is the cost of an event that is off: a comparison in memory, and a
/// branch that is not taken. An atomic load would take one more instruction.
///
/// # Safety
///
/// The flag can be read.
#[inline(always)]
pub(crate) unsafe fn is_set(flag: *mut u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; the flag is a byte, and is only written as one.
    unsafe {
        asm!(
            "cmp byte ptr [{}], 0",
            "jne {}",
            in(reg) flag,
            label { return true },
            options(nostack, readonly)
        );
        false
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: promised by the caller.
    unsafe {
        AtomicU8::from_ptr(flag).load(Relaxed) != 0
    }
}

/// This thread's ring, if it has one and the clock is the TSC.
#[inline(always)]
pub(crate) fn fast_ring() -> Option<Ring> {
    #[cfg(target_arch = "x86_64")]
    return x86::thread_ring();
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}

/// The id of the running thread; known if the thread has a ring.
#[inline(always)]
pub fn tid() -> u32 {
    #[cfg(target_arch = "x86_64")]
    return x86::tid();
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: it has no conditions.
    return unsafe { klogger_rust_tid() };
}

#[inline(always)]
pub fn tgid() -> u32 {
    module().pid.load(Relaxed)
}

/// For `context ppid`. A system call for each event, because the parent changes when it ends.
#[inline]
pub fn ppid() -> u32 {
    std::os::unix::process::parent_id()
}

/// For `context irq`: programs have no interrupts, and a signal handler is a thread's code as well.
#[inline(always)]
pub fn irq() -> u8 {
    0
}

/// For `context pidns_tid`: what gettid() returns is the number in the thread's own pid namespace.
#[inline(always)]
pub fn pidns_tid() -> u32 {
    tid()
}

/// For `context comm`. A system call for each event: another thread may change the name.
#[inline]
pub fn comm() -> [u8; 16] {
    const PR_GET_NAME: c_int = 16;
    let mut name = [0; 16];
    // SAFETY: it fills 16 bytes.
    unsafe { prctl(PR_GET_NAME, name.as_mut_ptr()) };
    name
}

#[inline(always)]
pub(crate) fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return 0;
}

/// Rust has no syntax for a thread-local variable of C; the linker resolves it.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Ring;
    use super::{THREAD_TID, asm};
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::Relaxed;

    #[inline(always)]
    pub fn thread_ring() -> Option<Ring> {
        let cell: *mut *mut super::RingHead;
        // SAFETY: reads klogger_thread.ring, a pointer to this thread's cell, or to one that is
        // always empty. The offset of the variable (TLS model initial-exec) is in the global offset
        // table, or is inserted by the linker.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + klogger_thread@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) cell,
                options(nostack, preserves_flags, readonly)
            );
        }
        // SAFETY: cells are never unmapped, and are changed only by their thread.
        NonNull::new(unsafe { AtomicPtr::from_ptr(cell) }.load(Relaxed)).map(Ring)
    }

    #[inline(always)]
    pub fn tid() -> u32 {
        let tid: u32;
        // SAFETY: reads klogger_thread.tid.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + klogger_thread@GOTTPOFF]",
                "mov {1:e}, dword ptr fs:[{0} + {2}]",
                out(reg) _,
                out(reg) tid,
                const THREAD_TID,
                options(nostack, preserves_flags, readonly)
            );
        }
        tid
    }
}
