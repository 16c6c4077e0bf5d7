// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A program that the verifier refuses, in terms of its schema: which line, which rule, and the
//! remedy.

use klogger_os::Error;
use klogger_schema::Diagnostic;
use klogger_schema::model::{Schema, Span};

/// Why the kernel refused to load a program.
pub struct Refused {
    schema: String,
    file: String,
    /// The probe whose program it is, and its attach point.
    probe: Option<(Span, String)>,
    /// `FILE:LINE`, and its place in the schema's text.
    line: Option<(String, Span)>,
    rule: Option<&'static Rule>,
    /// The number of the probe, and what this kernel lacks of what its C needs.
    lacks: Option<(usize, String)>,
    /// The verifier's reason, or the error of the system call.
    verdict: String,
    /// All that the kernel and libbpf have said.
    pub log: String,
}

/// A rule of the verifier.
struct Rule {
    /// Parts of its messages.
    says: &'static [&'static str],
    /// What the program does that it must not.
    what: &'static str,
    remedy: &'static str,
}

/// The first one that fits counts.
static RULES: [Rule; 13] = [
    Rule {
        says: &[UNRESOLVED],
        what: "it uses a member or a type that this kernel does not have",
        remedy: "test for it with klogger_has_member(), or name an alternative with 'or': \
                 docs/language/other-kernels.md",
    },
    Rule {
        says: &[
            "infinite loop detected",
            "back-edge from insn",
            "BPF program is too large",
            "sequence of",
            "too many instructions",
            "loop is not bounded",
        ],
        what: "the verifier cannot see that it ends soon: a loop without a small bound, or too \
               many paths",
        remedy: "bound the loop by a constant, such as 'for (int i = 0; i < 32; i++)', and leave \
                 it with break; log fewer events in it",
    },
    Rule {
        says: &["_or_null'"],
        what: "it uses a pointer that may be NULL",
        remedy: "test it before: 'if (!p) return;'",
    },
    Rule {
        says: &["invalid mem access 'scalar'", "invalid mem access 'inv'"],
        what: "it reads at an address that is only a number, or of a pointer that the verifier \
               does not know",
        remedy: "read it with klogger_read(&value, address, sizeof(value))",
    },
    Rule {
        says: &[
            "invalid variable offset",
            "variable ptr_",
            "variable trusted_ptr_",
            "variable rcu_ptr_",
        ],
        what: "it reads an element of a kernel array whose index is not a constant",
        remedy: "read it with klogger_read(&value, &p->array[i], sizeof(value))",
    },
    Rule {
        says: &["access beyond struct", "access beyond the end of"],
        what: "it reads beyond the end of a structure of the kernel",
        remedy: "check the type of the pointer; klogger_read() reads at any address",
    },
    Rule {
        says: &[
            "only read is supported",
            "cannot write into",
            "write into mem",
            "cannot write to",
            "is read-only",
        ],
        what: "it writes to memory of the kernel",
        remedy: "a probe may write only to its own variables, and those in 'code'",
    },
    Rule {
        says: &[
            "unbounded memory access, use 'var &= const'",
            "min value is negative, either use",
            "is not a known constant",
            "invalid zero-sized",
            "invalid indirect access to stack",
            "invalid write to stack R1",
            "invalid access to memory, mem_size",
        ],
        what: "the size that it reads or copies is not known to fit",
        remedy: "use a constant, such as sizeof(value), or bound the size before: 'if (n > \
                 sizeof(bytes)) return;', where n is unsigned",
    },
    Rule {
        says: &[
            "invalid access to map value",
            "unbounded memory access",
            "min value is negative",
            "min value is outside",
            "max value is outside",
            "unbounded min value",
            "invalid variable-offset",
            "pointer arithmetic",
            "math between",
            "invalid unbounded",
        ],
        what: "an index is not known to be within the array",
        remedy: "bound it before: 'table[i & 15]' with an array of 16, or 'if (i >= 16) return;', \
                 where i is unsigned",
    },
    Rule {
        says: &[
            "Too large",
            "stack depth",
            "invalid read from stack",
            "invalid write to stack",
            "stack of",
        ],
        what: "its local variables take too much of the 512 bytes of a BPF stack",
        remedy: "put large variables into 'code' as static arrays, by klogger_cpu()",
    },
    Rule {
        says: &[
            "cannot use helper",
            "unknown func",
            "invalid func",
            "helper call is not allowed",
            "is not allowed",
            "cannot call",
        ],
        what: "it calls a function of the kernel that programs of this kind cannot call",
        remedy: "see the functions that a body can call in docs/language/probe.md",
    },
    Rule {
        says: &[
            "dereference of modified ctx",
            "invalid bpf_context access",
            "invalid btf_ctx access",
        ],
        what: "it reads a parameter that the attach point does not have",
        remedy: "declare the parameters as 'klogger tracepoints' prints them",
    },
    Rule {
        says: &["!read_ok", "invalid size of register", "uninitialized"],
        what: "it uses a variable that has no value",
        remedy: "give each variable a value where it is declared",
    },
];

impl Refused {
    /// `log`: the messages of libbpf, which contain the verifier's; `error`: that of the system
    /// call.
    pub fn new(schema: &Schema, log: String, error: &str) -> Refused {
        let verdict = verdict(&log).unwrap_or(error).to_string();
        let rule = RULES.iter().find(|r| r.says.iter().any(|part| verdict.contains(part)));
        let lacks = program(&log).zip(lacking(&verdict));
        let probe = program(&log).and_then(|n| schema.probes.get(n)).map(|probe| {
            let label = probe.targets.first().map(|t| t.label()).unwrap_or_default();
            (probe.span, label)
        });
        let line = line(&log, &schema.file).and_then(|n| span_of(&schema.text, n));
        let line = line.map(|span| (place_of(schema, span), span));
        let (schema, file) = (schema.name.clone(), schema.file.clone());
        Refused { schema, file, probe, line, rule, lacks, verdict, log }
    }

    fn why(&self) -> &str {
        match (&self.lacks, self.rule) {
            (Some((_, lacks)), _) => lacks,
            (None, Some(rule)) => rule.what,
            (None, None) => &self.verdict,
        }
    }

    /// The probe that needs what this kernel lacks, and what that is.
    pub fn lacks(&self) -> Option<(usize, &str)> {
        self.lacks.as_ref().map(|(probe, what)| (*probe, what.as_str()))
    }

    /// At its place in the schema.
    pub fn diagnostic(&self) -> Diagnostic {
        let probe = self.probe.as_ref().map(|(span, _)| *span);
        let span = self.line.as_ref().map(|(_, span)| *span).or(probe).unwrap_or_default();
        let place = self.probe.as_ref().map_or("a program", |(_, label)| label.as_str());
        let message = format!("the kernel refuses {place}: {}", self.why());
        let found = Diagnostic::error(span, message).label(self.label());
        match self.rule {
            Some(rule) => found.help(rule.remedy),
            None => found.help("--verifier-log FILE has all that the kernel says"),
        }
    }

    /// The verifier's own words, if the message has others.
    fn label(&self) -> String {
        if self.rule.is_some() { self.verdict.clone() } else { "at the latest here".into() }
    }
}

impl From<Box<Refused>> for Error {
    fn from(refused: Box<Refused>) -> Error {
        let place = refused.probe.as_ref().map_or("a program", |(_, label)| label.as_str());
        let own = match &refused.line {
            Some((place, _)) => place.clone(),
            None => format!("schema '{}'", refused.schema),
        };
        let rest = format!(
            "the kernel says: {}\n'klogger check --load {}' shows the line; with --verifier-log \
             FILE all that the kernel says",
            refused.verdict, refused.file
        );
        let help = match refused.rule {
            Some(rule) => format!("{}\n{rest}", rule.remedy),
            None => rest,
        };
        Error::new(format!("{own}: the kernel refuses {place}: {}", refused.why())).help(help)
    }
}

/// The number of the probe whose program was refused.
fn program(log: &str) -> Option<usize> {
    let at = log.find("prog 'klogger_")?;
    log[at + "prog 'klogger_".len()..].split('_').next()?.parse().ok()
}

/// How libbpf begins what it says of a member that the kernel does not have.
const UNRESOLVED: &str = "failed to resolve CO-RE relocation ";

/// `failed to resolve CO-RE relocation <byte_off> [7] struct task_struct.gone (0:3 @ offset 8)`
fn lacking(verdict: &str) -> Option<String> {
    let (_, path) = verdict.strip_prefix(UNRESOLVED)?.split_once("] ")?;
    let path = path.split(" (").next().unwrap_or(path);
    Some(match path.split_once('.') {
        Some((owner, member)) => format!("this kernel's {} has no member '{member}'", real(owner)),
        None => format!("this kernel has no {}", real(path)),
    })
}

/// The name without what CO-RE ignores, from `___` on.
fn real(name: &str) -> &str {
    name.split("___").next().unwrap_or(name)
}

/// The verifier's reason: the last line before its statistics.
fn verdict(log: &str) -> Option<&str> {
    let end = log.rfind("\nprocessed ")?;
    let line = log[..end].lines().next_back()?.trim();
    (!line.is_empty()).then_some(line)
}

/// The last line of the schema that the verifier names. Kernels before 6.10 name none.
fn line(log: &str, file: &str) -> Option<u32> {
    let own = format!(" @ {}:", file.rsplit('/').next().unwrap_or(file));
    let end = log.rfind("\nprocessed ").unwrap_or(log.len());
    let at = log[..end].rfind(&own)? + own.len();
    log[at..].split_whitespace().next()?.parse().ok()
}

/// `FILE:LINE`, of the file that the line is from.
fn place_of(schema: &Schema, span: Span) -> String {
    let (file, line) = schema.place(span);
    format!("{file}:{line}")
}

/// A line of a text, without the white space around it.
fn span_of(text: &str, line: u32) -> Option<Span> {
    let before: usize =
        text.split_inclusive('\n').take(line.checked_sub(1)? as usize).map(str::len).sum();
    let whole = text[before..].lines().next()?;
    let start = before + whole.len() - whole.trim_start().len();
    Some(Span { start, end: start + whole.trim().len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::{Options, parse};

    const TEXT: &str = "schema v\nevent A { ulong n }\n\
                        probe tracepoint sched_switch(bool p) {\n    klogger(A, 1);\n}\n";

    fn refused(verdict: &str) -> Refused {
        let log = format!(
            "libbpf: prog 'klogger_0_0_sched_switch': BPF program load failed: -EACCES\n;  @ \
             v.klogger:3\n3: x\n;  @ v.klogger:4\n; if (!x) @ read.h:5\n7: (85) call \
             x\n{verdict}\nprocessed 7 insns (limit 1000000)\n-- END PROG LOAD LOG --\n"
        );
        let schema = parse("/a/v.klogger", TEXT, &Options::default()).unwrap().schema;
        Refused::new(&schema, log, "Permission denied")
    }

    #[test]
    fn the_line_and_the_rule() {
        let refused = refused("R1 invalid mem access 'scalar'");
        let found = refused.diagnostic();
        assert_eq!(&TEXT[found.span.start..found.span.end], "klogger(A, 1);");
        assert!(
            found.message.starts_with("the kernel refuses tracepoint sched_switch: it reads at")
        );
        assert_eq!(found.label, "R1 invalid mem access 'scalar'");
        let error = Error::from(Box::new(refused));
        assert!(error.message.starts_with("/a/v.klogger:4: the kernel refuses tracepoint "));
        assert!(
            error.help.unwrap().contains("\nthe kernel says: R1 invalid mem access 'scalar'\n")
        );
    }

    #[test]
    fn rules_that_have_words_in_common() {
        for (verdict, word) in [
            ("R2 unbounded memory access, use 'var &= const' or 'if (var < const)'", "size"),
            ("R1 unbounded memory access, make sure to bounds check any such access", "index"),
            ("R2 min value is negative, either use unsigned or 'var &= const'", "size"),
            ("R1 invalid mem access 'map_value_or_null'", "NULL"),
            ("BPF program is too large. Processed 1000001 insn", "ends"),
            ("program of this type cannot use helper bpf_override_return#58", "function"),
            ("combined stack size of 2 calls is 544. Too large", "stack"),
        ] {
            assert!(refused(verdict).why().contains(word), "{verdict}");
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let says = "failed to resolve CO-RE relocation <byte_off> [7] struct task_struct.gone \
                    (0:3 @ offset 8)";
        let refused = refused(says);
        let lacks = "this kernel's struct task_struct has no member 'gone'";
        assert_eq!(refused.lacks(), Some((0, lacks)));
        assert!(refused.diagnostic().message.ends_with(&format!("sched_switch: {lacks}")));
        let whole = "failed to resolve CO-RE relocation <type_id> [7] struct gone___new";
        assert_eq!(lacking(whole).as_deref(), Some("this kernel has no struct gone"));
        assert_eq!(lacking("R1 invalid mem access 'scalar'"), None);
    }

    #[test]
    fn a_rule_that_is_not_known_is_quoted() {
        let found = refused("R9 is odd").diagnostic();
        assert_eq!(found.message, "the kernel refuses tracepoint sched_switch: R9 is odd");
        let schema = parse("v.klogger", TEXT, &Options::default()).unwrap().schema;
        let error = Error::from(Box::new(Refused::new(&schema, String::new(), "No space left")));
        assert_eq!(error.message, "schema 'v': the kernel refuses a program: No space left");
    }
}
