// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Shows errors in schemata with their source lines.

use crate::width::columns;
use klogger_log::text::{blanked, escaped, escaped_lines};
use klogger_schema::include::Includes;
use klogger_schema::{Diagnostic, Severity};
use miette::{GraphicalReportHandler, GraphicalTheme, NamedSource, Report};
use std::io::IsTerminal;

/// Width of a rendered diagnostic without a terminal, in columns.
const WIDTH: usize = 100;
/// Source lines with more bytes are not shown.
const LINE_MAX: usize = 400;

/// Diagnostics with the source lines; coloured if standard error is a terminal.
/// Each is shown in the file that it is in.
pub fn render(file: &str, text: &str, includes: &Includes, diagnostics: &[Diagnostic]) -> String {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(columns().unwrap_or(WIDTH))
        .with_links(false);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let (file, text, diagnostic) = includes.located((file, text), diagnostic.clone());
        let (file, diagnostic) = (&*escaped(file), harmless(diagnostic));
        let source = NamedSource::new(file, blanked(text));
        let report = Report::new(diagnostic.clone()).with_source_code(source);
        if !showable(text, &diagnostic) || handler.render_report(&mut out, report.as_ref()).is_err()
        {
            plain(&mut out, file, text, &diagnostic);
        }
        out.push('\n');
    }
    // miette ends lines without text in blanks.
    out.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Its texts may name what is in the schema, or in a program.
fn harmless(diagnostic: Diagnostic) -> Diagnostic {
    Diagnostic {
        message: escaped_lines(&diagnostic.message),
        label: escaped_lines(&diagnostic.label),
        help: diagnostic.help.map(|help| escaped_lines(&help)),
        related: diagnostic.related.map(|(span, label)| (span, escaped_lines(&label))),
        ..diagnostic
    }
}

/// Whether the lines around the places of a diagnostic can be shown.
fn showable(text: &str, diagnostic: &Diagnostic) -> bool {
    let starts = std::iter::once(diagnostic.span.start)
        .chain(diagnostic.related.iter().map(|(span, _)| span.start));
    starts.into_iter().all(|at| {
        let before = text.as_bytes()[..at].rsplit(|&b| b == b'\n').take(2);
        let after = text.as_bytes()[at..].split(|&b| b == b'\n').take(2);
        before.chain(after).all(|line| line.len() < LINE_MAX)
    })
}

/// A diagnostic without its source lines.
fn plain(out: &mut String, file: &str, text: &str, diagnostic: &Diagnostic) {
    out.push_str(&format!("{file}:{}: {diagnostic}\n", line(text, diagnostic)));
    if let Some(help) = &diagnostic.help {
        out.push_str(&format!("  help: {help}\n"));
    }
}

/// The line in which a diagnostic begins, from 1.
pub fn line(text: &str, diagnostic: &Diagnostic) -> usize {
    let before = &text.as_bytes()[..diagnostic.span.start.min(text.len())];
    before.iter().filter(|&&b| b == b'\n').count() + 1
}

/// The number of errors and warnings: "2 errors, 1 warning"; empty if there are none.
pub fn tally(diagnostics: &[Diagnostic]) -> String {
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let parts = [(errors, "error"), (diagnostics.len() - errors, "warning")];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| count(*n, what)).collect();
    parts.join(", ")
}

/// "1 event", "2 events"
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::model::Span;

    #[test]
    fn a_schema_does_not_act_on_the_terminal() {
        let text = "event E { int \x1b]0;owned\x07a } // \u{9b}31m \u{202e}\nnext\x1b[2J\n";
        let at = Span { start: 10, end: 13 };
        let found = Diagnostic::error(at, "no 'evil\x1b[31m'").label("\x1b[1m").help("\x07");
        let acts = |text: &str| text.chars().any(|c| c != '\n' && klogger_log::text::acts(c));
        for text in [text.to_string(), text.to_string() + &"x".repeat(LINE_MAX)] {
            let shown =
                render("a\x1b[2J", &text, &Includes::default(), std::slice::from_ref(&found));
            assert!(!acts(&shown) && shown.contains("evil\\x1b[31m"), "{shown:?}");
        }
        // The mark is below the word.
        let shown = render("a", text, &Includes::default(), &[found]);
        let lines: Vec<&str> = shown.lines().collect();
        let column = |of: &str, line: &str| line.find(of).map(|at| line[..at].chars().count());
        let place = lines.iter().find_map(|line| column("int", line)).unwrap();
        assert!(
            lines.iter().any(|line| column("\u{2500}\u{252c}", line) == Some(place)),
            "{shown}"
        );
    }
}
