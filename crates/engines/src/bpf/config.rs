// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The configuration of an object's programs.

use super::choice::Choice;
use crate::request::FIRST_ID;
use klogger_ring::GRID;
use klogger_ring::layout::bpf as layout;
use klogger_toolchain::host_kernel::Preemption;

/// What the recorder fixes before loading; `struct klogger_config` of the BPF runtime.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// CPUs that get a ring: numbers below this.
    pub rings: usize,
    /// Bytes of a ring, a power of two.
    pub ring_size: usize,
    /// Bytes of a larger ring, which replaces one that is too small, a power of two; 0: rings do
    /// not grow.
    pub larger: usize,
    /// Bytes that all larger rings together may use.
    pub larger_memory: u64,
    /// Only threads whose bit is set are logged.
    pub scoped: bool,
    /// Of the threads that are followed, only some are recorded.
    pub choice: Option<Choice>,
    pub overwrite: bool,
    /// Percent of a ring: the low-water mark. When less is free, the writer wakes its drain thread.
    pub lowwater: u32,
    /// This kernel's programs can be preempted.
    pub preempt: bool,
    /// What the kernel allows programs of functions and of user space to do.
    pub preemption: Preemption,
    /// From the run queue of a CPU to the variable with its preemption count; 0: unknown.
    pub preempt_count: u64,
    /// Where the structures of pages are: see `pages.rs`.
    pub vmemmap: u64,
    /// The kernel has links of many places in programs: since Linux 6.6.
    pub uprobe_multi: bool,
    /// The kernel has the system calls of 32-bit programs.
    pub calls_32: bool,
    /// A bit for each CPU on which events are logged, if not on all.
    pub cpus: [u64; layout::CPUS_MAX / 64],
}

/// Which programs of a schema to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// The id of the schema's first event, and the number of its first probe.
    pub base: u16,
    pub probes: u32,
    /// 0: the first programs; above: copies.
    pub copy: u8,
}

impl Part {
    fn is_builtin(self) -> bool {
        self.base == FIRST_ID
    }
}

impl Config {
    /// The bytes of the structure.
    pub fn bytes(&self, part: Part) -> Vec<u8> {
        let words = [
            (layout::CONFIG_RINGS, self.rings as u32),
            (layout::CONFIG_MASK, self.ring_size as u32 - 1),
            (layout::CONFIG_BASE, u32::from(part.base)),
            (layout::CONFIG_GRID_SHIFT, (self.ring_size / GRID).trailing_zeros()),
            (layout::CONFIG_LARGER_MASK, (self.larger as u32).saturating_sub(1)),
            (layout::CONFIG_PROBES, part.probes),
        ];
        let flags = [
            (layout::CONFIG_SCOPED, u8::from(self.is_scoped(part))),
            (layout::CONFIG_OVERWRITE, u8::from(self.overwrite)),
            (layout::CONFIG_PREEMPT, u8::from(self.preempt)),
            (layout::CONFIG_COPY, part.copy),
            (layout::CONFIG_BEGINNING, self.beginning()),
            (layout::CONFIG_PREEMPTION, self.preemption()),
            (layout::CONFIG_CALLS_32, self.calls_32.into()),
        ];
        let mut bytes = vec![0; layout::CONFIG];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in (layout::CONFIG_CPUS..).step_by(8).zip(self.cpus) {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[layout::CONFIG_PREEMPT_COUNT..][..8]
            .copy_from_slice(&self.preempt_count.to_ne_bytes());
        bytes[layout::CONFIG_VMEMMAP..][..8].copy_from_slice(&self.vmemmap.to_ne_bytes());
        for (at, flag) in flags {
            bytes[at] = flag;
        }
        if let Some(choice) = self.choice {
            choice.put(part.is_builtin(), &mut bytes);
        }
        bytes
    }

    /// The built-in events name threads: also those that are not chosen.
    fn is_scoped(&self, part: Part) -> bool {
        self.scoped && !(part.is_builtin() && self.choice.is_some_and(|choice| choice.all))
    }

    /// An `enum klogger_preemption`.
    fn preemption(&self) -> u8 {
        match self.preemption {
            Preemption::None => 0,
            Preemption::CanBeHeldOff => layout::PREEMPTION_HELD_OFF,
            Preemption::CannotBeHeldOff => layout::PREEMPTION_SHARED,
        }
    }

    /// An `enum klogger_beginning`.
    fn beginning(&self) -> u8 {
        let preempted = if self.preempt { layout::BEGINNING_PREEMPTED } else { 0 };
        preempted | if self.choice.is_some() { layout::BEGINNING_CHOOSES } else { 0 }
    }
}
