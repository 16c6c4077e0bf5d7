// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! For `build.rs`: makes the Rust of a schema's events, which `klogger_user::schema!` includes.
//!
//! ```text
//! fn main() {
//!     klogger_user_build::schema("my.klogger");
//! }
//! ```

use klogger_codegen::user::rust;
use klogger_codegen::{NamedText, printable};
use klogger_schema::{Diagnostic, Options, Severity, parse};
use std::path::Path;
use std::{env, fs, process};

/// Writes `NAME.klogger.rs` to cargo's `OUT_DIR`, where NAME is the schema's name. Cargo runs the
/// script again when the file has changed.
///
/// If the schema cannot be read or is invalid, prints the error on standard error and ends the
/// build.
pub fn schema(path: impl AsRef<Path>) {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    let made = generate(path).and_then(|(code, warnings)| {
        warnings.iter().for_each(|w| println!("cargo::warning={w}"));
        write(&code)
    });
    if let Err(message) = made {
        eprintln!("{message}");
        process::exit(1);
    }
}

fn write(code: &NamedText) -> Result<(), String> {
    let folder = env::var_os("OUT_DIR")
        .ok_or("error: klogger_user_build::schema() is for build.rs, which cargo runs")?;
    let path = Path::new(&folder).join(&code.name);
    fs::write(&path, &code.text).map_err(|e| format!("error: cannot write {}: {e}", path.display()))
}

/// The schema's code, and warnings of a line each; or all errors.
fn generate(path: &Path) -> Result<(NamedText, Vec<String>), String> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| format!("error: {file}: {e}"))?;
    let text =
        String::from_utf8(bytes).map_err(|e| format!("error: {file}: {}", e.utf8_error()))?;
    let parsed =
        parse(&file, &text, &Options::default()).map_err(|found| render(&file, &text, &found))?;
    let code = rust::source(&parsed.schema)
        .map_err(|e| format!("error: {file}: {}\n  help: {}", e.message, e.help))?;
    let warnings = parsed.warnings.iter().map(|w| {
        let (line, column) = position(&text, w.span.start);
        format!("{file}:{line}:{column}: {}", w.message)
    });
    Ok((code, warnings.collect()))
}

fn render(file: &str, text: &str, found: &[Diagnostic]) -> String {
    found.iter().map(|d| show(file, text, d)).collect::<Vec<_>>().join("\n")
}

/// As rustc shows its own diagnostics: message, place, the line with the place underlined, remedy.
fn show(file: &str, text: &str, d: &Diagnostic) -> String {
    let (line, column) = position(text, d.span.start);
    let word = if d.severity == Severity::Error { "error" } else { "warning" };
    let source = printable(text.lines().nth(line - 1).unwrap_or_default());
    let room = source.chars().count().saturating_sub(column - 1).max(1);
    let marked = text.get(d.span.start..d.span.end).map_or(0, |s| s.chars().count()).clamp(1, room);
    let under = format!("{}{} {}", " ".repeat(column - 1), "^".repeat(marked), d.label);
    let help = d.help.as_ref().map_or(String::new(), |help| format!("  help: {help}\n"));
    format!(
        "{word}: {}\n --> {file}:{line}:{column}\n  {source}\n  {}\n{help}",
        d.message,
        under.trim_end()
    )
}

/// Line and column (in characters), from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(NamedText, Vec<String>), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.klogger");
        fs::write(&path, text).unwrap();
        generate(&path).map_err(|e| e.replace(folder.path().to_str().unwrap(), "DIR"))
    }

    #[test]
    fn code_has_the_name_of_the_schema() {
        let (code, warnings) = of("schema net\nevent SENT { int bytes }\n").unwrap();
        assert_eq!(code.name, "net.klogger.rs");
        assert!(code.text.contains("pub(crate) fn SENT(bytes: i32)"), "{}", code.text);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn an_error_is_shown_at_its_place() {
        let shown = of("schema my\n\nevent A { int x  uint8 y }\n").unwrap_err();
        let expected = "error: unknown type `uint8`\n --> DIR/my.klogger:3:18\n  event A \
                        { int x  uint8 y }\n                   ^^^^^";
        assert!(shown.starts_with(expected), "{shown}");
    }

    #[test]
    fn a_context_that_only_the_kernel_has_is_refused() {
        let shown = of("event A { context cgroup }\n").unwrap_err();
        assert!(shown.contains("a program cannot log `context cgroup`"), "{shown}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let shown = generate(Path::new("none.klogger")).unwrap_err();
        assert!(shown.starts_with("error: none.klogger: No such file"), "{shown}");
    }
}
