// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the tracepoints that a kernel's headers declare. The compiler's preprocessor expands the
//! headers' macros with the kernel's own flags, because no other tool would treat `#ifdef
//! CONFIG_...`, and macros that declare tracepoints by macros, as the kernel does. [`question`]
//! makes its input, and [`find`] reads its output.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A tracepoint of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// As in an `#include`: `trace/events/sched.h`.
    pub header: String,
    /// As written, with names: `struct task_struct *prev`.
    pub parameters: Vec<String>,
}

/// By name.
pub type Tracepoints = BTreeMap<String, Tracepoint>;

const MARK: &str = "klogger_header ";
const DECLARED: &str = "check_trace_callback_type_";

/// C that includes these headers.
pub fn question(headers: &[String]) -> String {
    let mut text = String::from("// SPDX-License-Identifier: GPL-2.0-only\n");
    for header in headers {
        let _ = write!(text, "{MARK}\"{header}\"\n#include <{header}>\n");
    }
    text
}

/// All tracepoints in the preprocessor's output for [`question`].
pub fn find(preprocessed: &str) -> Tracepoints {
    let mut found = Tracepoints::new();
    let mut header = "";
    for line in preprocessed.lines() {
        if let Some(rest) = line.strip_prefix(MARK) {
            header = rest.trim().trim_matches('"');
        }
        for (at, _) in line.match_indices(DECLARED) {
            if let Some((name, parameters)) = declaration(&line[at + DECLARED.len()..]) {
                found.insert(name, Tracepoint { header: header.into(), parameters });
            }
        }
    }
    found
}

/// `NAME(void (*cb)(void *__data, PARAMETERS))`, the type of callback that the kernel checks.
fn declaration(text: &str) -> Option<(String, Vec<String>)> {
    let (name, rest) = text.split_once('(')?;
    let callback = rest.split_once(")(")?.1;
    let callback = &callback[..closing(callback)?];
    let parameters = split(callback).into_iter().skip(1).filter(|p| p != "void").collect();
    Some((name.trim().to_string(), parameters))
}

/// Where the parenthesis ends that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Splits at commas outside of all parentheses; with single spaces.
fn split(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in list.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if depth > 0 || c != ',' => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.iter().map(|p| p.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The name in a parameter's declaration: `x` in `int x`, `char *x[4]` and `void (*x)(int)`.
pub(super) fn name_of(parameter: &str) -> &str {
    let (before, after) = span_of_name(parameter);
    &parameter[before..after]
}

/// A declaration without its name, as types are shown.
pub(super) fn type_of(parameter: &str) -> String {
    let (before, after) = span_of_name(parameter);
    format!("{}{}", &parameter[..before], &parameter[after..]).trim().to_string()
}

fn span_of_name(parameter: &str) -> (usize, usize) {
    let pointer = parameter.find("(*").and_then(|at| parameter[at..].find(')').map(|end| at + end));
    let end = pointer.or_else(|| parameter.find('[')).unwrap_or(parameter.len());
    let end = parameter[..end].trim_end().len();
    let begin = parameter[..end]
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .map_or(0, |at| at + 1);
    (begin, end)
}

impl Tracepoint {
    /// `tracepoint NAME(TYPE, TYPE)`, for messages, as `Target::prototype` has it.
    pub fn spell(&self, name: &str) -> String {
        let types: Vec<String> = self.parameters.iter().map(|p| type_of(p)).collect();
        format!("tracepoint {name}({})", types.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prototypes_are_found_with_their_headers() {
        let text = "klogger_header \"trace/events/sched.h\"\n# 1 \"x\"\n\
            static inline void check_trace_callback_type_sched_switch(void (*cb)(void *__data, \
            bool preempt, struct \
            task_struct  *prev)) { } static inline void check_trace_callback_type_nothing(void \
            (*cb)(void *__data)) { }\n\
            klogger_header \"asm/trace/x.h\"\n\
            void check_trace_callback_type_odd(void (*cb)(void *__data, void (*fn)(int, long), \
            char *names[4])) { }\n";
        let found = find(text);
        assert_eq!(found["sched_switch"].header, "trace/events/sched.h");
        assert_eq!(found["sched_switch"].parameters, ["bool preempt", "struct task_struct *prev"]);
        assert!(found["nothing"].parameters.is_empty());
        assert_eq!(found["odd"].header, "asm/trace/x.h");
        assert_eq!(found["odd"].spell("odd"), "tracepoint odd(void (*)(int, long), char *[4])");
        let names: Vec<&str> = found["odd"].parameters.iter().map(|p| name_of(p)).collect();
        assert_eq!(names, ["fn", "names"]);
    }

    #[test]
    fn broken_declarations_are_left_out() {
        assert!(find("check_trace_callback_type_x(void (*cb)(void *__data, int a\n").is_empty());
        assert!(find("check_trace_callback_type_").is_empty());
    }
}
