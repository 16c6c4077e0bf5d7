// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/golden/kernel/NAME.klogger`, and the C for the kernel engine generated from it. The tests
//! are found by path: one more case is one more schema there, and KLOGGER_BLESS=1 writes the
//! expected text. tests/guest compiles, loads and runs it on real kernels.

mod support;

use klogger_codegen::kernel::{
    AttachPoint, Tracepoint, Tracepoints, header, module, prototype_complaint, runtime_number,
};
use klogger_schema::model::{ProbeKind, Schema};
use support::{expect, schemas};

/// Tracepoints as in a kernel's headers: one has more parameters than the schema uses.
fn tracepoints() -> Tracepoints {
    let of = |header: &str, parameters: &[&str]| Tracepoint {
        header: header.into(),
        parameters: parameters.iter().map(|p| p.to_string()).collect(),
    };
    Tracepoints::from([
        (
            "sched_waking".into(),
            of("trace/events/sched.h", &["struct task_struct *p", "void (*call)(int)"]),
        ),
        ("sched_process_exit".into(), of("trace/events/sched.h", &["struct task_struct *p"])),
        ("local_timer_entry".into(), of("asm/trace/irq_vectors.h", &["int vector"])),
    ])
}

fn attach_points(schema: &Schema) -> Vec<AttachPoint> {
    let known = tracepoints();
    let mut list = Vec::new();
    for (probe, p) in schema.probes.iter().enumerate() {
        for (target, t) in p.targets.iter().enumerate() {
            let tracepoint =
                known.get(&t.name).filter(|_| t.kind == ProbeKind::Tracepoint).cloned();
            if tracepoint.as_ref().is_none_or(|k| k.parameters.len() >= t.params.len()) {
                list.push(AttachPoint { probe, target, tracepoint });
            }
        }
    }
    list
}

/// The generated part of a header, without the runtime, which is the same in all of them.
fn generated_part(text: &str) -> String {
    let (head, rest) = text.split_once("/*\n * Fixed-width types").unwrap();
    let (_, tail) = rest.split_once("#if KLOGGER_RUNTIME").unwrap();
    let number = format!("{:#018x}", runtime_number());
    format!("{head}[runtime]\n\n#if KLOGGER_RUNTIME{tail}").replace(&number, "[number]")
}

#[test]
fn modules_are_as_expected() {
    for (path, schema) in schemas("kernel") {
        for text in module(&schema, &attach_points(&schema)) {
            let generated = match text.name.ends_with(".h") {
                true => generated_part(&text.text),
                false => text.text,
            };
            expect(&path.with_file_name(&text.name), &generated);
        }
    }
}

#[test]
fn in_a_kernel_tree_the_configuration_decides() {
    for (_, schema) in schemas("kernel") {
        let condition = "defined(KLOGGER_OFF) || !IS_REACHABLE(CONFIG_KLOGGER)";
        let text = header(&schema, true).text;
        assert!(
            text.contains(&format!("#if {condition}\n"))
                && text.contains(&format!("&& !({condition})\n"))
        );
        assert!(!header(&schema, false).text.contains("CONFIG_KLOGGER"));
    }
}

#[test]
fn a_prototype_complaint_is_recognized() {
    let gcc = "static assertion failed: \"klogger: prototype 3 1\"";
    assert_eq!(prototype_complaint(gcc), Some((3, 1)));
    assert_eq!(prototype_complaint("static assertion failed: \"offset of pid\""), None);
}
