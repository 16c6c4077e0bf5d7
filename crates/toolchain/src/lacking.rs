// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From the compiler's messages to the probes whose C needs types that a kernel lacks. build.rs
//! uses this file too.

use klogger_schema::model::{Probe, Schema};

/// What the compiler says was missing: a line of a schema, counted from 1, and its message.
pub struct Missing<'a> {
    pub line: u32,
    pub message: &'a str,
}

/// What a kernel lacks, in words, if a message of the compiler is about that.
pub fn what(message: &str) -> Option<String> {
    let quoted: Vec<&str> = message.split('\'').skip(1).step_by(2).collect();
    let first = *quoted.first()?;
    if message.starts_with("no member named ") {
        let owner = quoted.get(1)?;
        return Some(format!("this kernel's {owner} has no member '{first}'"));
    }
    if message.contains("incomplete") && message.contains("type '") {
        let ty = quoted.iter().find(|q| q.starts_with("struct ") || q.starts_with("union "))?;
        return Some(format!("this kernel has no {}", ty.trim_end_matches([' ', '*'])));
    }
    if message.starts_with("unknown type name ") {
        return Some(format!("this kernel has no type '{first}'"));
    }
    // Constants of the kernel's enums.
    let capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let constant =
        message.starts_with("use of undeclared identifier ") && first.chars().all(capitals);
    constant.then(|| format!("this kernel has no constant '{first}'"))
}

/// Of each probe with errors what it lacks; `None` if some error has another cause, or is outside
/// of the probes.
pub fn probes(schema: &Schema, errors: &[Missing]) -> Option<Vec<(usize, String)>> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for error in errors {
        let at = schema.probes.iter().position(|probe| has_line(probe, error.line))?;
        match (what(error.message), found.iter().any(|(probe, _)| *probe == at)) {
            // What else the compiler says of that probe follows from it.
            (_, true) => {}
            (Some(what), false) => found.push((at, what)),
            (None, false) => return None,
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Whether a line of the schema is in the body of a probe.
fn has_line(probe: &Probe, line: u32) -> bool {
    let lines = probe.body.text.matches('\n').count() as u32;
    (probe.body.line..=probe.body.line + lines).contains(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::{Options, parse};

    #[test]
    fn what_is_missing_is_named() {
        for (message, expected) in [
            (
                "no member named 'new' in 'struct task_struct'",
                "this kernel's struct task_struct has no member 'new'",
            ),
            ("incomplete definition of type 'struct gone'", "this kernel has no struct gone"),
            ("variable has incomplete type 'struct gone'", "this kernel has no struct gone"),
            (
                "invalid application of 'sizeof' to an incomplete type 'struct gone'",
                "this kernel has no struct gone",
            ),
            ("unknown type name 'gone_t'", "this kernel has no type 'gone_t'"),
            ("use of undeclared identifier 'TASK_GONE'", "this kernel has no constant 'TASK_GONE'"),
        ] {
            assert_eq!(what(message).as_deref(), Some(expected));
        }
        for other in ["use of undeclared identifier 'pid'", "expected ';' after expression", ""] {
            assert_eq!(what(other), None);
        }
    }

    #[test]
    fn each_error_belongs_to_a_probe() {
        let text = "schema s\nevent A { }\nprobe tracepoint a() {\n  klogger(A);\n}\n\
                    code { static int x; }\nprobe tracepoint b() { klogger(A); }\n";
        let schema = parse("s.klogger", text, &Options::default()).unwrap().schema;
        let gone = |line| Missing { line, message: "unknown type name 'gone_t'" };
        let other = |line| Missing { line, message: "expected ';'" };
        let what = || "this kernel has no type 'gone_t'".to_string();
        assert_eq!(
            probes(&schema, &[gone(4), other(4), gone(7)]).unwrap(),
            [(0, what()), (1, what())]
        );
        assert_eq!(probes(&schema, &[gone(4), other(7)]), None);
        assert_eq!(probes(&schema, &[gone(6)]), None);
        assert_eq!(probes(&schema, &[]), None);
    }
}
