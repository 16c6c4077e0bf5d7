// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the running kernel offers: its types, its tracepoints, and whether we may use them.

use crate::error::Error;
use klogger_codegen::KernelTypes;
use std::fs;
use std::io::ErrorKind;

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The types of the running kernel.
pub fn types() -> Result<KernelTypes, Error> {
    let bytes = fs::read(BTF).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::new(format!("this kernel has no type information: {BTF} is missing"))
            .help("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as Debian's and most distributions' are"),
        _ => Error::new(format!("cannot read {BTF}: {e}")),
    })?;
    KernelTypes::new(&bytes).map_err(Error::new)
}

const CAPABILITIES: &[(u32, &str)] = &[(38, "CAP_PERFMON"), (39, "CAP_BPF")];
const MODULE_CAPABILITIES: &[(u32, &str)] = &[(16, "CAP_SYS_MODULE")];
const CAP_SYS_ADMIN: u32 = 21;

/// An error that names the missing capabilities, if this process may not load tracing programs.
pub fn check_privilege() -> Result<(), Error> {
    check_capabilities(CAPABILITIES, Some(CAP_SYS_ADMIN))
}

/// The same for modules.
pub fn check_module_privilege() -> Result<(), Error> {
    check_capabilities(MODULE_CAPABILITIES, None)
}

/// Whether this kernel takes modules at all: some are built without that.
pub fn check_takes_modules() -> Result<(), Error> {
    match fs::exists("/proc/modules") {
        Ok(false) => Err(Error::new("this kernel cannot load modules").help("use --engine bpf")),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// `any`: one that stands for all of them.
fn check_capabilities(needed: &[(u32, &str)], any: Option<u32>) -> Result<(), Error> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:")).map(str::trim).unwrap_or("0");
    let effective = u64::from_str_radix(effective, 16).unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let missing: Vec<_> = needed.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect();
    if missing.is_empty() || any.is_some_and(has) {
        return Ok(());
    }
    Err(Error::new(format!("recording needs {}, which this process does not have", missing.join(" and ")))
        .help("run klogger as root: sudo klogger record ..."))
}

/// Thread ids in the kernel's events are those of the first pid namespace; ours must be the same to compare them.
pub fn check_pid_namespace() -> Result<(), Error> {
    /// Inode number of the first pid namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
    const FIRST: &str = "pid:[4026531836]";
    let ours = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if ours.as_os_str() == FIRST || ours.as_os_str().is_empty() {
        return Ok(());
    }
    Err(Error::new("klogger runs inside a pid namespace (a container), where the kernel's thread ids mean others")
        .help("record the whole system with -a, or run klogger on the host"))
}
