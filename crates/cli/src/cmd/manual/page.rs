// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Man pages of section 7, from pages of docs/ in Markdown.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::fmt::Write;

/// A page of docs/, and the name of its man page. That of the language is of several (build.rs).
pub const PAGES: [(&str, &str); 2] = [
    ("klogger-schema-language", include_str!(concat!(env!("OUT_DIR"), "/schema-language.md"))),
    ("klogger-log-format", include_str!("../../../../../docs/log-format.md")),
];

/// Bytes of a table's cell that certainly fit beside others.
const CELL: usize = 24;

/// The page in the language of `man`, with tables for `tbl`. On a terminal it is one page long:
/// tables that do not fit on what is left of a page would be a warning.
pub fn roff(name: &str, markdown: &str) -> String {
    let mut page = Page::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event);
    }
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        "'\\\" t\n.TH {} 7 \"\" \"klogger {version}\" \"klogger\"\n.nh\n.ad l\n\
         .if n .pl 1000i\n.SH NAME\n{} \\- {}\n",
        name.to_uppercase(),
        name.replace('-', "\\-"),
        page.title
    );
    format!("{head}{}.SH SEE ALSO\n.BR klogger (1)\n", page.text)
}

#[derive(Default)]
struct Page {
    title: String,
    text: String,
    /// The words of the paragraph, heading or cell that is being read.
    line: String,
    /// For each open list, the number of its next item.
    lists: Vec<Option<u64>>,
    code: bool,
    /// An item's first paragraph stands beside its mark.
    marked: bool,
    cells: usize,
}

impl Page {
    fn take(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(&tag),
            Event::Text(text) if self.code => self.text += &code(&text),
            Event::Text(text) => self.line += &escaped(&text),
            Event::Code(text) => {
                let _ = write!(self.line, "\\fB{}\\fR", escaped(&text));
            }
            Event::SoftBreak | Event::HardBreak => self.line.push(' '),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag) {
        match tag {
            Tag::CodeBlock(CodeBlockKind::Indented | CodeBlockKind::Fenced(_)) => {
                self.flush();
                self.paragraph();
                self.text += ".RS 4\n.EX\n";
                self.code = true;
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.text += ".RS 4\n";
                }
                self.lists.push(*first);
            }
            Tag::Item => self.item(),
            Tag::Paragraph if !std::mem::take(&mut self.marked) => match self.lists.is_empty() {
                true => self.paragraph(),
                false => self.text += ".IP\n",
            },
            Tag::Strong => self.line += "\\fB",
            Tag::Emphasis => self.line += "\\fI",
            Tag::Table(columns) => {
                let widths = vec!["l"; columns.len().saturating_sub(1)].join(" ");
                self.paragraph();
                let _ = write!(self.text, ".TS\n{widths} lx.\n");
            }
            _ => {}
        }
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}.", *number - 1)
            }
            Some(None) | None => "\\(bu".into(),
        };
        let _ = writeln!(self.text, ".IP {mark} 3");
        self.marked = true;
    }

    fn end(&mut self, tag: &TagEnd) {
        match tag {
            TagEnd::Heading(HeadingLevel::H1) => self.title = std::mem::take(&mut self.line),
            TagEnd::Heading(level) => {
                let heading = std::mem::take(&mut self.line);
                let section = if *level == HeadingLevel::H2 { ".SH" } else { ".SS" };
                let _ = writeln!(self.text, "{section} \"{}\"", heading.replace('"', "\\(dq"));
            }
            TagEnd::CodeBlock => {
                self.text += ".EE\n.RE\n";
                self.code = false;
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.text += if self.lists.is_empty() { "" } else { ".RE\n" };
            }
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::Strong | TagEnd::Emphasis => self.line += "\\fR",
            TagEnd::TableCell => self.cell(),
            TagEnd::TableRow | TagEnd::TableHead => {
                self.text.push('\n');
                self.cells = 0;
            }
            TagEnd::Table => self.text += ".TE\n",
            _ => {}
        }
    }

    fn cell(&mut self) {
        if self.cells > 0 {
            self.text.push('\t');
        }
        self.cells += 1;
        let cell = std::mem::take(&mut self.line);
        // A long one is broken into lines.
        let _ = match cell.len() > CELL {
            true => write!(self.text, "T{{\n{cell}\nT}}"),
            false => write!(self.text, "{cell}"),
        };
    }

    /// Not at the start of a section, which is one already.
    fn paragraph(&mut self) {
        let last = self.text.trim_end().lines().last().unwrap_or_default();
        if !last.starts_with(".S") {
            self.text += ".PP\n";
        }
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.trim().is_empty() {
            let _ = writeln!(self.text, "{}", line.trim());
        }
    }
}

/// What follows the options in the help: paragraphs, and lines that begin with a space, which stay
/// as they are.
pub fn section(text: &str) -> String {
    let (title, text) = match text.split_once('\n') {
        Some((first, rest)) if first.eq_ignore_ascii_case("examples:") => ("EXAMPLES", rest),
        Some(_) | None => ("NOTES", text),
    };
    let mut page = Page { text: format!(".SH {title}\n"), ..Page::default() };
    for line in text.trim_end().lines() {
        let is_code = line.starts_with(' ');
        if line.is_empty() || is_code != page.code {
            page.flush();
        }
        match (is_code, page.code) {
            (true, false) => page.text += ".EX\n",
            (false, true) => page.text += ".EE\n",
            _ => {}
        }
        page.code = is_code;
        match (line.is_empty(), is_code) {
            (true, _) => page.paragraph(),
            (false, true) => {
                page.text += &format!("{}\n", escaped(line.strip_prefix("  ").unwrap_or(line)))
            }
            (false, false) => page.line += &format!("{}\n", escaped(line)),
        }
    }
    page.flush();
    page.text + if page.code { ".EE\n" } else { "" }
}

/// Text that means itself. Characters outside ASCII are named, so that no encoding is guessed.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '\'' => out += "\\(aq",
            '`' => out += "\\(ga",
            '^' => out += "\\(ha",
            '~' => out += "\\(ti",
            // At the start of a line it would be a request.
            '.' if out.is_empty() => out += "\\&.",
            c if c.is_ascii() => out.push(c),
            c => {
                let _ = write!(out, "\\[u{:04X}]", u32::from(c));
            }
        }
    }
    out
}

/// Lines of code.
fn code(text: &str) -> String {
    text.split_inclusive('\n').map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_a_page() {
        let page = roff(
            "klogger-x",
            "# The \\ title\n\nText with `--code`, *more*\nand\u{b5}.\n\n\
             ## Part\n\n    .code 'x'\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | `2` |\n",
        );
        let (_, text) = page.split_once(".SH NAME\n").unwrap();
        assert_eq!(
            text,
            "klogger\\-x \\- The \\e title\n.PP\nText with \\fB\\-\\-code\\fR, \\fImore\\fR \
             and\\[u00B5].\n.SH \"Part\"\n.RS 4\n.EX\n\\&.code \\(aqx\\(aq\n.EE\n.RE\n\
             .IP \\(bu 3\none\n.IP \\(bu 3\ntwo\n.PP\n.TS\nl lx.\na\tb\n1\t\\fB2\\fR\n.TE\n\
             .SH SEE ALSO\n.BR klogger (1)\n"
        );
    }
}
