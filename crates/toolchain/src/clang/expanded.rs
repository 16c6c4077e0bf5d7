// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks the preprocessor's output for a schema's C before it is compiled, because the text alone
//! does not show what macros expand to.

use super::Complaint;
use klogger_schema::c::reach::{beyond_expanded, beyond_message};

/// Places in which a schema's C would do more than describe a probe. `schema`: its file as `#line`
/// names it; `ours`: the files that klogger wrote.
pub(super) fn complaints(schema: &str, ours: &[&str], text: &str) -> Vec<Complaint> {
    let complain = |line: u32, column: usize, message: String| Complaint {
        file: schema.into(),
        line,
        column: column as u32 + 1,
        warning: false,
        message,
    };
    let mut found = Vec::new();
    let (mut file, mut line) = (String::new(), 0);
    let mut author = String::new();
    // (where it begins in `author`, its line number)
    let mut lines: Vec<(usize, u32)> = Vec::new();
    for text in text.lines() {
        if let Some((number, name)) = marker(text) {
            if !name.starts_with('<')
                && name != schema
                && !ours.contains(&name.trim_start_matches("./"))
            {
                let at = lines.last().map_or(1, |l| l.1);
                found.push(complain(at, 0, format!("it reads or names another file, {name}")));
            }
            (file, line) = (name, number);
            continue;
        }
        if file == schema {
            lines.push((author.len(), line));
            author += text;
            author.push('\n');
        }
        line += 1;
    }
    found.extend(beyond_expanded(&author).into_iter().map(|span| {
        let (start, number) = lines[lines.partition_point(|l| l.0 <= span.start).saturating_sub(1)];
        complain(number, span.start - start, beyond_message(&author[span.start..span.end]))
    }));
    found
}

/// `# LINE "FILE" FLAGS`
fn marker(text: &str) -> Option<(u32, String)> {
    let (number, rest) = text.strip_prefix("# ")?.split_once(" \"")?;
    let (name, _) = rest.rsplit_once('"')?;
    Some((number.parse().ok()?, unescaped(name)))
}

/// C escapes as the preprocessor writes them into file names: a letter, or three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let octal =
            after.get(..3).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        let (byte, length) = match (first, octal, after) {
            (b'\\', Some(byte), _) => (byte, 4),
            (b'\\', None, [b't', ..]) => (b'\t', 2),
            (b'\\', None, [b'n', ..]) => (b'\n', 2),
            (b'\\', None, [byte, ..]) => (*byte, 2),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(u32, u32, String)> {
        complaints("a \"b\".k", &["x.bpf.c"], text)
            .into_iter()
            .map(|c| (c.line, c.column, c.message))
            .collect()
    }

    #[test]
    fn what_macros_assemble_is_found_at_its_line() {
        let text = "# 1 \"x.bpf.c\"\nasm(\"ours\");\n# 7 \"a \\\"b\\\".k\"\nint a;\n  \
                    asm(\"x\");\n# 3 \"x.bpf.c\" 2\nasm();\n";
        assert_eq!(found(text), [(8, 3, "`asm` reaches beyond the schema".to_string())]);
    }

    #[test]
    fn files_are_named() {
        let text = "# 1 \"<built-in>\" 1\n# 1 \"./x.bpf.c\"\n# 7 \"a \\\"b\\\".k\"\nint a;\n# \
                    1 \"/etc/shadow\" 1\nroot\n";
        assert_eq!(
            found(text),
            [(7, 1, "it reads or names another file, /etc/shadow".to_string())]
        );
    }

    #[test]
    fn names_in_markers() {
        assert_eq!(marker("# 12 \"\\303\\244 \\\\.k\" 1 3"), Some((12, "ä \\.k".into())));
        assert_eq!(marker("#pragma x"), None);
    }
}
