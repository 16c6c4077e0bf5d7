// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The system calls of a kernel, and whether a probe's parameters are theirs.
//!
//! Numbers and names are from a table, because the kernel's type information has only functions.
//! These say whether the kernel has the call. What its arguments are called, and their types, only
//! tracefs says, which only root can read; for other users, any number or pointer is accepted.

use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::{Refusal, did_you_mean};
use crate::trace_event::{Field, Shape};
use klogger_schema::attach_points::syscall::{ALL_CALLS, ARGUMENTS};
use klogger_schema::model::{Param, ProbeKind, Target};
use klogger_schema::system_calls::Machine;
use std::collections::BTreeMap;

/// Calls whose function has another name in the kernel.
const FUNCTIONS: [(&str, &str); 9] = [
    ("stat", "newstat"),
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("fstatat", "newfstatat"),
    ("uname", "newuname"),
    ("umount2", "umount"),
    ("sendfile", "sendfile64"),
    ("_sysctl", "sysctl"),
    ("fadvise64", "fadvise64_64"),
];

/// What programs call instead on machines that do not have an old call.
const INSTEAD: [(&str, &str); 34] = [
    ("access", "faccessat"),
    ("chmod", "fchmodat"),
    ("chown", "fchownat"),
    ("creat", "openat"),
    ("dup2", "dup3"),
    ("epoll_create", "epoll_create1"),
    ("epoll_wait", "epoll_pwait"),
    ("eventfd", "eventfd2"),
    ("fork", "clone"),
    ("futimesat", "utimensat"),
    ("getdents", "getdents64"),
    ("getpgrp", "getpgid"),
    ("inotify_init", "inotify_init1"),
    ("lchown", "fchownat"),
    ("link", "linkat"),
    ("lstat", "fstatat"),
    ("mkdir", "mkdirat"),
    ("mknod", "mknodat"),
    ("newfstatat", "fstatat"),
    ("open", "openat"),
    ("pause", "ppoll"),
    ("pipe", "pipe2"),
    ("poll", "ppoll"),
    ("readlink", "readlinkat"),
    ("rename", "renameat2"),
    ("rmdir", "unlinkat"),
    ("select", "pselect6"),
    ("signalfd", "signalfd4"),
    ("stat", "fstatat"),
    ("symlink", "symlinkat"),
    ("time", "clock_gettime"),
    ("unlink", "unlinkat"),
    ("utimes", "utimensat"),
    ("vfork", "clone"),
];

/// Calls whose return no probe can see.
const NO_RETURN: [(&str, &str); 3] = [
    ("exit", "it does not return"),
    ("exit_group", "it does not return"),
    ("rt_sigreturn", "it returns to what a signal had interrupted, which has no call's number"),
];

/// Prefixes of the functions of calls, in the kernel and in other tools.
const PREFIXES: [&str; 8] = [
    "sys_enter_",
    "sys_exit_",
    "__x64_sys_",
    "__arm64_sys_",
    "__se_sys_",
    "__do_sys_",
    "ksys_",
    "sys_",
];

/// The machine of the kernel with these types.
fn machine(kernel: &KernelTypes) -> Machine {
    if kernel.has_function("__arm64_sys_openat") {
        Machine::Arm
    } else if kernel.has_function("__x64_sys_openat") {
        Machine::X86
    } else {
        Machine::here()
    }
}

fn function(name: &str) -> &str {
    FUNCTIONS.iter().find(|(call, _)| *call == name).map_or(name, |(_, function)| function)
}

/// Whether the kernel has a call of the table. One whose functions have no type information has
/// all.
fn has(kernel: &KernelTypes, machine: Machine, name: &str) -> bool {
    let prefixes: &[&str] = match machine {
        Machine::X86 => &["__x64_sys_", "__do_sys_", "__ia32_sys_"],
        Machine::Arm => &["__arm64_sys_", "__do_sys_"],
    };
    let is_one = |name: &str| prefixes.iter().any(|p| kernel.has_function(&format!("{p}{name}")));
    is_one(function(name)) || is_one(name) || !is_one("openat")
}

/// Whether a kernel may have system calls of 32-bit programs.
pub fn has_32_bit(kernel: &KernelTypes) -> bool {
    match machine(kernel) {
        Machine::X86 => {
            kernel.has_function("do_fast_syscall_32") || !kernel.has_function("do_syscall_64")
        }
        Machine::Arm => true,
    }
}

/// The names of all calls of a kernel.
pub fn names(kernel: &KernelTypes) -> Vec<String> {
    let machine = machine(kernel);
    let calls = machine.calls().into_keys().filter(|name| has(kernel, machine, name));
    std::iter::once(ALL_CALLS).chain(calls).map(String::from).collect()
}

/// Those of its arguments that tracefs describes; `None` if that cannot be read.
fn described(kernel: &KernelTypes, name: &str) -> Option<Vec<Field>> {
    let event = |name: &str| kernel.trace_event(&format!("syscalls:sys_enter_{name}")).ok()?;
    let event = event(function(name)).or_else(|| event(name))?;
    Some(event.fields)
}

fn parameter(ty: &str, name: &str) -> Param {
    Param { ty: ty.into(), name: name.into() }
}

/// What a probe's parameters begin with, before the arguments.
fn first(target: &Target) -> Vec<Param> {
    let result = (target.kind == ProbeKind::ReturnSyscall).then(|| parameter("long", "result"));
    let number = (target.name == ALL_CALLS).then(|| parameter("long", "number"));
    result.into_iter().chain(number).collect()
}

/// All parameters that a probe can have, as a schema would declare them.
pub fn parameters(kernel: &KernelTypes, kind: ProbeKind, name: &str) -> Vec<Param> {
    let mut all = first(&Target::bare(kind, name));
    match (name != ALL_CALLS).then(|| described(kernel, name)).flatten() {
        Some(fields) => all.extend(fields.iter().map(|f| parameter(&f.ty, &f.name))),
        None => {
            all.extend((0..ARGUMENTS).map(|n| parameter("unsigned long", &format!("arg{n}"))));
        }
    }
    all
}

/// `None` if the target can be attached to the kernel with these types.
pub fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let name = &target.name;
    if name != ALL_CALLS
        && let Some(refusal) = unknown(name, kernel)
    {
        return Ok(Some(refusal));
    }
    if target.kind == ProbeKind::ReturnSyscall
        && let Some((_, why)) = NO_RETURN.iter().find(|(call, _)| call == name)
    {
        return Ok(Some(Refusal::of_the_schema(
            format!("no probe can be at the return of system call '{name}'"),
            format!("{why}: write 'probe syscall {name}'"),
        )));
    }
    Ok(mismatch(target, kernel))
}

/// What a schema writes for the event of a system call, such as `sys_enter_openat`.
pub fn of_trace_event(name: &str, kernel: &KernelTypes) -> Option<String> {
    let entry = name.strip_prefix("sys_enter_").map(|call| (ProbeKind::Syscall, call));
    let exit = || name.strip_prefix("sys_exit_").map(|call| (ProbeKind::ReturnSyscall, call));
    let (kind, function) = entry.or_else(exit)?;
    let calls = machine(kernel).calls();
    Some(Target::bare(kind, call_of(function, &calls)?).label())
}

/// The call of a function's name.
fn call_of<'a>(function: &'a str, calls: &BTreeMap<&str, u32>) -> Option<&'a str> {
    let renamed = FUNCTIONS.iter().find(|(_, f)| *f == function).map(|(call, _)| *call);
    let listed = |call: &&str| calls.contains_key(call);
    renamed.filter(listed).or(Some(function).filter(listed))
}

/// If the kernel does not have the call.
fn unknown(name: &str, kernel: &KernelTypes) -> Option<Refusal> {
    let machine = machine(kernel);
    let calls = machine.calls();
    let listed = calls.contains_key(name);
    if listed && has(kernel, machine, name) {
        return None;
    }
    let bare = PREFIXES.iter().find_map(|p| name.strip_prefix(p));
    let bare = bare.and_then(|b| call_of(b, &calls));
    let instead = INSTEAD.iter().find(|(old, new)| *old == name && calls.contains_key(new));
    let help = match (bare, instead) {
        (Some(bare), _) => Some(format!("write 'syscall {bare}'")),
        (None, Some((_, new))) => {
            Some(format!("programs on {} call {new}: name it with 'or'", machine.name()))
        }
        (None, None) if listed => None,
        (None, None) => did_you_mean(name, calls.into_keys()),
    };
    let message = match instead.is_some() && bare.is_none() {
        true => format!("{} has no system call '{name}'", machine.name()),
        false => format!("this kernel has no system call '{name}'"),
    };
    Some(Refusal::of_this_kernel(message, help))
}

/// If the parameters are not the call's.
fn mismatch(target: &Target, kernel: &KernelTypes) -> Option<Refusal> {
    let known = (target.name != ALL_CALLS).then(|| described(kernel, &target.name)).flatten();
    let begin = first(target);
    let most = begin.len() + known.as_ref().map_or(ARGUMENTS, Vec::len);
    let begins = target.params.iter().zip(&begin).all(|(p, _)| is_number(kernel, p));
    let rest = target.params.iter().skip(begin.len());
    let fits = match &known {
        None => rest.into_iter().all(|p| is_pointer(p) || is_number(kernel, p)),
        Some(fields) => rest.zip(fields).all(|(p, field)| is_as(kernel, p, field)),
    };
    if target.params.len() <= most && begins && fits {
        return None;
    }
    let theirs = match (&known, target.name.as_str()) {
        (Some(_), _) | (None, ALL_CALLS) => {
            let all = parameters(kernel, target.kind, &target.name);
            all.iter().map(Param::declare).collect::<Vec<_>>().join(", ")
        }
        (None, _) => {
            let begin: String = begin.iter().map(|p| format!("{}, ", p.declare())).collect();
            format!("{begin}up to {ARGUMENTS} numbers and pointers")
        }
    };
    let ours: Vec<String> = target.params.iter().map(Param::declare).collect();
    Some(Refusal::of_the_schema(
        format!("the parameters are not those of {}", target.label()),
        format!("schema: {}\nkernel: {theirs}", ours.join(", ")),
    ))
}

fn is_pointer(param: &Param) -> bool {
    param.ty.ends_with('*')
}

/// Not a `_Bool`, of which no call has an argument.
fn is_number(kernel: &KernelTypes, param: &Param) -> bool {
    kernel.size_and_sign(&param.ty).is_some()
}

/// A parameter may have another sign, and point to something else, as manuals and headers do not
/// agree about these. It must have as many bytes, because the rest of the register may be garbage;
/// but C passes small numbers as an `int`.
fn is_as(kernel: &KernelTypes, param: &Param, field: &Field) -> bool {
    let theirs = kernel.size_and_sign(&field.ty).map(|(size, _)| size);
    let own = kernel.size_and_sign(&param.ty).map(|(size, _)| size);
    match (field.shape, theirs) {
        (Shape::Pointer, _) => is_pointer(param) || own == Some(8),
        (_, Some(theirs)) => own == Some(theirs) || own == Some(theirs.max(4)),
        // A type that is not in the type information.
        (_, None) => is_pointer(param) || own.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_name_calls() {
        let (x86, arm) = (Machine::X86.calls(), Machine::Arm.calls());
        for (old, new) in INSTEAD {
            assert!(x86.contains_key(old) && !arm.contains_key(old), "{old}");
            assert!(arm.contains_key(new), "{new}");
        }
        for (call, _) in FUNCTIONS.iter().chain(&NO_RETURN) {
            assert!(x86.contains_key(call) || arm.contains_key(call), "{call}");
        }
    }

    #[test]
    fn a_function_has_its_call() {
        let calls = Machine::X86.calls();
        assert_eq!(call_of("openat", &calls), Some("openat"));
        assert_eq!(call_of("newfstat", &calls), Some("fstat"));
        assert_eq!(call_of("newfstatat", &calls), Some("newfstatat"));
        assert_eq!(call_of("newfstatat", &Machine::Arm.calls()), Some("fstatat"));
        assert_eq!(call_of("nothing", &calls), None);
    }
}
