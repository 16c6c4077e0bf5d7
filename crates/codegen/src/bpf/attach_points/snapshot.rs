// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What exists at the start or at the end, as programs of BPF iterators: the kernel runs them once
//! for each object while the recorder reads the iterator.

use super::{Frame, Hit, Row};
use crate::kernel_types::{Error, KernelTypes};
use crate::refusal::{Refusal, did_you_mean};
use klogger_schema::model::{Param, ProbeKind, Target};

pub(super) static START: Row = Row { kind: ProbeKind::Start, ..ROW };
pub(super) static END: Row = Row { kind: ProbeKind::End, ..ROW };

const ROW: Row = Row {
    kind: ProbeKind::Start,
    hit: Hit::Preempted,
    counted: false,
    needs: None,
    refuse,
    section: |target| {
        let iterator = of(&target.name).map_or(target.name.as_str(), |o| o.iterator);
        format!("iter/{iterator}")
    },
    frame,
    arguments: |target, _| {
        Ok(target
            .params
            .iter()
            .enumerate()
            .map(|(n, p)| format!("({}){}", p.ty, argument(n, p)))
            .collect())
    },
    names: |kernel| {
        let has = |o: &&Objects| matches!(kernel.iterator(o.iterator), Ok(Some(_)));
        OBJECTS.iter().filter(has).map(|o| o.word.to_string()).collect()
    },
    parameters: |kernel, name| {
        let Some(objects) = of(name) else { return Ok(Vec::new()) };
        Ok(kernel.iterator(objects.iterator)?.unwrap_or_default())
    },
};

/// What can be listed.
struct Objects {
    /// The word in a schema.
    word: &'static str,
    /// The kernel's name of the iterator.
    iterator: &'static str,
    owner: Owner,
}

/// The thread that an object belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The first argument.
    Task,
    /// The first argument, of which only threads of the kernel are listed.
    KernelThread,
    None,
}

const fn objects(word: &'static str, iterator: &'static str, owner: Owner) -> Objects {
    Objects { word, iterator, owner }
}

const OBJECTS: [Objects; 11] = [
    objects("tasks", "task", Owner::Task),
    objects("kernel_threads", "task", Owner::KernelThread),
    objects("files", "task_file", Owner::Task),
    objects("maps", "task_vma", Owner::Task),
    objects("tcp", "tcp", Owner::None),
    objects("udp", "udp", Owner::None),
    objects("unix", "unix", Owner::None),
    objects("netlink", "netlink", Owner::None),
    objects("slabs", "kmem_cache", Owner::None),
    objects("bpf_maps", "bpf_map", Owner::None),
    objects("bpf_programs", "bpf_prog", Owner::None),
];

fn of(word: &str) -> Option<&'static Objects> {
    OBJECTS.iter().find(|o| o.word == word)
}

fn refuse(target: &Target, kernel: &KernelTypes) -> Result<Option<Refusal>, Error> {
    let (kind, name) = (target.kind.word(), &target.name);
    let Some(objects) = of(name) else {
        let words = OBJECTS.map(|o| o.word);
        return Ok(Some(Refusal::of_the_schema(
            format!("a probe of kind '{kind}' cannot list '{name}'"),
            did_you_mean(name, words).unwrap_or_else(|| format!("it lists {}", words.join(", "))),
        )));
    };
    let Some(theirs) = kernel.iterator(objects.iterator)? else {
        return Ok(Some(Refusal::of_this_kernel(
            format!(
                "this kernel cannot list {name}: it has no BPF iterator '{}'",
                objects.iterator
            ),
            Some("name an alternative with 'or', or leave the probe out".into()),
        )));
    };
    let types: Vec<String> = theirs.iter().map(|p| p.ty.clone()).collect();
    let mismatch = kernel.mismatch(target, &types)?;
    Ok(mismatch.map(|_| {
        let declared: Vec<String> = theirs.iter().map(Param::declare).collect();
        Refusal::of_the_schema(
            format!("the parameters of '{kind} {name}' are not the kernel's"),
            format!(
                "schema: {}\nkernel: {}({})",
                target.prototype(),
                target.label(),
                declared.join(", ")
            ),
        )
    }))
}

/// A parameter's value: a pointer was loaded and tested by [`frame`].
fn argument(n: usize, param: &Param) -> String {
    if param.ty.ends_with('*') {
        format!("klogger_object_{n}")
    } else {
        format!("klogger_arguments[{}]", n + 1)
    }
}

/// After the last object the kernel calls the program once more, without one. An event without a
/// scope belongs to the object's owner, for the running thread is the recorder.
fn frame(target: &Target) -> Frame {
    let owner = of(&target.name).map_or(Owner::None, |o| o.owner);
    let mut before = String::new();
    let pointers = target.params.iter().enumerate().filter(|(_, p)| p.ty.ends_with('*'));
    let numbers: Vec<usize> = pointers.map(|(n, _)| n).filter(|n| *n > 0).collect();
    for n in [0].iter().chain(&numbers) {
        before += &format!(
            "\tvoid *klogger_object_{n} = (void *)klogger_arguments[{}];\n\n\
             \tif (!klogger_object_{n})\n\t\treturn 0;\n",
            n + 1
        );
    }
    if owner == Owner::KernelThread {
        before += "\tif (!klogger_task_is_kernel(klogger_object_0))\n\t\treturn 0;\n";
    }
    let owned = match owner {
        Owner::Task | Owner::KernelThread => "klogger_in_scope(klogger_task_tid(klogger_object_0))",
        Owner::None => "!klogger_config.scoped",
    };
    before += &format!("\tklogger_hit.lists = 1;\n\tklogger_hit.owned = {owned};\n");
    Frame { before, after: "\tklogger_make_room(&klogger_hit, klogger_arguments);\n" }
}
