// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! For build scripts: constants of C headers in Rust, computed by the C compiler.
//!
//! A template is Rust in which `c!(EXPRESSION)` is replaced by the value of a C expression, which
//! may contain `offsetof` and `sizeof`:
//!
//! ```text
//! pub const HEAD: usize = c!(offsetof(struct klogger_ring, head));
//! ```
//!
//! The values are read from assembly, as the kernel's build does for asm-offsets.h. Nothing is run,
//! so a cross build gets the values of the target architecture.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const MARK: &str = "c!(";
/// The text before a value in the assembly.
const ARROW: &str = "klogger-value ";

/// The headers, and how they are compiled.
pub struct Headers<'a> {
    /// As in `#include <HEADER>`.
    pub headers: &'a [&'a str],
    /// Folders of headers, from the folder of the build script's crate.
    pub folders: &'a [&'a str],
    /// Macros that the headers need.
    pub defines: &'a [(&'a str, &'a str)],
}

impl Headers<'_> {
    /// Writes `layout.rs` to cargo's `OUT_DIR`: the template, with the values of its expressions.
    ///
    /// # Panics
    ///
    /// If the template or a header cannot be read or compiled, because the build cannot continue.
    pub fn fill(&self, template: &str) {
        println!("cargo:rerun-if-changed={template}");
        self.folders.iter().for_each(|folder| println!("cargo:rerun-if-changed={folder}"));
        let text = fs::read_to_string(template).unwrap_or_else(|e| panic!("{template}: {e}"));
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let parts = split(&text).unwrap_or_else(|line| panic!("{template}:{line}: c!( without )"));
        let expressions: Vec<&str> = parts.iter().map(|(_, expression)| *expression).collect();
        let values = self.values(&expressions[..expressions.len() - 1], &out);
        fs::write(out.join("layout.rs"), join(&parts, &values)).expect("OUT_DIR can be written to");
    }

    fn values(&self, expressions: &[&str], out: &Path) -> Vec<String> {
        let (source, assembly) = (out.join("layout.c"), out.join("layout.s"));
        fs::write(&source, self.source(expressions)).expect("OUT_DIR can be written to");
        let mut build = cc::Build::new();
        self.folders.iter().for_each(|folder| {
            build.include(folder);
        });
        self.defines.iter().for_each(|(name, value)| {
            build.define(name, *value);
        });
        let mut compiler = build.cargo_metadata(false).opt_level(1).get_compiler().to_command();
        compiler.args(["-S", "-g0", "-fno-lto", "-o"]).arg(&assembly).arg(&source);
        let status = compiler.status().unwrap_or_else(|e| panic!("cannot run {compiler:?}: {e}"));
        assert!(status.success(), "{compiler:?} failed on {}", source.display());
        let text = fs::read_to_string(&assembly).expect("the compiler has written it");
        let values = read(&text);
        assert_eq!(values.len(), expressions.len(), "{} is not understood", assembly.display());
        values
    }

    fn source(&self, expressions: &[&str]) -> String {
        let mut c = String::from("#include <stddef.h>\n");
        self.headers.iter().for_each(|header| c += &format!("#include <{header}>\n"));
        c += "void klogger_values(void);\nvoid klogger_values(void)\n{\n";
        for expression in expressions {
            let value = format!("\"i\"((unsigned long long)({expression}))");
            let line = format!(".ascii \\\"{ARROW}%0\\\"");
            c += &format!("\t__asm__ volatile(\"\\n{line}\\n\" : : {value});\n");
        }
        c + "}\n"
    }
}

/// Pieces of the template, each with the expression that follows it; the last one has none. Or the
/// line of an expression that does not end.
fn split(mut text: &str) -> Result<Vec<(&str, &str)>, usize> {
    let all = text;
    let mut parts = Vec::new();
    while let Some((before, after)) = text.split_once(MARK) {
        let Some(end) = closing(after) else {
            return Err(all[..all.len() - after.len()].lines().count());
        };
        parts.push((before, &after[..end]));
        text = &after[end + 1..];
    }
    parts.push((text, ""));
    Ok(parts)
}

/// Where the parenthesis ends that is open at the beginning.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    text.char_indices().find_map(|(at, c)| {
        open += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        (open == 0).then_some(at)
    })
}

fn join(parts: &[(&str, &str)], values: &[String]) -> String {
    let values = values.iter().map(String::as_str).chain([""]);
    parts.iter().zip(values).map(|((text, _), value)| format!("{text}{value}")).collect()
}

/// The values in the order of their lines: the assembler statements are volatile, so the compiler
/// neither drops nor moves one. An immediate has `$` or `#` before it, by architecture; one of 64
/// bits may be printed as negative.
fn read(assembly: &str) -> Vec<String> {
    let values = assembly.lines().filter_map(|line| line.split_once(ARROW));
    values.filter_map(|(_, value)| unsigned(value)).map(|n| n.to_string()).collect()
}

fn unsigned(value: &str) -> Option<u64> {
    let value = value.trim_start_matches(['$', '#']).trim_end_matches('"');
    value.parse().ok().or_else(|| value.parse::<i64>().ok().map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_end_where_their_parentheses_do() {
        let parts = split("a = c!(f(x, (y)));\nb = c!(2);\n").unwrap();
        assert_eq!(parts, [("a = ", "f(x, (y))"), (";\nb = ", "2"), (";\n", "")]);
        assert_eq!(join(&parts, &["7".into(), "8".into()]), "a = 7;\nb = 8;\n");
    }

    #[test]
    fn one_without_an_end_is_an_error_with_its_line() {
        assert_eq!(split("a\nb = c!((1);\n"), Err(2));
    }

    #[test]
    fn values_are_read_from_assembly() {
        let text = "\tnop\n.ascii \"klogger-value $4096\"\n.ascii \"klogger-value #-1\"\n";
        assert_eq!(read(text), ["4096", "18446744073709551615"]);
    }
}
