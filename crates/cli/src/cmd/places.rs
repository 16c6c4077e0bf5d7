// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger places`: the attach points of this kernel, of every kind, as a schema would declare
//! them. `klogger tracepoints` lists those that are tracepoints or trace events.

use super::{Format, Outcome};
use crate::failure::Failure;
use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::attach_points::{self, AttachPoint};
use klogger_log::text::escaped;
use klogger_programs::{Hit, InFile, Programs, is_program};
use klogger_schema::model::{Param, ProbeKind};
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::host_kernel;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger places                         all but functions, of which there are many
  klogger places vfs_read                with 'vfs_read' in name or group
  klogger places --kind function tcp_
  klogger places --kind function,tracepoint --exact do_exit
  klogger places /usr/bin/bash           functions and static probes of a program
  klogger places libc | grep alloc
  klogger places block_rq --format json";

/// List the places of this kernel where a probe can be attached: tracepoints, functions, and others
///
/// A line is what a schema declares after the word 'probe', except that tracepoints are shown with
/// their group. At the return of a function, a probe gets its result and then these parameters:
/// 'probe return NAME(...)'. Names and types are from the kernel's type information (BTF); groups,
/// and the events of system calls, are from tracefs, which only root can read.
///
/// Of a program's places it is said what the kernel does with the instruction at a hit, on which
/// the costs depend: 'emulated' (measured: 280 ns), 'optimised' (140 ns: a call has taken the place
/// of a no-op), or 'single-stepped' (820 ns on one CPU, and more the more CPUs hit it at once: 17
/// us on 32).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only places with this word in their name or group; or the path of a program, or the name of
    /// a library, whose functions and static probes are listed
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Only the place with exactly this name
    #[arg(long, requires = "word")]
    exact: bool,
    /// Only these kinds of places: tracepoint, trace_event, function ...
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<ProbeKind>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

/// What is listed.
pub struct Wanted<'a> {
    pub kinds: &'a [ProbeKind],
    pub word: &'a str,
    pub exact: bool,
    /// What one of them is called.
    pub noun: &'a str,
    /// The command that lists all.
    pub all: &'a str,
}

struct Found {
    point: AttachPoint,
    group: Option<String>,
    parameters: Vec<Param>,
}

/// Those of which a kernel can list the places. The returns of functions are at the same places as
/// their entries.
fn listed() -> impl Iterator<Item = ProbeKind> {
    let twice =
        |kind: &ProbeKind| kind.word().starts_with("return") || matches!(kind, ProbeKind::End);
    let attached = |kind: &ProbeKind| attach_points::of(*kind).is_some();
    ProbeKind::ALL.into_iter().filter(move |kind| attached(kind) && !twice(kind))
}

fn kind(word: &str) -> Result<ProbeKind, String> {
    let known: Vec<&str> = listed().map(ProbeKind::word).collect();
    let found = listed().find(|kind| kind.word() == word);
    found.ok_or_else(|| format!("the kinds are {}", known.join(", ")))
}

pub fn run(args: Args) -> Outcome {
    let few = |kind: &ProbeKind| *kind != ProbeKind::Function;
    let kinds: Vec<ProbeKind> = match (&args.word, args.kinds.is_empty()) {
        (_, false) => args.kinds,
        (Some(_), true) => listed().collect(),
        (None, true) => listed().filter(few).collect(),
    };
    let word = args.word.as_deref().unwrap_or("");
    let noun = match kinds[..] {
        [one] => one.noun(),
        _ => "place",
    };
    let all = "'klogger places' lists places";
    print(&Wanted { kinds: &kinds, word, exact: args.exact, noun, all }, args.format)
}

/// Lists what is wanted of this kernel.
pub fn print(wanted: &Wanted, format: Format) -> Outcome {
    let types = host_kernel::types()?;
    let groups = host_kernel::groups();
    let points: Vec<AttachPoint> =
        wanted.kinds.iter().flat_map(|kind| attach_points::list(*kind, &types)).collect();
    let names: Vec<String> = points.iter().map(|p| p.name.clone()).collect();
    let found = find(wanted, points, &groups, &types)?;
    if found.is_empty() && is_program(wanted.word) {
        return list_program(wanted.word, format);
    }
    if found.is_empty() {
        let help = did_you_mean(wanted.word, names.iter().map(String::as_str));
        let failure = Failure::new(format!("this kernel has no {} '{}'", wanted.noun, wanted.word));
        return Err(failure.help(help.unwrap_or_else(|| wanted.all.into())));
    }
    match format {
        Format::Text => found.iter().for_each(|f| say!("{}", text(f))),
        Format::Json => say_json!(found.iter().map(to_json).collect::<Value>()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions and static probes of a program.
fn list_program(program: &str, format: Format) -> Outcome {
    let found = klogger_programs::list(&Programs::default(), program)?;
    match format {
        Format::Text => found.iter().for_each(|place| say!("{}", place_text(place))),
        Format::Json => say_json!(found.iter().map(place_json).collect::<Value>()),
    }
    Ok(ExitCode::SUCCESS)
}

/// A program's symbols may be anything, and must not act on the terminal.
fn place_text(place: &InFile) -> String {
    let line = format!("{} {}", place.kind.word(), place.name);
    let line = match (place.arguments, &place.written) {
        (Some(1), _) => format!("{line}  1 argument"),
        (Some(n), _) => format!("{line}  {n} arguments"),
        (None, Some(written)) => format!("{line}  {written}"),
        (None, None) => line,
    };
    escaped(&match place.hit {
        Some(hit) => format!("{line}  {}", hit.word()),
        None => line,
    })
}

fn place_json(place: &InFile) -> Value {
    json!({
        "kind": place.kind.word(),
        "name": place.name,
        "group": null,
        "parameters": [],
        "written": place.written,
        "arguments": place.arguments,
        "hit": place.hit.map(Hit::word),
    })
}

fn find(
    wanted: &Wanted,
    points: Vec<AttachPoint>,
    groups: &BTreeMap<String, String>,
    types: &KernelTypes,
) -> Result<Vec<Found>, Failure> {
    let group_of = |point: &AttachPoint| match point.kind() {
        ProbeKind::Tracepoint => groups.get(&point.name).cloned(),
        _ => None,
    };
    let word = wanted.word;
    let is_wanted = |point: &AttachPoint| match wanted.exact {
        true => point.name == word,
        false => point.name.contains(word) || group_of(point).is_some_and(|g| g.contains(word)),
    };
    let mut found = Vec::new();
    for point in points.into_iter().filter(is_wanted) {
        let parameters = point.parameters(types).map_err(|e| Failure::new(e.to_string()))?;
        found.push(Found { group: group_of(&point), point, parameters });
    }
    Ok(found)
}

fn text(found: &Found) -> String {
    let parameters: Vec<String> = found.parameters.iter().map(Param::declare).collect();
    let (kind, group) = (found.point.kind(), &found.group);
    let before = match kind {
        ProbeKind::Tracepoint | ProbeKind::TraceEvent => {
            group.as_ref().map(|g| format!("{g}:")).unwrap_or_default()
        }
        _ => format!("{} ", kind.word()),
    };
    format!("{before}{}({})", found.point.name, parameters.join(", "))
}

fn to_json(found: &Found) -> Value {
    let parameters: Vec<Value> =
        found.parameters.iter().map(|p| json!({ "type": p.ty, "name": p.name })).collect();
    json!({
        "kind": found.point.kind().word(),
        "name": found.point.name,
        "group": found.group,
        "parameters": parameters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_does_not_act_on_the_terminal() {
        let name = "/bin/x:evil\x1b]0;owned\x07\u{9b}31m\u{202e}".to_string();
        let written = Some("a\nb\x1b[2J".to_string());
        let (arguments, hit) = (None, None);
        let place = InFile { kind: ProbeKind::User, name, written, arguments, hit };
        assert_eq!(
            place_text(&place),
            "user /bin/x:evil\\x1b]0;owned\\x07\\xc2\\x9b31m\\xe2\\x80\\xae  a\\x0ab\\x1b[2J"
        );
    }
}
