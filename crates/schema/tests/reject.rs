// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/reject/CASE/CASE.klogger` must be rejected, with the messages in `expected.txt`. One more
//! case is one more folder; KLOGGER_BLESS=1 writes the second file. The test of `klogger check`
//! reads the same cases.

mod common;

use common::{all_well, compare, entries, name};
use klogger_schema::{Diagnostic, Options, Severity, parse};
use miette::{GraphicalReportHandler, GraphicalTheme, NamedSource, Report};

#[test]
fn bad_schemata_are_rejected_with_the_expected_messages() {
    let mut wrong = Vec::new();
    let cases = entries("tests/reject");
    for case in &cases {
        let file = format!("{}.klogger", name(case));
        let text = std::fs::read_to_string(case.join(&file))
            .unwrap_or_else(|e| panic!("{}: {e}", case.display()));
        let diagnostics = match parse(&file, &text, &Options::default()) {
            Ok(parsed) => parsed.warnings,
            Err(diagnostics) => diagnostics,
        };
        if diagnostics.iter().all(|d| d.severity == Severity::Warning) {
            wrong.push(format!("{file}: it has no error"));
        }
        for d in diagnostics.iter().filter(|d| d.help.is_none()) {
            wrong.push(format!("{file}: no remedy for: {d}"));
        }
        wrong.extend(compare(&case.join("expected.txt"), &rendered(&file, &text, &diagnostics)));
    }
    assert!(!cases.is_empty());
    all_well(wrong);
}

/// With blanks in the place of characters that act on a terminal, as many as these have bytes.
fn blanked(text: &str) -> String {
    let acts = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}')
    };
    let shown = |c: char| if acts(c) { " ".repeat(c.len_utf8()) } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// As `klogger check` shows them.
fn rendered(file: &str, text: &str, diagnostics: &[Diagnostic]) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .with_links(false);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let report =
            Report::new(diagnostic.clone()).with_source_code(NamedSource::new(file, blanked(text)));
        handler.render_report(&mut out, report.as_ref()).unwrap();
        out.push('\n');
    }
    // miette ends lines without text in blanks.
    let out = out.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n");
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let warnings = match diagnostics.len() - errors {
        0 => String::new(),
        n => format!(", {}", plural(n, "warning")),
    };
    out + &format!("{file}: {}{warnings}\n", plural(errors, "error"))
}
