// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger tracepoints`: the tracepoints of this kernel, and its other trace events, as a schema
//! would declare them; or the functions and static probes of a program.

use super::{Format, Outcome};
use crate::failure::Failure;
use klogger_codegen::bpf::attach_points::{self, AttachPoint};
use klogger_programs::{InFile, Programs, is_program};
use klogger_schema::model::Param;
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::host_kernel;
use serde_json::{Value, json};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger tracepoints                    all tracepoints of this kernel
  klogger tracepoints block              with 'block' in name or group
  klogger tracepoints --exact sched_switch
  klogger tracepoints sys_enter_open     of system calls, which are trace events
  klogger tracepoints /usr/bin/bash      functions and static probes of a program
  klogger tracepoints libc | grep alloc
  klogger tracepoints block_rq --format json";

/// List the tracepoints of this kernel, with their parameters
///
/// 'klogger record -e NAME' records what is listed here. Names and types are from the kernel's type
/// information (BTF); groups, and the events of system calls, are from tracefs, which only root can
/// read. Parameters whose names the kernel does not have are called arg0, arg1, ...
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only tracepoints with this word in their name or group; or the path of a program, or the
    /// name of a library, whose functions and static probes are listed
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Only the tracepoint with exactly this name
    #[arg(long, requires = "word")]
    exact: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

struct Found {
    point: AttachPoint,
    group: Option<String>,
    parameters: Vec<Param>,
}

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

pub fn run(args: Args) -> Outcome {
    let types = host_kernel::types()?;
    let groups = host_kernel::groups();
    let points = attach_points::list(&types);
    let word = args.word.as_deref().unwrap_or("");
    let names: Vec<String> = points.iter().map(|p| p.name.clone()).collect();
    let wanted = |name: &str| match args.exact {
        true => name == word,
        false => name.contains(word) || groups.get(name).is_some_and(|g| g.contains(word)),
    };
    let mut found = Vec::new();
    for point in points.into_iter().filter(|p| wanted(&p.name)) {
        let parameters = point.parameters(&types).map_err(|e| Failure::new(e.to_string()))?;
        found.push(Found { group: groups.get(&point.name).cloned(), point, parameters });
    }
    if found.is_empty() && is_program(word) {
        return list_program(word, args.format);
    }
    if found.is_empty() {
        let help = did_you_mean(word, names.iter().map(String::as_str));
        let failure = Failure::new(format!("this kernel has no tracepoint '{word}'"));
        return Err(failure.help(help.unwrap_or_else(|| "'klogger tracepoints' lists all".into())));
    }
    match args.format {
        Format::Text => found.iter().for_each(|f| println!("{}", text(f))),
        Format::Json => println!("{:#}", found.iter().map(to_json).collect::<Value>()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions and static probes of a program.
fn list_program(program: &str, format: Format) -> Outcome {
    let found = klogger_programs::list(&Programs::default(), program)?;
    match format {
        Format::Text => found.iter().for_each(|place| println!("{}", place_text(place))),
        Format::Json => println!("{:#}", found.iter().map(place_json).collect::<Value>()),
    }
    Ok(ExitCode::SUCCESS)
}

fn place_text(place: &InFile) -> String {
    let line = format!("{} {}", place.kind.word(), place.name);
    match (place.arguments, &place.written) {
        (Some(1), _) => format!("{line}  1 argument"),
        (Some(n), _) => format!("{line}  {n} arguments"),
        (None, Some(written)) => format!("{line}  {written}"),
        (None, None) => line,
    }
}

fn place_json(place: &InFile) -> Value {
    json!({
        "kind": place.kind.word(),
        "name": place.name,
        "group": null,
        "parameters": [],
        "written": place.written,
        "arguments": place.arguments,
    })
}

fn text(found: &Found) -> String {
    let parameters: Vec<String> = found.parameters.iter().map(Param::declare).collect();
    let group = found.group.as_ref().map(|g| format!("{g}:")).unwrap_or_default();
    format!("{group}{}({})", found.point.name, parameters.join(", "))
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
