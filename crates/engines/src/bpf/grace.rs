// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Waits until BPF programs that are running have finished.
//!
//! Programs are RCU readers, also on kernels on which they can be preempted. There a system call
//! that waits for all CPUs is not enough; on a machine with one CPU it waits for nothing. An update
//! of a map of maps does wait for all readers: when it returns, no program uses the map that was
//! replaced.

use klogger_os as os;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::os::fd::{AsFd, AsRawFd};

/// Returns after every program that was running when it was called has finished.
pub fn wait() {
    if update().is_err() {
        // Without the right to make maps no programs of ours run.
        os::wait_for_all_cpus();
    }
}

fn update() -> libbpf_rs::Result<()> {
    let options = |inner: Option<&MapHandle>| libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        inner_map_fd: inner.map_or(0, |map| map.as_fd().as_raw_fd() as u32),
        ..Default::default()
    };
    let inner = MapHandle::create(MapType::Array, Some("klogger_inner"), 4, 8, 1, &options(None))?;
    let outer = MapHandle::create(
        MapType::ArrayOfMaps,
        Some("klogger_outer"),
        4,
        4,
        1,
        &options(Some(&inner)),
    )?;
    outer.update(&0u32.to_ne_bytes(), &inner.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
}
