// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What this kernel does with probes in programs.

use std::sync::OnceLock;

/// Whether the kernel puts a call in the place of a no-op of five bytes that is probed. The call
/// overwrites what the function keeps below its stack pointer. Since Linux 6.18, on x86-64.
///
/// Of a kernel that cannot be asked, it is taken as true.
pub fn optimises() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(ask)
}

/// The system call by which such a place enters the kernel. Elsewhere it fails: with ENXIO, or if
/// the kernel has none, with ENOSYS.
#[cfg(target_arch = "x86_64")]
fn ask() -> bool {
    const SYS_UPROBE: libc::c_long = 336;
    // SAFETY: it has no arguments, and changes nothing.
    let code = unsafe { libc::syscall(SYS_UPROBE) };
    code != -1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> bool {
    false
}
