// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The running kernel: its types, its tracepoints, and whether this process may use them.

mod formats;
mod functions;
mod image;
mod modules;
mod preemption;

pub use formats::TraceEvents;
use functions::RunningFunctions;
pub use image::types_of;
use modules::LoadedModules;
pub use modules::load_needed;
pub use preemption::{Preemption, preemption};

use klogger_codegen::KernelTypes;
use klogger_codegen::kernel_types::{Counts, Formats};
use klogger_os::{Error, files, missed, perf_events, processes};
use klogger_programs::Programs;
use klogger_schema::counted::Counted;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::thread;

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The running kernel's types, once they have been read: that takes a tenth of a second, and to
/// free them half as long.
static TYPES: Mutex<Option<KernelTypes>> = Mutex::new(None);

/// The types of the running kernel, and its trace events. They are kept for the next one who asks.
pub fn types() -> Result<KernelTypes, Error> {
    let mut kept = TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let types = match &*kept {
        Some(types) => types.alone(),
        None => {
            let bytes = fs::read(BTF).map_err(cannot_read_types)?;
            kept.insert(KernelTypes::new(&bytes).map_err(Error::new)?).alone()
        }
    };
    drop(kept);
    let functions = RunningFunctions::new(&types);
    let types = types.with_formats(TraceEvents::default()).with_programs(Programs::default());
    Ok(types.with_functions(functions).with_counts(Machine).with_modules(LoadedModules))
}

/// Frees the types of the running kernel, without waiting for that: nobody is about to ask again.
pub fn forget_types() {
    let kept = TYPES.lock().unwrap_or_else(PoisonError::into_inner).take();
    // If there can be no more threads, this one frees them.
    let _ = thread::Builder::new().name("klogger/types".into()).spawn(move || drop(kept));
}

/// The machine that klogger runs on.
struct Machine;

impl Counts for Machine {
    fn counts(&self, counted: Counted) -> bool {
        perf_events::can_count(counted.kind, counted.config)
    }
}

/// Bytes of the type information of the running kernel; 0: it has none.
pub fn types_size() -> u64 {
    missed::noting_unless_gone(BTF, fs::metadata(BTF)).map_or(0, |about| about.len())
}

/// Whether the running kernel has type information.
pub fn check_has_types() -> Result<(), Error> {
    fs::metadata(BTF).map(drop).map_err(cannot_read_types)
}

fn cannot_read_types(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => {
            Error::new(format!("this kernel has no type information: {BTF} is missing"))
                .help(without_types(check_takes_modules().is_ok()))
        }
        _ => Error::new(format!("cannot read {BTF}: {error}")),
    }
}

/// What to do on a kernel without type information.
fn without_types(takes_modules: bool) -> &'static str {
    match takes_modules {
        true => {
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as most distributions' are, or \
             record with modules: --engine kernel"
        }
        false => "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as most distributions' are",
    }
}

/// The group of each tracepoint, by its name; empty if tracefs cannot be read.
pub fn groups() -> BTreeMap<String, String> {
    let names = TraceEvents::default().names().unwrap_or_default();
    let split = |full: String| full.split_once(':').map(|(g, n)| (n.to_string(), g.to_string()));
    names.into_iter().filter_map(split).collect()
}

/// Whether a thread can be preempted while it runs the program of a tracepoint. Since Linux 7 such
/// programs run with preemption on, under a kind of SRCU that older kernels do not use for
/// tracepoints. Kernels without any preemption are recognized by their version string; the mode may
/// be changed at run time. A wrong yes costs some nanoseconds per hit.
pub fn preempts_programs(types: &KernelTypes, release: &str, version: &str) -> bool {
    let major = release.split('.').next().and_then(|n| n.parse::<u32>().ok());
    let since_7 = major.is_some_and(|n| n >= 7) || types.has_fast_srcu();
    since_7 && version.contains("PREEMPT") && types.has_function("bpf_preempt_disable")
}

/// Whether one link can attach a program to many places of programs: since Linux 6.6.
pub fn has_uprobe_multi(types: &KernelTypes) -> bool {
    types.has_function("bpf_uprobe_multi_link_attach")
}

const CAPABILITIES: &[(u32, &str)] = &[(38, "CAP_PERFMON"), (39, "CAP_BPF")];
const MODULE_CAPABILITIES: &[(u32, &str)] = &[(16, "CAP_SYS_MODULE")];
const CAP_SYS_ADMIN: u32 = 21;
/// With one of these, memory and open files of all processes can be read anyway.
const MAY_SEE_OTHERS: [u32; 2] = [19 /* CAP_SYS_PTRACE */, CAP_SYS_ADMIN];

/// Returns an error that names the missing capabilities if this process may not load tracing
/// programs.
pub fn check_privilege() -> Result<(), Error> {
    check_capabilities(CAPABILITIES, Some(CAP_SYS_ADMIN))
}

/// The same for modules.
pub fn check_module_privilege() -> Result<(), Error> {
    check_capabilities(MODULE_CAPABILITIES, None)
}

/// Whether this kernel can load modules at all.
pub fn check_takes_modules() -> Result<(), Error> {
    // Without /proc it is not known, and loading a module will say it.
    if fs::exists("/proc/modules").unwrap_or(true) || !fs::exists("/proc/self").unwrap_or(false) {
        return Ok(());
    }
    let error = Error::new("this kernel cannot load modules");
    Err(match fs::exists(BTF) {
        Ok(true) => error.help("use --engine bpf"),
        Ok(false) | Err(_) => error.help("record programs only: --engine user"),
    })
}

/// What to do where klogger needs root.
pub const AS_ROOT: &str = "run klogger as root: the same command after sudo";

/// What is root in a user namespace has all capabilities, but only there.
fn check_user_namespace() -> Result<(), Error> {
    /// In the first one each user is the one with the same number.
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    // Kernels without such namespaces do not have it.
    let path = "/proc/self/uid_map";
    let map = missed::noting_unless_gone(path, fs::read_to_string(path)).unwrap_or_default();
    if map.is_empty() || map.split_whitespace().eq(ALL) {
        return Ok(());
    }
    Err(Error::new(
        "klogger runs in a user namespace (a rootless container), whose root may not record the \
         kernel",
    )
    .help("run it as root on the host, or record programs only: --engine user"))
}

/// Who is not root, and may load tracing programs, records own processes. `pids`: those that are to
/// be recorded; `None` for all.
pub fn check_whose(pids: Option<&[u32]>) -> Result<(), Error> {
    let own = files::effective_uid();
    if own == 0 {
        return Ok(());
    }
    let capabilities = effective_capabilities()?;
    if MAY_SEE_OTHERS.iter().any(|bit| capabilities >> bit & 1 == 1) {
        return Ok(());
    }
    let Some(pids) = pids else {
        return Err(Error::new(
            "recording all processes needs CAP_SYS_PTRACE, which this process does not have",
        )
        .help("record a command, or processes of your own with -p; or use sudo"));
    };
    match pids.iter().find(|pid| !is_of(**pid, own)) {
        None => Ok(()),
        Some(pid) => Err(Error::new(format!(
            "process {pid} is another user's: recording it needs CAP_SYS_PTRACE, which this \
             process does not have"
        ))
        .help(AS_ROOT)),
    }
}

/// Whether a process has all of its user ids from this user: not while it runs a set-uid program.
/// One that has ended is told later, as for root; it may be hidden in /proc.
fn is_of(pid: u32, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("Uid:")) {
        Some(ids) => ids.split_whitespace().all(|id| id.parse() == Ok(user)),
        None => !processes::exists(pid),
    }
}

/// `any`: a capability that includes all others.
fn check_capabilities(needed: &[(u32, &str)], any: Option<u32>) -> Result<(), Error> {
    check_user_namespace()?;
    let effective = effective_capabilities()?;
    let has = |bit: u32| effective >> bit & 1 == 1;
    let missing: Vec<_> =
        needed.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect();
    if missing.is_empty() || any.is_some_and(has) {
        return Ok(());
    }
    Err(Error::new(format!(
        "recording needs {}, which this process does not have",
        missing.join(" and ")
    ))
    .help(AS_ROOT))
}

/// A bit for each.
fn effective_capabilities() -> Result<u64, Error> {
    let status = fs::read_to_string("/proc/self/status").map_err(|e| {
        Error::new(format!(
            "cannot read which capabilities this process has: /proc/self/status: {e}"
        ))
        .help("mount /proc: mount -t proc proc /proc")
    })?;
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.ok_or_else(|| {
        Error::new("/proc/self/status does not say which capabilities this process has")
            .help("mount /proc: mount -t proc proc /proc")
    })
}

/// Thread ids in the kernel's events are those of the initial pid namespace. They can be compared
/// with ours only if we are in it.
pub fn check_pid_namespace() -> Result<(), Error> {
    /// Inode number of the first pid namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
    const FIRST: &str = "pid:[4026531836]";
    let path = "/proc/self/ns/pid";
    let ours = missed::noting_unless_gone(path, fs::read_link(path)).unwrap_or_default();
    if ours.as_os_str() == FIRST || ours.as_os_str().is_empty() {
        return Ok(());
    }
    Err(Error::new(
        "klogger runs in a pid namespace (a container), and kernel thread ids do not match those \
         in it",
    )
    .help("record the whole system with -a, or run klogger on the host"))
}
