// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the kernel offers to recorders.

use super::finding::{Finding, State};
use klogger_codegen::KernelTypes;
use klogger_engines::bpf;
use klogger_os::perf_events::can_count;
use klogger_os::tracefs::TraceFs;
use klogger_os::{Error, machine, uname};
use klogger_schema::counted::Counted;
use klogger_toolchain::{bundled, host_kernel, kbuild};

/// The oldest kernel that the tests run on.
const OLDEST: (u32, u32) = (6, 1);
/// Its programs are loaded as a test. It has tracepoints, system calls and user stacks.
const TRIED: &str = "scheduler";

pub fn look() -> Vec<Finding> {
    let mut all = vec![release(), lockdown(), jit()];
    match host_kernel::types() {
        Err(e) => all.push(Finding::refused("types (BTF)", &e)),
        Ok(types) => {
            all.push(Finding::ok("types (BTF)", "in /sys/kernel/btf/vmlinux"));
            all.push(programs(&types));
            all.extend(functions(&types));
            all.push(user_probes(&types));
        }
    }
    all.extend([tracepoints(), counters(), names()]);
    let modules = modules();
    // Where none can be loaded, nobody needs to build one.
    let built = (modules.state == State::Ok).then(headers);
    all.push(modules);
    all.extend(built);
    all
}

fn release() -> Finding {
    const NAME: &str = "release";
    let (release, _, architecture, _) = uname();
    let found = format!("Linux {release}, {architecture}");
    let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST {
        true => Finding::ok(NAME, found),
        false => Finding::limited(NAME, found, "what klogger does here is not tested")
            .help(format!("Linux {}.{} or newer", OLDEST.0, OLDEST.1)),
    }
}

fn lockdown() -> Finding {
    const NAME: &str = "lockdown";
    let state = machine::line("/sys/kernel/security/lockdown");
    match state.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some(("confidentiality", _)) => Finding::refused(
            NAME,
            &Error::new("confidentiality: programs may not read the memory of the kernel")
                .help("boot without lockdown=confidentiality, or with lockdown=integrity"),
        ),
        Some(("integrity", _)) => Finding::limited(
            NAME,
            "integrity: modules must be signed",
            "the kernel engine: --engine kernel",
        )
        .help("sign the modules: see docs/kernel-engine.md"),
        _ => Finding::ok(NAME, "none"),
    }
}

fn jit() -> Finding {
    const NAME: &str = "BPF JIT";
    let line = |name: &str| machine::line(&format!("/proc/sys/net/core/{name}"));
    match (&*line("bpf_jit_enable"), &*line("bpf_jit_harden")) {
        ("0", _) => Finding::limited(NAME, "off: programs are interpreted", "each event is dear")
            .help("sysctl net.core.bpf_jit_enable=1"),
        (_, "2") => Finding::limited(NAME, "hardened for all users", "each event is dearer")
            .help("sysctl net.core.bpf_jit_harden=1 (for users without privileges only)"),
        _ => Finding::ok(NAME, "on"),
    }
}

/// The true test: the verifier takes the programs of a schema.
fn programs(types: &KernelTypes) -> Finding {
    const NAME: &str = "BPF programs";
    if host_kernel::check_privilege().is_err() {
        return Finding::ok(NAME, "not tried without the capabilities");
    }
    let tried = || {
        let missing = || Error::new(format!("there is no schema '{TRIED}'"));
        let unit = bundled::find(TRIED).ok_or_else(missing)?.load()?;
        bpf::try_load(&unit, types)
    };
    match tried().map(|refused| refused.into_iter().next()) {
        Ok(None) => Finding::ok(NAME, format!("those of schema '{TRIED}' load")),
        Ok(Some(refused)) => {
            let message = refused.diagnostic().message;
            let error = Error::new(format!("the kernel refuses one of '{TRIED}': {message}"));
            Finding::refused(NAME, &error.help("klogger check --load: what the verifier says"))
        }
        Err(e) => Finding::refused(NAME, &e),
    }
}

fn functions(types: &KernelTypes) -> Option<Finding> {
    const NAME: &str = "functions";
    let functions = types.running()?;
    Some(match (functions.fentry(), functions.kprobes()) {
        (Ok(()), _) => Finding::ok(NAME, "fentry"),
        (Err(why), Ok(())) => Finding::limited(
            NAME,
            format!("kprobes; {why}"),
            "a probe of a function costs more, and has no arguments at its return",
        ),
        (Err(why), Err(and)) => Finding::missing(
            NAME,
            format!("{why}; {and}"),
            "probes of kernel functions: 'probe function', 'probe return'",
        )
        .help("a kernel with CONFIG_KPROBES and CONFIG_FUNCTION_TRACER: klogger guest runs one"),
    })
}

fn user_probes(types: &KernelTypes) -> Finding {
    const NAME: &str = "user probes";
    match host_kernel::has_uprobe_multi(types) {
        true => Finding::ok(NAME, "many places by one link"),
        false => Finding::limited(
            NAME,
            "one link for each place",
            "attaching to many functions of programs takes long",
        )
        .help("Linux 6.6 or newer"),
    }
}

fn tracepoints() -> Finding {
    const NAME: &str = "tracepoints";
    match TraceFs::find() {
        Ok(tracefs) => {
            let private = tracefs.root().starts_with("/proc");
            let place = if private {
                "tracefs is not mounted; klogger mounts its own"
            } else {
                "tracefs is in /sys/kernel/tracing"
            };
            Finding::ok(NAME, place)
        }
        Err(e) => Finding::missing(
            NAME,
            format!("tracefs cannot be used: {e}"),
            "names of tracepoints ('klogger tracepoints'), and of system calls",
        )
        .help("mount -t tracefs nodev /sys/kernel/tracing"),
    }
}

fn counters() -> Finding {
    const NAME: &str = "hardware counters";
    let can = Counted::of("cycles").is_some_and(|cycles| can_count(cycles.kind, cycles.config));
    match can {
        true => Finding::ok(NAME, "cycles are counted"),
        false => Finding::missing(
            NAME,
            "this machine, or its hypervisor, has none",
            "samples by cycles and cache misses; those by the clock work",
        ),
    }
}

fn names() -> Finding {
    const NAME: &str = "names of the kernel";
    match machine::symbols().is_empty() {
        false => Finding::ok(NAME, "in /proc/kallsyms"),
        true => Finding::limited(
            NAME,
            "/proc/kallsyms has no addresses",
            "names of functions in kernel stacks",
        )
        .help("sysctl kernel.kptr_restrict=1, and CAP_SYSLOG"),
    }
}

const ENGINE: &str = "the kernel engine: --engine kernel";

fn modules() -> Finding {
    const NAME: &str = "modules";
    let may =
        host_kernel::check_takes_modules().and_then(|()| host_kernel::check_module_privilege());
    match may {
        Ok(()) => Finding::ok(NAME, "this kernel loads modules"),
        Err(e) => Finding { help: None, ..Finding::of_error(NAME, &e, ENGINE) },
    }
}

fn headers() -> Finding {
    const NAME: &str = "kernel headers";
    let folder = kbuild::kernel_dir(None).map(|folder| folder.display().to_string());
    Finding::of(NAME, folder, ENGINE)
}
