// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What texts for people are made of: numbers, commands, paragraphs, tables.

use std::fmt::Write;

/// `1,234,567`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Breaks a text into lines of at most `width` characters; control characters become blanks.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty())
    {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => lines.push(word.into()),
        }
    }
    lines
}

/// A label of `indent` columns, and a text beside it.
pub fn paragraph(out: &mut String, label: &str, text: &str, indent: usize, width: usize) {
    let mut label = label;
    for part in wrap(text, width.saturating_sub(indent)) {
        let _ = writeln!(out, "{label:indent$}{part}");
        label = "";
    }
}

/// A command as a shell would take it.
pub fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_^~".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Columns below their titles, with two blanks between them; the last one is of numbers. The column
/// `gives_way` is cut to what the width leaves, but not to less than eight characters.
pub fn table<const N: usize>(
    out: &mut String,
    titles: [&str; N],
    rows: &[[String; N]],
    gives_way: usize,
    width: usize,
) {
    let length = |text: &str| text.chars().count();
    let mut widths = titles.map(length);
    for (i, widest) in widths.iter_mut().enumerate() {
        *widest = rows.iter().map(|row| length(&row[i])).fold(*widest, usize::max);
    }
    let others: usize = widths.iter().sum::<usize>() - widths[gives_way] + 2 * (N - 1);
    widths[gives_way] = widths[gives_way].min(width.saturating_sub(others).max(8));
    let head = titles.map(String::from);
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let (gap, room) = (if i == 0 { "" } else { "  " }, widths[i]);
            let cell = cut(cell, room);
            let _ = match i + 1 == N {
                true => write!(line, "{gap}{cell:>room$}"),
                false => write!(line, "{gap}{cell:room$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn cut(text: &str, room: usize) -> String {
    match text.chars().count() <= room {
        true => text.into(),
        false => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("\x1b[1m  a\nb", 80), ["[1m a b"]);
    }

    #[test]
    fn commands_can_be_given_to_a_shell() {
        let words = ["sh", "-c", "echo it's $HOME", "", "a=b", "µ"].map(String::from);
        assert_eq!(command(&words), r"sh -c 'echo it'\''s $HOME' '' a=b 'µ'");
    }

    #[test]
    fn a_table_fits_the_width() {
        let rows =
            [["a".repeat(30), "xyz".into(), "1".into()], ["b".into(), "".into(), "22".into()]];
        let mut out = String::new();
        table(&mut out, ["name", "where", "count"], &rows, 0, 24);
        assert_eq!(
            out,
            "name        where  count\naaaaaaaaa…  xyz        1\nb                     22\n"
        );
    }
}
