// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger gen`

use super::Outcome;
use crate::failure::Failure;
use crate::schemata;
use klogger_codegen::{BUILTIN_SCHEMA, NamedText, kernel, user};
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger gen my.klogger -o .            writes my.klogger.h, for C and C++
  klogger gen my.klogger | less          prints it
Then, in the program:
  #include \"my.klogger.h\"
  klogger(REQUEST, id, length);
and:
  klogger record -s ./my.klogger -- ./prog

For kernel code (docs/kernel-engine.md):
  klogger gen --engine kernel my.klogger -o .

Rust programs generate their code in build.rs (docs/user-engine.md).";

/// Generate the header with which a program or kernel code logs events of a schema
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Schema files, or names of bundled schemata
    #[arg(required = true, value_name = "SCHEMA")]
    schemas: Vec<String>,
    /// Engine to generate it for
    #[arg(long, value_enum, default_value_t = Engine::User)]
    engine: Engine,
    /// For code in a kernel tree: CONFIG_KLOGGER decides whether calls are compiled
    #[arg(long)]
    in_tree: bool,
    /// Directory for NAME.klogger.h; created if it does not exist [default: standard output]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    User,
    Kernel,
}

pub fn run(args: Args) -> Outcome {
    if args.in_tree && args.engine != Engine::Kernel {
        return Err(Failure::new("--in-tree is for kernel code").help("add --engine kernel"));
    }
    let headers: Result<Vec<_>, Failure> =
        args.schemas.iter().map(|word| header(word, &args)).collect();
    for header in headers? {
        match &args.output {
            Some(dir) => write(dir, &header)?,
            None => print!("{}", header.text),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn header(word: &str, args: &Args) -> Result<NamedText, Failure> {
    let schema = schemata::schema(word)?;
    match args.engine {
        Engine::Kernel => Ok(kernel::header(&schema, args.in_tree)),
        Engine::User => {
            user::header(&schema, &builtin()?).map_err(|e| Failure::new(e.message).help(e.help))
        }
    }
}

fn builtin() -> Result<Schema, Failure> {
    let parsed =
        parse("klogger.klogger", BUILTIN_SCHEMA, &Options { builtin: true, ..Options::default() });
    parsed.map(|p| p.schema).map_err(|_| Failure::new("klogger's own schema is damaged"))
}

/// Does not touch a header that is unchanged, so that nothing is compiled again because of it.
fn write(dir: &Path, header: &NamedText) -> Result<(), Failure> {
    let path = dir.join(&header.name);
    if std::fs::read_to_string(&path).is_ok_and(|old| old == header.text) {
        return Ok(());
    }
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, &header.text));
    written.map_err(|e| {
        Failure::new(format!("cannot write {}: {e}", path.display()))
            .help("choose another folder with -o DIR")
    })
}
