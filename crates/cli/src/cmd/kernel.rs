// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger kernel`: integrates klogger into a kernel source tree.

use super::{Format, Outcome};
use crate::failure::Failure;
use crate::schema_file;
use klogger_schema::Options;
use klogger_schema::model::Schema;
use klogger_toolchain::integrate::{self, Change, Tree, What};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger kernel integrate ~/linux --dry-run   prints what would change
  klogger kernel integrate ~/linux             adds klogger, or updates it
  klogger kernel integrate ~/linux --remove    removes it
Then, in the tree:
  scripts/config --enable KLOGGER
  #include <klogger/sched.klogger.h>           events of .klogger.conf.sched
  klogger(SCHEDOUT, prev->pid, prev->prio);
and, in that kernel:
  klogger record -s .klogger.conf.sched --engine kernel -- make

See docs/kernel-tree.md.";

/// Add klogger to a kernel source tree
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Integrate(IntegrateArgs),
}

/// Add klogger to a kernel source tree, with the schemata at its top
///
/// Adds the directories kernel/klogger and include/klogger, CONFIG_KLOGGER, and one line to each of
/// three files. Schemata are the files .klogger.conf* and *.klogger at the top of the tree: each
/// has a header, which the kernel's build regenerates when the schema has changed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct IntegrateArgs {
    /// Top of the kernel source tree
    #[arg(value_name = "LINUX_DIR")]
    dir: PathBuf,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove klogger; klogger() calls stay
    #[arg(long)]
    remove: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let Command::Integrate(args) = args.command;
    let tree = Tree::open(&args.dir)?;
    let schemata = if args.remove { Vec::new() } else { schemata(&tree, &args.dir)? };
    let changes = if args.remove {
        tree.plan_removal()?
    } else {
        tree.plan(&integrate::files(&tree, &schemata)?)?
    };
    if !args.dry_run {
        tree.apply(&changes)?;
    }
    if args.format == Format::Json {
        say_json!(to_json(&args, &tree, &schemata, &changes));
        return Ok(ExitCode::SUCCESS);
    }
    changes.iter().for_each(|c| say!("  {}", line(c)));
    say!("{}", summary(&args, &tree, &schemata, &changes));
    Ok(ExitCode::SUCCESS)
}

/// Compiler messages will name the file by its path from the top of the tree.
fn schemata(tree: &Tree, dir: &Path) -> Result<Vec<Schema>, Failure> {
    let load = |name: String| {
        let mut schema = schema_file::load(&dir.join(&name), &Options::default())?;
        schema.file = name;
        Ok(schema)
    };
    let schemata =
        tree.schemata()?.into_iter().map(load).collect::<Result<Vec<Schema>, Failure>>()?;
    let faults = integrate::faults(tree, &schemata);
    for (index, found) in &faults {
        crate::schemata::show(&schemata[*index], found);
    }
    if faults.is_empty() { Ok(schemata) } else { Err(Failure::printed()) }
}

fn line(change: &Change) -> String {
    let path = &change.path;
    match change.what {
        What::Add => format!("add     {path}"),
        What::Change if change.lines > 0 => format!("change  {path}, {} line", change.lines),
        What::Change => format!("change  {path}"),
        What::Remove => format!("remove  {path}"),
    }
}

fn to_json(args: &IntegrateArgs, tree: &Tree, schemata: &[Schema], changes: &[Change]) -> Value {
    let change = |c: &Change| {
        let what = match c.what {
            What::Add => "add",
            What::Change => "change",
            What::Remove => "remove",
        };
        json!({ "what": what, "file": c.path, "lines": c.lines })
    };
    json!({
        "linux": tree.version,
        "dir": args.dir,
        "done": !args.dry_run,
        "changes": changes.iter().map(change).collect::<Vec<_>>(),
        "schemata": schemata.iter().map(|s| &s.name).collect::<Vec<_>>(),
    })
}

fn summary(args: &IntegrateArgs, tree: &Tree, schemata: &[Schema], changes: &[Change]) -> String {
    let place = format!("Linux {} in {}", tree.version, args.dir.display());
    let own = changes.iter().filter(|c| c.lines == 0).count();
    let lines: usize = changes.iter().map(|c| c.lines).sum();
    let would = if args.dry_run { "would change" } else { "changed" };
    if changes.is_empty() {
        return format!("{place}: nothing to do");
    }
    let counts =
        format!("{place}: {would} {own} of klogger's own files, and {lines} lines of others");
    if args.remove {
        return counts;
    }
    let names: Vec<_> =
        schemata.iter().map(|s| format!("{} ({} events)", s.name, s.events.len())).collect();
    match names.is_empty() {
        true => format!("{counts}\nno schema yet: write .klogger.conf.NAME at the top of the tree"),
        false => format!("{counts}\nschemata: {}", names.join(", ")),
    }
}
