// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiles a schema to a BPF object with clang. Bundled schemata were compiled when klogger was
//! built; this is for the user's own.

mod called;
mod expanded;
#[cfg(test)]
mod machines;
#[cfg(test)]
mod sizes;

use klogger_codegen::{KernelTypes, NamedText, RUNTIME, Runs, bpf, printable};
use klogger_os::Error;
use klogger_os::Uninterrupted;
use klogger_os::children;
use klogger_os::confine::{self, Limits, Permits};
use klogger_schema::c::reach::BEYOND_HELP;
use klogger_schema::model::{Schema, Span};
use klogger_schema::{Diagnostic, Severity};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Names of programs, and of Debian's packages, one per line; the preferred one first. If none is
/// found, `clang` is tried, which may have another version. build.rs, scripts/packages, tests and
/// benchmarks read the file too.
const COMPILERS: &str = include_str!("compilers.txt");

/// The oldest supported version, for messages.
fn oldest() -> &'static str {
    COMPILERS.lines().rfind(|name| name.contains('-')).unwrap_or("clang")
}

/// Why a schema could not be compiled.
#[derive(Debug)]
pub enum CompileError {
    /// The compiler could not be run, or there is none.
    Failed(Error),
    /// Errors in schemata or in their C, each with the index of the schema.
    Rejected(Vec<(usize, Diagnostic)>),
}

impl From<Error> for CompileError {
    fn from(e: Error) -> CompileError {
        CompileError::Failed(e)
    }
}

/// One message of the compiler. Lines and columns count from 1; if `file` is the schema's, they are
/// those of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub warning: bool,
    pub message: String,
}

/// Compiles the probes of a schema.
pub fn compile(
    schema: &Schema,
    types: &KernelTypes,
) -> Result<(Vec<u8>, Vec<Diagnostic>), CompileError> {
    let texts = bpf::source(schema, types, Runs::Here).map_err(Error::new)?;
    // Until the folder is removed.
    let _uninterrupted = Uninterrupted::begin();
    let folder = tempfile::Builder::new().prefix("klogger-").tempdir();
    let folder = folder.map_err(|e| Error::new(format!("cannot make a temporary folder: {e}")))?;
    write_texts(folder.path(), &texts)?;
    let compiler = Compiler::find(folder.path())?;
    let expanded = compiler.run(schema, &["-E", &texts[0].name])?.0;
    let ours: Vec<&str> = texts
        .iter()
        .map(|t| t.name.as_str())
        .chain(RUNTIME.iter().map(|(name, _)| *name))
        .collect();
    let found =
        expanded::complaints(&printable(&schema.file), &ours, &String::from_utf8_lossy(&expanded));
    if !found.is_empty() {
        return Err(CompileError::Rejected(
            found.iter().map(|c| (0, diagnostic(schema, c))).collect(),
        ));
    }
    let (object, warnings) = compiler.run(schema, &["-c", &texts[0].name])?;
    match called::not_allowed(&object)? {
        Some(number) => Err(CompileError::Rejected(vec![(0, called::complaint(number))])),
        None => Ok((object, warnings)),
    }
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
    confine::lend(folder).map_err(cannot)
}

/// Arguments for clang, except file names; shared with build.rs, which compiles the bundled
/// schemata. libbpf needs the debug information for BTF and CO-RE.
const FLAGS: &[&str] = &include!("flags.in");

/// The program that compiles schemata.
pub fn find() -> Result<PathBuf, Error> {
    COMPILERS.lines().find_map(confine::find_program).ok_or_else(|| {
        Error::new(
            "a schema of your own, and any with --where, is compiled by clang, and none is \
             installed",
        )
        .help(format!(
            "apt-get install {} (or newer); bundled schemata need none without --where",
            oldest()
        ))
    })
}

/// Runs clang confined, because a schema is untrusted: it can read only its input, write no file,
/// and is not root.
struct Compiler<'a> {
    program: PathBuf,
    folder: &'a Path,
}

/// Far more than clang needs for the largest schemata.
const LIMITS: Limits = Limits { cpu_seconds: 120, memory: 4 << 30, file_size: 0 };
/// Most bytes of output.
const OUTPUT_MAX: usize = if cfg!(test) { 1 << 30 } else { 64 << 20 };
/// By the clock on the wall; only a compiler that was stopped needs longer, or a machine that has
/// no time for it.
const WITHIN: Duration = Duration::from_secs(600);

/// Disables preprocessor features that reveal which files exist.
const NO_QUESTIONS: &[&str] =
    &["-U__has_include", "-U__has_include_next", "-U__has_embed", "-Wno-builtin-macro-redefined"];

impl Compiler<'_> {
    fn find(folder: &Path) -> Result<Compiler<'_>, Error> {
        Ok(Compiler { program: find()?, folder })
    }

    /// Runs clang; returns its output and its warnings.
    fn run(
        &self,
        schema: &Schema,
        words: &[&str],
    ) -> Result<(Vec<u8>, Vec<Diagnostic>), CompileError> {
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.folder)
            .args(FLAGS)
            .args(NO_QUESTIONS)
            .args(words)
            .args(["-o", "-"])
            .env("LC_ALL", "C");
        let home = confine::home_of(&self.program);
        let permits = Permits {
            read: &[self.folder, home.as_path()],
            write: &[],
            network: false,
            as_stranger: true,
            limits: LIMITS,
        };
        confine::confine(&mut command, &permits);
        let said = children::output(command, OUTPUT_MAX, WITHIN);
        let said = said.map_err(|e| self.cannot_run(&e))?;
        let text = String::from_utf8_lossy(&said.stderr);
        let found = diagnostics(schema, &text);
        if said.status.success() {
            return Ok((said.stdout, found));
        }
        if found.iter().any(|d| d.severity == Severity::Error) {
            return Err(CompileError::Rejected(found.into_iter().map(|d| (0, d)).collect()));
        }
        let why =
            if text.trim().is_empty() { said.status.to_string() } else { text.trim().to_string() };
        Err(Error::new(format!("{} failed: {why}", self.program.display())).into())
    }

    fn cannot_run(&self, error: &io::Error) -> Error {
        let program = self.program.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::new(format!(
                "{program} is not executable for all users, and klogger does not compile as root"
            ))
            .help(format!(
                "install a clang that all users can execute: apt-get install {} (or newer)",
                oldest()
            )),
            io::ErrorKind::TimedOut => Error::new(format!(
                "{program} has not ended within {} minutes, and was killed",
                WITHIN.as_secs() / 60
            ))
            .help("was it stopped, or is the machine busy?"),
            _ => Error::new(format!("cannot run {program}: {error}")),
        }
    }
}

/// What clang says once for each place that uses the stack, most of them in generated C.
const STACK: &str = "BPF stack limit is exceeded";

/// All messages of the compiler; about the stack only one.
fn diagnostics(schema: &Schema, text: &str) -> Vec<Diagnostic> {
    let (stack, others): (Vec<Complaint>, Vec<Complaint>) =
        text.lines().filter_map(parse_complaint).partition(|c| c.message.contains(STACK));
    let mut found: Vec<_> = others.iter().map(|c| diagnostic(schema, c)).collect();
    let own = stack.iter().find(|c| c.file == printable(&schema.file));
    if let Some(first) = own.or(stack.first()) {
        let span = match (own, &schema.probes[..]) {
            (None, [only]) => only.span,
            _ => diagnostic(schema, first).span,
        };
        let message = "the local variables of a probe take more than the 512 bytes of a BPF stack";
        found.push(Diagnostic::error(span, message).help(
            "put large ones into 'code' as static arrays with an element for each CPU: \
             table[klogger_cpu() & 255]",
        ));
    }
    found
}

/// `FILE:LINE:COLUMN: error: MESSAGE`
pub(crate) fn parse_complaint(line: &str) -> Option<Complaint> {
    let (place, warning, message) = match line
        .split_once(": error: ")
        .or_else(|| line.split_once(": fatal error: "))
    {
        Some((place, message)) => (place, false, message),
        None => line.split_once(": warning: ").map(|(place, message)| (place, true, message))?,
    };
    let mut parts = place.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    Some(Complaint {
        file: parts.next()?.to_string(),
        line,
        column,
        warning,
        message: message.to_string(),
    })
}

/// A compiler message as a diagnostic at its place in the schema. One about generated C points at
/// the schema's first line.
pub(crate) fn diagnostic(schema: &Schema, complaint: &Complaint) -> Diagnostic {
    let own = complaint.file == printable(&schema.file);
    let span = if own {
        word_at(&schema.text, complaint.line, complaint.column)
    } else {
        Span { start: 0, end: 0 }
    };
    let message = match own {
        true => format!("C: {}", complaint.message),
        false => format!(
            "C generated from this schema ({}:{}): {}",
            complaint.file, complaint.line, complaint.message
        ),
    };
    let diagnostic = match complaint.warning {
        true => Diagnostic::warning(span, message),
        false => Diagnostic::error(span, message),
    };
    match help(&complaint.message) {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// A remedy for the most common messages.
fn help(message: &str) -> Option<&'static str> {
    let table = [
        (
            "call to undeclared function 'klogger_get_",
            "hardware counters ('arch') are not read by the bpf engine",
        ),
        (
            "call to undeclared function",
            "the kernel's functions and macros cannot be called from a probe; read its structures",
        ),
        ("reaches beyond the schema", BEYOND_HELP),
        ("names another file", BEYOND_HELP),
        (
            "no member named",
            "see the kernel's own definition: bpftool btf dump file /sys/kernel/btf/vmlinux format \
             c",
        ),
        (
            "incomplete definition of type",
            "the running kernel has no such type; check the spelling",
        ),
        (
            "use of undeclared identifier 'klogger_hit'",
            "call klogger() in a probe's body, not in 'code'",
        ),
    ];
    table.iter().find(|(part, _)| message.contains(part)).map(|(_, help)| *help)
}

/// The word that begins at a line and column, both counted from 1.
fn word_at(text: &str, line: u32, column: u32) -> Span {
    let before: usize =
        text.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum();
    let end_of_line = text[before..].find('\n').map_or(text.len(), |n| before + n);
    let mut start = (before + column.saturating_sub(1) as usize).min(end_of_line);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let word = text[start..end_of_line]
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(end_of_line - start);
    Span {
        start,
        end: start
            + word.max(usize::from(
                start < end_of_line && word == 0 && text.is_char_boundary(start + 1),
            )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_messages_are_parsed() {
        let c =
            parse_complaint("a b.klogger:7:12: error: use of undeclared identifier 'x'").unwrap();
        assert_eq!((c.file.as_str(), c.line, c.column, c.warning), ("a b.klogger", 7, 12, false));
        assert!(parse_complaint("x.klogger:7:12: warning: unused").unwrap().warning);
        assert_eq!(parse_complaint("1 error generated."), None);
    }

    #[test]
    fn words_of_a_text() {
        let text = "ab cd\n  efg(1)\n";
        let at = |line, column| word_at(text, line, column);
        assert_eq!(&text[at(2, 3).start..at(2, 3).end], "efg");
        assert_eq!(&text[at(1, 4).start..at(1, 4).end], "cd");
        assert_eq!(at(9, 9), Span { start: text.len(), end: text.len() });
    }
}
