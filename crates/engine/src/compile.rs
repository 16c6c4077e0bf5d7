// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From a schema to a BPF object by way of clang. Bundled schemata were compiled when klogger was built; this is for the
//! user's own.

use crate::error::Error;
use klogger_codegen::{KernelTypes, NamedText, RUNTIME, bpf};
use klogger_schema::model::Schema;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Best first. Others that call themselves `clang` may do as well.
const COMPILERS: &[&str] = &["clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/// What the compiler says of a schema's C.
#[derive(Debug)]
pub enum CompileError {
    /// It could not be run, or there is none.
    Failed(Error),
    /// The C in the schema is wrong.
    Rejected(Vec<Complaint>),
}

impl From<Error> for CompileError {
    fn from(e: Error) -> CompileError {
        CompileError::Failed(e)
    }
}

/// One message of the compiler. Lines and columns count from 1 and are the schema's own, if `file` is the schema's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub warning: bool,
    pub message: String,
}

/// Compiles the probes of a schema.
pub fn compile(schema: &Schema, types: &KernelTypes) -> Result<(Vec<u8>, Vec<Complaint>), CompileError> {
    let texts = bpf::source(schema, types).map_err(|e| Error::new(e))?;
    let folder = tempfile::Builder::new().prefix("klogger-").tempdir();
    let folder = folder.map_err(|e| Error::new(format!("cannot make a temporary folder: {e}")))?;
    write_texts(folder.path(), &texts)?;
    let object = folder.path().join("schema.o");
    let complaints = run(folder.path(), &texts[0].name, &object)?;
    let bytes = fs::read(&object).map_err(|e| Error::new(format!("cannot read what the compiler wrote: {e}")))?;
    Ok((bytes, complaints))
}

fn write_texts(folder: &Path, texts: &[NamedText]) -> Result<(), Error> {
    let cannot = |e| Error::new(format!("cannot write the generated C to a temporary folder: {e}"));
    fs::create_dir(folder.join("klogger")).map_err(cannot)?;
    for (name, text) in RUNTIME {
        fs::write(folder.join(name), text).map_err(cannot)?;
    }
    for t in texts {
        fs::write(folder.join(&t.name), &t.text).map_err(cannot)?;
    }
    Ok(())
}

/// Arguments for clang, but for the file names; shared with build.rs, which compiles the bundled schemata. Debug
/// information is what libbpf makes BTF and CO-RE of.
const FLAGS: &[&str] = &include!("flags.in");

fn run(folder: &Path, source: &str, object: &Path) -> Result<Vec<Complaint>, CompileError> {
    for compiler in COMPILERS {
        let output = match Command::new(compiler).current_dir(folder).args(FLAGS).arg(source).arg("-o").arg(object).output() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::new(format!("cannot run {compiler}: {e}")).into()),
            Ok(output) => output,
        };
        let text = String::from_utf8_lossy(&output.stderr);
        let complaints: Vec<_> = text.lines().filter_map(parse_complaint).collect();
        if output.status.success() {
            return Ok(complaints);
        }
        if complaints.iter().any(|c| !c.warning) {
            return Err(CompileError::Rejected(complaints));
        }
        return Err(Error::new(format!("{compiler} failed: {}", text.trim())).into());
    }
    Err(Error::new("a schema of your own is compiled by clang, and none is installed")
        .help("apt-get install clang-19 (or newer); bundled schemata need none: see 'klogger list'")
        .into())
}

/// `FILE:LINE:COLUMN: error: MESSAGE`
fn parse_complaint(line: &str) -> Option<Complaint> {
    let (place, warning, message) = match line.split_once(": error: ").or_else(|| line.split_once(": fatal error: ")) {
        Some((place, message)) => (place, false, message),
        None => line.split_once(": warning: ").map(|(place, message)| (place, true, message))?,
    };
    let mut parts = place.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    Some(Complaint { file: parts.next()?.to_string(), line, column, warning, message: message.to_string() })
}
