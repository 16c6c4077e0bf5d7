// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A test: bundled schemata do not depend on sizes of kernel structures. They are compiled once for
//! all kernels. CO-RE finds members of structures by name, but sizes of structures, and offsets
//! that C computes, are those of the kernel whose types were used in the build. The test looks for
//! them in the compiler's syntax tree.

use super::{Compiler, write_texts};
use klogger_codegen::{KernelTypes, Runs, bpf};
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The part of clang's syntax tree that is needed.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Node {
    kind: String,
    name: String,
    opcode: String,
    tag_used: String,
    r#type: Type,
    arg_type: Type,
    inner: Vec<Node>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Type {
    qual_type: String,
    /// If `qual_type` is a typedef.
    desugared_qual_type: String,
}

impl Type {
    /// What follows `struct NAME`: `*` for a pointer to it; `None` if it is not a structure of
    /// `kernels`.
    fn behind(&self, kernels: &BTreeSet<String>) -> Option<String> {
        let text = if self.desugared_qual_type.is_empty() {
            &self.qual_type
        } else {
            &self.desugared_qual_type
        };
        let mut words = text.split(' ').filter(|w| !["const", "volatile"].contains(w));
        let (tag, name) = (words.next()?, words.next()?);
        let (name, elements) = name.split_at(name.find('[').unwrap_or(name.len()));
        kernels
            .contains(&format!("{tag} {name}"))
            .then(|| elements.to_string() + &words.collect::<String>())
    }

    fn is_structure(&self, kernels: &BTreeSet<String>) -> bool {
        self.behind(kernels).is_some_and(|rest| !rest.contains('*'))
    }

    fn is_pointer(&self, kernels: &BTreeSet<String>) -> bool {
        self.behind(kernels).is_some_and(|rest| rest == "*")
    }
}

impl Node {
    fn kernels(&self, into: &mut BTreeSet<String>) {
        if self.kind == "RecordDecl"
            && self.inner.iter().any(|n| n.kind == "BPFPreserveAccessIndexAttr")
        {
            into.insert(format!("{} {}", self.tag_used, self.name));
        }
        self.inner.iter().for_each(|n| n.kernels(into));
    }

    fn depends(&self, kernels: &BTreeSet<String>) -> bool {
        let mut operands = self.inner.iter().map(|n| &n.r#type);
        match (self.kind.as_str(), self.opcode.as_str()) {
            ("OffsetOfExpr", _) => true,
            ("UnaryExprOrTypeTraitExpr", _) => {
                operands.chain([&self.arg_type]).any(|t| t.is_structure(kernels))
            }
            ("ArraySubscriptExpr", _) => self.r#type.is_structure(kernels),
            ("BinaryOperator" | "CompoundAssignOperator", "+" | "-" | "+=" | "-=")
            | ("UnaryOperator", "++" | "--") => operands.any(|t| t.is_pointer(kernels)),
            _ => false,
        }
    }

    /// Looks at bodies of functions only; assertions in generated C are outside of them.
    fn find(&self, function: &str, kernels: &BTreeSet<String>, found: &mut Vec<String>) {
        let function = if self.kind == "FunctionDecl" { &self.name } else { function };
        if !function.is_empty() && self.depends(kernels) {
            found.push(format!("{function}: {}{}", self.kind, self.opcode));
        }
        let inner = self.inner.iter().filter(|n| n.kind != "StaticAssertDecl");
        inner.for_each(|n| n.find(function, kernels, found));
    }
}

/// Where the C of a schema depends on the size of a kernel structure.
fn found_in(schema: &Schema) -> Vec<String> {
    let btf = std::env::var("KLOGGER_BTF").unwrap_or_else(|_| "/sys/kernel/btf/vmlinux".into());
    let types = KernelTypes::new(&std::fs::read(btf).unwrap()).unwrap();
    let texts = bpf::source(schema, &types, Runs::Anywhere).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_texts(folder.path(), &texts).unwrap();
    let words = ["-fsyntax-only", "-Xclang", "-ast-dump=json", &texts[0].name];
    let tree = Compiler::find(folder.path()).unwrap().run(schema, &words).unwrap().0;
    let tree: Node = serde_json::from_slice(&tree).unwrap();
    let (mut kernels, mut found) = (BTreeSet::new(), Vec::new());
    tree.kernels(&mut kernels);
    assert!(!kernels.is_empty());
    tree.find("", &kernels, &mut found);
    found
}

#[test]
fn bundled_schemata_need_no_sizes_of_structures() {
    for bundled in crate::bundled::all() {
        assert_eq!(found_in(&bundled.load().unwrap().schema), [""; 0], "{}", bundled.file);
    }
    assert_eq!(found_in(&crate::bundled::builtin().unwrap().schema), [""; 0]);
}

#[test]
fn sizes_of_structures_are_found() {
    let text = "event E { ulong x }\n\
        probe tracepoint sched_waking(struct task_struct *p) {\n\
        const struct task_struct *q = p;\n\
        unsigned long x = sizeof(struct task_struct) + sizeof(*p) + __builtin_offsetof(struct \
        task_struct, pid);\n\
        x += (p + 1)->pid + p[1].pid + (p++)->pid + (q - p);\n\
        q -= 1;\n\
        klogger(E, x + q->pid + sizeof(x) + sizeof(p) + p->comm[1]);\n\
        }\n";
    let schema = parse("sizes.klogger", text, &Options::default()).unwrap().schema;
    let found: Vec<String> =
        found_in(&schema).iter().map(|f| f.split_once(": ").unwrap().1.into()).collect();
    let sizeof = "UnaryExprOrTypeTraitExpr";
    let expected = [
        sizeof,
        sizeof,
        "OffsetOfExpr",
        "BinaryOperator+",
        "ArraySubscriptExpr",
        "UnaryOperator++",
        "BinaryOperator-",
        "CompoundAssignOperator-=",
    ];
    assert_eq!(found, expected);
}
