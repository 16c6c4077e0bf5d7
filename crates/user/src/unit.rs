// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A schema's part of the module, and the fast path of its events.

use crate::layout::{EVENTS_MAX, RECORD_MAX};
use crate::record::{Record, TailLength};
use crate::runtime::{self, Hit, Ring};
pub use crate::runtime::{comm, irq, pidns_tid, ppid, tgid, tid};
use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, compiler_fence};

/// One schema of `EVENTS` events: struct klogger_unit, into which the C runtime writes.
#[repr(C)]
pub struct Unit<const EVENTS: usize> {
    /// Which events are on, by index. Points to zeros until there is a file.
    pub(crate) on: AtomicPtr<u8>,
    pub(crate) base: AtomicU32,
    pub(crate) events: u32,
    pub(crate) name: *const c_char,
    pub(crate) text: *const u8,
    pub(crate) length: u32,
    pub(crate) linked: AtomicU32,
    /// Names of the events, each with its NUL.
    pub(crate) names: *const u8,
    pub(crate) next: AtomicPtr<u8>,
    /// KLOGGER_RUNTIME of the C that this crate was built with.
    pub(crate) runtime: u64,
}

const RUNTIME: u64 = match u64::from_str_radix(env!("KLOGGER_RUNTIME"), 16) {
    Ok(number) => number,
    Err(_) => panic!("the build script sets a number"),
};

// SAFETY: what changes is atomic; the pointers are to static texts.
unsafe impl<const EVENTS: usize> Sync for Unit<EVENTS> {}

static ALL_OFF: [u8; EVENTS_MAX] = [0; EVENTS_MAX];

impl<const EVENTS: usize> Unit<EVENTS> {
    pub const fn new(name: &'static CStr, names: &'static str, text: &'static str) -> Unit<EVENTS> {
        assert!(
            EVENTS <= EVENTS_MAX
                && text.len() <= u32::MAX as usize
                && count(names.as_bytes()) == EVENTS
        );
        Unit {
            on: AtomicPtr::new((&raw const ALL_OFF).cast_mut().cast()),
            base: AtomicU32::new(0),
            events: EVENTS as u32,
            name: name.as_ptr(),
            text: text.as_ptr(),
            length: text.len() as u32,
            linked: AtomicU32::new(0),
            names: names.as_ptr(),
            next: AtomicPtr::new(ptr::null_mut()),
            runtime: RUNTIME,
        }
    }

    /// Once, before the module's file is made.
    pub fn link(&'static self) {
        // SAFETY: a struct klogger_unit that is never freed, whose changing fields are atomic.
        unsafe { klogger_link(ptr::from_ref(self).cast()) }
    }

    /// A handle for logging the event, if it is on.
    #[inline(always)]
    pub fn on<const INDEX: usize>(&'static self) -> Option<On> {
        const { assert!(INDEX < EVENTS) }
        // SAFETY: `on` points to ALL_OFF or to the unit's own part of klogger_control.on: EVENTS
        // bytes at least.
        if !unsafe { runtime::is_set(self.on.load(Relaxed).add(INDEX)) } {
            return None;
        }
        Some(On { id: self.base.load(Relaxed) + INDEX as u32 })
    }
}

const fn count(names: &[u8]) -> usize {
    let (mut at, mut nuls) = (0, 0);
    while at < names.len() {
        nuls += (names[at] == 0) as usize;
        at += 1;
    }
    nuls
}

unsafe extern "C" {
    static klogger_own: Unit<15>;
    fn klogger_link(unit: *const Unit<0>);
}

/// The unit of klogger's own events.
#[inline(always)]
pub(crate) fn own() -> &'static Unit<15> {
    // SAFETY: defined in C, where its `on` points to more than 15 flags.
    unsafe { &klogger_own }
}

/// An event that is on.
#[derive(Clone, Copy)]
pub struct On {
    id: u32,
}

impl On {
    /// Logs it on the fast path. If that is not possible (no ring yet, a signal handler in the
    /// middle of an event, another clock, low-water mark reached), it has no effect and returns
    /// false.
    #[inline(always)]
    #[must_use]
    pub fn log<const FIXED: usize>(
        self,
        tail: impl TailLength,
        fill: impl FnOnce(&mut Record<FIXED>),
    ) -> bool {
        let Some(ring) = runtime::fast_ring() else { return false };
        if ring.nest.load(Relaxed) != 0 {
            return false;
        }
        ring.nest.store(1, Relaxed);
        compiler_fence(SeqCst);
        let record = reserve(ring, record_size::<FIXED, _>(tail));
        if let Some(record) = record {
            // SAFETY: the space that has been reserved.
            unsafe { complete(record, runtime::tsc(), self.id, tail, fill) };
        }
        compiler_fence(SeqCst);
        ring.nest.store(0, Relaxed);
        record.is_some()
    }

    /// Logs it on the slow path, or counts it as lost.
    pub fn log_slow<const FIXED: usize>(
        self,
        tail: impl TailLength,
        fill: impl FnOnce(&mut Record<FIXED>),
    ) {
        let mut hit = Hit::default();
        let record = runtime::reserve_slow(&mut hit, self.id, record_size::<FIXED, _>(tail));
        if !record.is_null() {
            // SAFETY: the space that has been reserved.
            unsafe { complete(record, hit.time, self.id, tail, fill) };
        }
        compiler_fence(SeqCst);
        if let Some(ring) = hit.ring {
            ring.nest.store(hit.nest, Relaxed);
        }
    }
}

/// Bytes of the whole record. The slack of a ring has room for RECORD_MAX.
#[inline(always)]
fn record_size<const FIXED: usize, T: TailLength>(tail: T) -> u32 {
    const { assert!(FIXED >= 8 && FIXED + T::MAX <= RECORD_MAX) }
    (FIXED + tail.bytes()).next_multiple_of(8) as u32
}

/// Space at the writers' position, or `None` if the slow path is needed. The load of `limit` pairs
/// with the drain's release store after zeroing. Between the load and the store of `head` only a
/// signal handler can interrupt, and it uses the nested ring.
#[inline(always)]
fn reserve(ring: Ring, size: u32) -> Option<*mut u8> {
    let head = ring.head.load(Relaxed);
    let end = head.wrapping_add(u64::from(size));
    if ring.missed.load(Relaxed) != 0 || end > ring.limit.load(Acquire) {
        rarely();
        return None;
    }
    ring.head.store(end, Relaxed);
    Some(ring.data(head))
}

/// Stores tail and fields, and last the header word. Its release store pairs with the acquire load
/// in the recorder's drain: a drain that sees the header word sees the fields.
///
/// # Safety
///
/// `record_size()` bytes at `record`, a multiple of 8, are reserved for this caller.
#[inline(always)]
unsafe fn complete<const FIXED: usize>(
    record: *mut u8,
    time: u64,
    id: u32,
    tail: impl TailLength,
    fill: impl FnOnce(&mut Record<FIXED>),
) {
    // SAFETY: promised by the caller; the tail is not part of a ring, because no references to a
    // ring exist.
    unsafe {
        fill(&mut Record::new(record));
        tail.store(record.add(FIXED));
        AtomicU64::from_ptr(record.cast()).store(time << 16 | u64::from(id), Release);
    }
}

/// Tells the compiler which branches are unlikely.
#[cold]
#[inline(always)]
fn rarely() {}
