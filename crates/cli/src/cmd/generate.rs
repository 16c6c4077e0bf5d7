// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger gen`

use super::Outcome;
use crate::engines;
use crate::failure::Failure;
use crate::schemata;
use klogger_codegen::NamedText;
use klogger_codegen::made::Header;
use klogger_engines::engine::EngineInfo;
use klogger_engines::user;
use klogger_os::outputs::{Folder, Old};
use std::ffi::OsStr;
use std::io::Read;
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
    /// Names, files or folders of schemata
    #[arg(required = true, value_name = "SCHEMA")]
    schemas: Vec<String>,
    /// Engine to generate it for
    #[arg(
        long,
        default_value = user::INFO.name,
        value_parser = engines::those_that(|e| e.maker.header.is_some())
    )]
    engine: &'static EngineInfo,
    /// For code in a kernel tree: CONFIG_KLOGGER decides whether calls are compiled
    #[arg(long)]
    in_tree: bool,
    /// Directory for NAME.klogger.h; created if it does not exist [default: standard output]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub fn run(args: Args) -> Outcome {
    let make = maker(&args)?;
    let headers: Result<Vec<_>, Failure> =
        args.schemas.iter().map(|word| Ok(make(&schemata::schema(word)?)?)).collect();
    for header in headers? {
        match &args.output {
            Some(dir) => write(dir, &header)?,
            None => say_part!("{}", header.text),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn maker(args: &Args) -> Result<Header, Failure> {
    let maker = args.engine.maker;
    if args.in_tree {
        let others = engines::names(|e| e.maker.in_tree_header.is_some());
        return maker.in_tree_header.ok_or_else(|| {
            Failure::new("--in-tree is for kernel code")
                .help(format!("add --engine {}", others.join(" or ")))
        });
    }
    let name = args.engine.name;
    maker.header.ok_or_else(|| Failure::new(format!("the {name} engine has no header for code")))
}

/// Does not touch a header that is unchanged, so that nothing is compiled again because of it.
fn write(dir: &Path, header: &NamedText) -> Result<(), Failure> {
    let path = dir.join(&header.name);
    let (name, text) = (header.name.as_ref(), header.text.as_bytes());
    let write = |dir: Folder| match has(&dir, name, text) {
        true => Ok(()),
        false => dir.write(name, 0o666, Old::Replace, text),
    };
    Folder::make(dir).and_then(write).map_err(|e| {
        let why = match dir.is_dir() {
            false if dir.exists() => format!("{} is not a directory", dir.display()),
            _ => e.to_string(),
        };
        Failure::new(format!("cannot write {}: {why}", path.display()))
            .help("choose another directory with -o DIR")
    })
}

/// Whether a file of the folder has exactly this text. No more than that is read of it.
fn has(folder: &Folder, name: &OsStr, text: &[u8]) -> bool {
    let mut old = Vec::new();
    let read =
        folder.read(name).and_then(|file| file.take(text.len() as u64 + 1).read_to_end(&mut old));
    read.is_ok() && old == text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_file_of_that_text_is_left_alone() {
        let all = tempfile::tempdir().unwrap();
        let folder = Folder::open(all.path()).unwrap();
        let has = |name: &str| has(&folder, name.as_ref(), b"text");
        for (name, text) in [("same", "text"), ("more", "text and more"), ("less", "tex")] {
            fs::write(all.path().join(name), text).unwrap();
        }
        symlink("/dev/zero", all.path().join("zero")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(all.path().join("pipe")).status();
        assert!(made.unwrap().success());
        assert!(has("same"));
        assert!(["more", "less", "zero", "pipe", "none"].iter().all(|name| !has(name)));
    }
}
