// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The tracepoints that the headers of a source tree declare. The tree need not be configured, so
//! only the text is read. The compiler finds what is read wrongly, because generated C compares
//! each probe with the kernel's own declaration.

use klogger_codegen::kernel::{Tracepoint, Tracepoints};
use std::fs;
use std::path::Path;

const FOLDER: &str = "include/trace/events";
/// The beginnings of macros, and which of their arguments is the name.
const MACROS: [(&str, usize); 3] = [("TRACE_EVENT", 0), ("DECLARE_TRACE", 0), ("DEFINE_EVENT", 1)];

pub(super) fn of(tree: &Path) -> Tracepoints {
    let mut found = Tracepoints::new();
    for entry in fs::read_dir(tree.join(FOLDER)).into_iter().flatten().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let header = format!("trace/events/{}", entry.file_name().to_string_lossy());
        for (name, parameters) in declarations(&text) {
            found.entry(name).or_insert_with(|| Tracepoint { header: header.clone(), parameters });
        }
    }
    found
}

/// Name and parameters of each tracepoint that a header declares.
fn declarations(header: &str) -> Vec<(String, Vec<String>)> {
    let text = without_comments(header);
    let calls = MACROS
        .iter()
        .flat_map(|(word, name)| text.match_indices(word).map(move |(at, _)| (at, *name)));
    calls.filter_map(|(at, name)| declaration(&text[at..], name)).collect()
}

/// Of `MACRO...(ARGUMENTS)`.
fn declaration(text: &str, name: usize) -> Option<(String, Vec<String>)> {
    let (word, _) = text.split_once('(')?;
    if !word.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
        return None;
    }
    let arguments = arguments(&text[word.len() + 1..])?;
    let prototype = arguments.get(name + 1)?.strip_prefix("TP_PROTO(")?;
    let parameters = self::arguments(prototype)?;
    Some((arguments[name].clone(), parameters.into_iter().filter(|p| p != "void").collect()))
}

/// The arguments between commas, up to the closing parenthesis. White space becomes one blank.
fn arguments(text: &str) -> Option<Vec<String>> {
    let mut found = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            ')' if depth == 0 => return Some(found.iter().map(|a| one_line(a)).collect()),
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
        found.last_mut()?.push(c);
    }
    None
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        out += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_in_several_ways() {
        let text = "/* TRACE_EVENT(not_this, TP_PROTO(int a)) */\n\
            TRACE_EVENT(sched_switch,\n\tTP_PROTO(bool preempt, /* who */\n\t\t struct task_struct \
            *prev),\n\tTP_ARGS(preempt));\n\
            DEFINE_EVENT(sched_wakeup_template, sched_waking,\n\t     TP_PROTO(struct task_struct \
            *p),\n\t     TP_ARGS(p));\n\
            DECLARE_TRACE(pelt_cfs_tp,\n\tTP_PROTO(void),\n\tTP_ARGS());\n#define \
            TRACE_EVENT_FLAGS 1\nTRACE_EVENT(cut, TP_PROTO(";
        let found = declarations(text);
        let expected = [
            ("sched_switch", vec!["bool preempt", "struct task_struct *prev"]),
            ("pelt_cfs_tp", vec![]),
            ("sched_waking", vec!["struct task_struct *p"]),
        ];
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|(n, p)| (n.as_str(), p.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, expected);
    }
}
