// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Functions of the kernel, in three ways: programs that get the arguments with the kernel's types
//! (fentry, fexit); probes by a breakpoint (kprobe, kretprobe), whose arguments are registers; and
//! the latter on kernels that cannot give a register a type.
//!
//! The first way that the kernel has for a function is used.

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes, Prototype};
use crate::refusal::{Refusal, did_you_mean};
use klogger_schema::model::{Param, ProbeKind, Target};

/// Arguments that are passed in registers.
const IN_REGISTERS: usize = 6;

pub(super) const FENTRY: Row = Row {
    kind: ProbeKind::Function,
    hit: Hit::Preempted,
    counted: false,
    needs: None,
    refuse: refuse_fentry,
    section: |target| format!("fentry/{}", target.name),
    arguments: |target, _| {
        let typed = |(n, p): (usize, &Param)| format!("({})klogger_arguments[{n}]", p.ty);
        Ok(target.params.iter().enumerate().map(typed).collect())
    },
    frame: Frame::none,
    names: KernelTypes::functions,
    parameters,
};

pub(super) const KPROBE: Row = Row {
    hit: Hit::Plain,
    refuse: refuse_typed_kprobe,
    section: |target| format!("kprobe/{}", target.name),
    arguments: |target, kernel| Ok(registers(target, Some(kernel))),
    names: |_| Vec::new(),
    ..FENTRY
};

pub(super) const UNTYPED_KPROBE: Row =
    Row { refuse: refuse_kprobe, arguments: |target, _| Ok(registers(target, None)), ..KPROBE };

pub(super) const FEXIT: Row = Row {
    kind: ProbeKind::Return,
    section: |target| format!("fexit/{}", target.name),
    arguments: of_fexit,
    parameters: |kernel, name| {
        let prototype = kernel.function(name)?.unwrap_or_default();
        Ok(declared(ProbeKind::Return, &prototype))
    },
    ..FENTRY
};

pub(super) const KRETPROBE: Row = Row {
    kind: ProbeKind::Return,
    section: |target| format!("kretprobe/{}", target.name),
    arguments: |target, kernel| Ok(result(target, Some(kernel))),
    parameters: FEXIT.parameters,
    ..KPROBE
};

pub(super) const UNTYPED_KRETPROBE: Row = Row {
    kind: ProbeKind::Return,
    section: KRETPROBE.section,
    arguments: |target, _| Ok(result(target, None)),
    parameters: FEXIT.parameters,
    ..UNTYPED_KPROBE
};

fn parameters(kernel: &KernelTypes, name: &str) -> Result<Vec<Param>, Error> {
    let prototype = kernel.function(name)?.unwrap_or_default();
    Ok(declared(ProbeKind::Function, &prototype))
}

/// The parameters of a probe in a function: at its return, the result comes first.
fn declared(kind: ProbeKind, prototype: &Prototype) -> Vec<Param> {
    let result = prototype.result.iter().filter(|_| kind == ProbeKind::Return);
    let result = result.map(|ty| Param { ty: ty.clone(), name: "result".into() });
    result.chain(prototype.params.iter().cloned()).collect()
}

/// What fexit has: the arguments, then the result. Where the result is, the helper knows on each
/// kernel; but only what is read from there has a type.
fn of_fexit(target: &Target, kernel: &KernelTypes) -> Result<Vec<String>, Error> {
    let prototype = kernel.function(&target.name)?;
    let returns = prototype.as_ref().is_none_or(|p| p.result.is_some());
    let place = prototype.map_or(target.params.len().saturating_sub(1), |p| p.params.len());
    let of = |(n, p): (usize, &Param)| match (n.checked_sub(usize::from(returns)), &p.ty) {
        (Some(n), ty) => format!("({ty})klogger_arguments[{n}]"),
        (None, ty) if ty.ends_with('*') => format!("({ty})klogger_arguments[{place}]"),
        (None, ty) => format!("({ty})klogger_function_result(klogger_arguments)"),
    };
    Ok(target.params.iter().enumerate().map(of).collect())
}

/// `kernel`: if it can give types to registers.
fn registers(target: &Target, kernel: Option<&KernelTypes>) -> Vec<String> {
    let of = |(n, p): (usize, &Param)| typed(p, &format!("klogger_argument_register({n})"), kernel);
    target.params.iter().enumerate().map(of).collect()
}

fn result(target: &Target, kernel: Option<&KernelTypes>) -> Vec<String> {
    target.params.iter().map(|p| typed(p, "klogger_result_register()", kernel)).collect()
}

/// The value of a register as the body gets it.
fn typed(param: &Param, register: &str, kernel: Option<&KernelTypes>) -> String {
    let ty = &param.ty;
    match kernel.and_then(|kernel| kernel.structure_behind(ty)) {
        Some(structure) => format!("({ty})klogger_of_type({structure}, {register})"),
        None => format!("({ty}){register}"),
    }
}

fn refuse_fentry(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    if let Some(refusal) = refuse_function(target, kernel)? {
        return Ok(Some(refusal));
    }
    let Some(prototype) = kernel.function(&target.name)? else {
        return Ok(Some(without_prototype(target, kernel)));
    };
    if let Some(refusal) = refuse_prototype(target, &prototype, kernel)? {
        return Ok(Some(refusal));
    }
    let name = &target.name;
    let too_much = match &prototype {
        p if p.variadic => Some("a variable number of arguments"),
        p if p.params.len() > IN_REGISTERS => Some("more than six arguments"),
        p if p.by_value.is_some() => Some("a structure among its arguments"),
        p if p.returns_structure => Some("a structure as its result"),
        _ => None,
    };
    Ok(match (why_no_fentry(kernel), why_no_kprobes(kernel), too_much) {
        (Some(fentry), Some(kprobes), _) => Some(Refusal::of_this_kernel(
            format!("this kernel allows no probes in functions: {fentry}, and {kprobes}"),
            Some(
                "use a tracepoint, or record in a guest: 'klogger guest --help'; 'or' joins an \
                 alternative"
                    .into(),
            ),
        )),
        (_, _, Some(what)) => Some(Refusal::of_this_kernel(
            format!("function '{name}' has {what}, which fentry and fexit do not take"),
            Some("choose a function that it calls, or is called by".into()),
        )),
        (Some(fentry), None, None) => Some(Refusal::of_this_kernel(
            format!(
                "on this kernel the arguments of function '{name}' are not known when it returns: \
                 {fentry}"
            ),
            Some("declare the result only".into()),
        )),
        (None, ..) => None,
    })
}

fn refuse_typed_kprobe(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    match kernel.has_function("bpf_rdonly_cast") {
        true => refuse_kprobe(target, kernel),
        false => Ok(Some(Refusal::of_this_kernel(
            "this kernel has no bpf_rdonly_cast(), which is since Linux 6.2".into(),
            Some("read what pointers point to by klogger_read()".into()),
        ))),
    }
}

fn refuse_kprobe(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    if let Some(refusal) = refuse_function(target, kernel)? {
        return Ok(Some(refusal));
    }
    if let Some(why) = why_no_kprobes(kernel) {
        return Ok(Some(Refusal::of_this_kernel(why, None)));
    }
    let Some(prototype) = kernel.function(&target.name)? else {
        let bare = target.params.is_empty();
        return Ok((!bare).then(|| without_prototype(target, kernel)));
    };
    if let Some(refusal) = refuse_prototype(target, &prototype, kernel)? {
        return Ok(Some(refusal));
    }
    let at_return = target.kind == ProbeKind::Return;
    let results = usize::from(prototype.result.is_some());
    let cannot = match &prototype {
        p if at_return => target.params.len() > results || p.returns_structure && results > 0,
        p => {
            let declared = target.params.len();
            declared > IN_REGISTERS || p.by_value.is_some_and(|at| at < declared)
        }
    };
    Ok(cannot.then(|| {
        Refusal::of_this_kernel(
            format!("a kprobe does not find all of these arguments of '{}'", target.name),
            Some("declare fewer parameters".into()),
        )
    }))
}

/// A prototype that is not the kernel's.
fn refuse_prototype(
    target: &Target,
    prototype: &Prototype,
    kernel: &KernelTypes,
) -> Result<Option<Refusal>, Error> {
    let types: Vec<String> =
        declared(target.kind, prototype).into_iter().map(|param| param.ty).collect();
    let theirs = kernel.mismatch(target, &types)?;
    Ok(theirs.map(|theirs| {
        Refusal::of_the_schema(
            format!("the prototype of '{}' is not the kernel's", target.name),
            format!("schema: {}\nkernel: {theirs}", target.prototype()),
        )
    }))
}

/// A function that the kernel does not have, or in which it allows no probe.
fn refuse_function(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let name = &target.name;
    let Some(running) = kernel.running() else {
        let known = kernel.has_function(name);
        return Ok((!known).then(|| missing(name, kernel)));
    };
    let symbols = running.symbols();
    let refusal = |message: String, help: &str| {
        Ok(Some(Refusal::of_this_kernel(message, Some(help.to_string()))))
    };
    match symbols.get(name) {
        None if symbols.is_empty() && kernel.has_function(name) => return Ok(None),
        None => return Ok(Some(missing(name, kernel))),
        Some(1) => {}
        Some(n) => {
            return refusal(
                format!("this kernel has {n} functions called '{name}'"),
                "choose one whose name is unique, such as one that it calls",
            );
        }
    }
    if running.traceable().is_some_and(|traceable| !traceable.contains(name)) {
        return refusal(
            format!("this kernel excludes the function '{name}' from tracing (notrace)"),
            "choose a function that it calls, or is called by",
        );
    }
    Ok(None)
}

/// The kernel has no function of this name, at least not with this one.
fn missing(name: &str, kernel: &KernelTypes) -> Refusal {
    let symbols = kernel.running().map(|running| running.symbols());
    let begin = format!("{name}.");
    let changed = symbols.and_then(|symbols| {
        let mut from = symbols.range(begin.clone()..).map(|(symbol, _)| symbol);
        from.find(|symbol| symbol.starts_with(&begin) && !symbol.contains(".cold"))
    });
    if let Some(changed) = changed {
        return Refusal::of_this_kernel(
            format!(
                "the compiler has replaced the function '{name}' of this kernel by '{changed}', \
                 with other arguments"
            ),
            Some(format!("write '{changed}()', without parameters, or choose another function")),
        );
    }
    let near = match symbols.filter(|symbols| !symbols.is_empty()) {
        Some(symbols) => did_you_mean(name, symbols.keys().map(String::as_str)),
        None => {
            let known = kernel.functions();
            did_you_mean(name, known.iter().map(String::as_str))
        }
    };
    Refusal::of_this_kernel(
        format!("this kernel has no function '{name}', or it was inlined"),
        near.or_else(|| {
            Some("'klogger places WORD --kind function' lists those with a word".into())
        }),
    )
}

fn without_prototype(target: &Target, kernel: &KernelTypes) -> Refusal {
    let help = match why_no_kprobes(kernel) {
        None => format!("write '{}()', without parameters", target.label()),
        Some(_) => "choose another function".into(),
    };
    Refusal::of_this_kernel(
        format!(
            "the kernel's type information (BTF) has no prototype of the function '{}'",
            target.name
        ),
        Some(help),
    )
}

fn why_no_fentry(kernel: &KernelTypes) -> Option<String> {
    match kernel.running() {
        Some(running) => running.fentry().err(),
        None => (!kernel.has_function("bpf_trampoline_link_prog"))
            .then(|| "it has no fentry (CONFIG_BPF_JIT)".into()),
    }
}

fn why_no_kprobes(kernel: &KernelTypes) -> Option<String> {
    match kernel.running() {
        Some(running) => running.kprobes().err(),
        None => (!kernel.has_function("register_kprobe"))
            .then(|| "it has no kprobes (CONFIG_KPROBES)".into()),
    }
}
