// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger doctor`: what works on this machine, and what would make the rest work. It asks the
//! same code that a recording asks, so that its answers are those of a recording.

mod finding;
mod kernel;
mod machine;
mod process;
mod programs;

use super::{Format, Outcome};
use crate::terminal;
use crate::text::layout::paragraph;
use finding::{Finding, State};
use klogger_os::uname;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Say what works on this machine, and what would make the rest work
///
/// Loads the programs of one schema, attaches none, and writes nothing. The exit code is 1 if
/// events of the kernel cannot be recorded.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo klogger doctor                  all that is looked at
  sudo klogger doctor --missing        only what does not work, and the remedy
  sudo klogger doctor --format json    for a script: .records is true or false")]
pub struct Args {
    /// Print only what does not work, or not as well as it could
    #[arg(long)]
    missing: bool,
    /// json: an object; 'records' says whether events of the kernel can be recorded
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// What belongs together.
struct Group {
    title: &'static str,
    findings: Vec<Finding>,
}

pub fn run(args: Args) -> Outcome {
    let groups = look();
    let records = groups.iter().flat_map(|group| &group.findings).all(|found| found.records());
    match args.format {
        Format::Json => say_json!(described(&groups, records)),
        Format::Text => say_part!("{}", text(&groups, args.missing, records)),
    }
    Ok(if records { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn look() -> Vec<Group> {
    let group = |title, findings| Group { title, findings };
    vec![
        group("This process", process::look()),
        group("Kernel", kernel::look()),
        group("Machine", machine::look()),
        group("Programs", programs::look()),
    ]
}

fn described(groups: &[Group], records: bool) -> Value {
    let of_group = |group: &Group| -> Vec<Value> {
        group.findings.iter().map(|found| found.json(group.title)).collect()
    };
    let checks: Vec<Value> = groups.iter().flat_map(of_group).collect();
    let (release, _, architecture, _) = uname();
    json!({
        "klogger": env!("CARGO_PKG_VERSION"),
        "kernel": release,
        "architecture": architecture,
        "records": records,
        "checks": checks,
    })
}

/// Columns before what was found.
const INDENT: usize = 32;

fn text(groups: &[Group], missing: bool, records: bool) -> String {
    let width = terminal::columns(std::io::stdout()).unwrap_or(80);
    let mut out = String::new();
    for group in groups {
        let shown = |found: &&Finding| !missing || found.state != State::Ok;
        let findings: Vec<&Finding> = group.findings.iter().filter(shown).collect();
        if !findings.is_empty() {
            let _ = writeln!(out, "{}", group.title);
        }
        for found in findings {
            found.print(&mut out, INDENT, width);
        }
    }
    let all = groups.iter().flat_map(|group| &group.findings);
    let lacking = all.filter(|found| found.state != State::Ok).count();
    let verdict = match (records, lacking) {
        (true, 0) => "Events of the kernel and of programs can be recorded.".into(),
        (true, _) => format!(
            "Events of the kernel can be recorded; {lacking} of the checks say \
                              what does not work, or could work better."
        ),
        (false, _) => "Events of the kernel cannot be recorded here: see what is 'missing'.".into(),
    };
    if !out.is_empty() {
        out.push('\n');
    }
    paragraph(&mut out, "", &verdict, 0, width);
    out
}
