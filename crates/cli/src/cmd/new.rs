// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger new`: a schema folder to start from.

use super::{Format, Outcome};
use crate::failure::Failure;
use klogger_os::files::folder_of;
use klogger_os::outputs::Folder;
use klogger_schema::{Options, parse};
use klogger_toolchain::bundled;
use serde_json::json;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger new mine
  klogger check ./mine
  klogger record -s ./mine -o mine.klog -- ./mine/workload
  klogger report mine.klog

A folder in ~/.config/klogger/schemata, or in one that $KLOGGER_SCHEMATA names, is
found by its name: klogger record -s mine.";

/// Write a schema folder to start from: a probe, an analysis, a workload, an expectation
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The schema's name, which is the folder's; with slashes, the folder's path
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Each file: its name, its text, its mode. `@NAME@` stands for the schema's name, `@EVENT@` for
/// that of its event.
const FILES: [(&str, &str, u32); 5] = [
    ("@NAME@.klogger", include_str!("new/schema.klogger"), 0o666),
    ("analyses/forks.sql", include_str!("new/forks.sql"), 0o666),
    ("expect/forks.expect", include_str!("new/forks.expect"), 0o666),
    ("workload", include_str!("new/workload"), 0o777),
    ("README.md", include_str!("new/README.md"), 0o666),
];

pub fn run(args: Args) -> Outcome {
    let folder = args.folder;
    let name = name_of(&folder)?;
    let written = make(&folder, &name)?;
    if args.format == Format::Json {
        say_json!(json!({ "name": name, "written": written }));
        return Ok(ExitCode::SUCCESS);
    }
    let path = match folder.components().count() {
        1 => format!("./{name}"),
        _ => folder.display().to_string(),
    };
    say!(
        "{path}: a schema with one probe. Next:\n\
         \x20 klogger check {path}\n\
         \x20 klogger record -s {path} -o {name}.klog -- {path}/workload\n\
         \x20 klogger report {name}.klog\n\
         Then edit {path}/{name}.klogger; {path}/README.md says what the files are."
    );
    Ok(ExitCode::SUCCESS)
}

/// The name of a schema that can be: the template with it must parse.
fn name_of(folder: &Path) -> Result<String, Failure> {
    let name = folder.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let refused = |why: &str| {
        Failure::new(format!("'{}' cannot be the name of a schema: {why}", folder.display()))
    };
    let is_word = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !is_word {
        return Err(refused("it is not a word of lower-case letters, digits and _")
            .help("for example: klogger new my_schema"));
    }
    if bundled::find(name).is_some() {
        return Err(refused("a bundled schema has it").help("choose another name"));
    }
    let text = filled(FILES[0].1, name);
    match parse("", &text, &Options::default()) {
        Ok(_) => Ok(name.into()),
        Err(_) => {
            Err(refused("it has another meaning in the language").help("choose another name"))
        }
    }
}

fn filled(text: &str, name: &str) -> String {
    let event = format!("{}_FORK", name.to_ascii_uppercase());
    text.replace("@EVENT@", &event).replace("@NAME@", name)
}

/// Makes the folder, which must not exist, and the files in it.
fn make(path: &Path, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let made = Folder::make(folder_of(path))
        .and_then(|parent| parent.make_folder(path.file_name().unwrap_or_default(), 0o777));
    let folder = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(format!("{} exists", path.display()))
            .help("choose another name, or remove it: nothing is overwritten"),
        kind => unwritable(path, kind, &error),
    })?;
    let mut written = Vec::new();
    for (file, text, mode) in FILES {
        let file = filled(file, name);
        let path = path.join(&file);
        write(&folder, Path::new(&file), &filled(text, name), mode)
            .map_err(|error| unwritable(&path, error.kind(), &error))?;
        written.push(path);
    }
    Ok(written)
}

/// Makes a file, in a folder of its own if its path has one.
fn write(folder: &Folder, path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let inner = path.parent().filter(|inner| !inner.as_os_str().is_empty());
    let mut file = match inner {
        Some(inner) => folder.make_folder(inner.as_os_str(), 0o777)?.create(name, mode)?,
        None => folder.create(name, mode)?,
    };
    file.write_all(text.as_bytes())
}

fn unwritable(path: &Path, kind: ErrorKind, error: &std::io::Error) -> Failure {
    let failure = match kind {
        ErrorKind::PermissionDenied => {
            Failure::new(format!("cannot write {}: permission denied", path.display()))
        }
        _ => Failure::new(format!("cannot write {}: {error}", path.display())),
    };
    failure.help("name a folder that you can write to")
}
