// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks that the C of a schema only describes probes: a schema is untrusted, and root compiles
//! it.

use super::{Token, tokens};
use crate::model::Span;

/// Preprocessor directives that affect only the text itself.
const DIRECTIVES: &[&str] = &[
    "define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif",
    "error", "warning",
];

/// Words with which C gets at more than its own text: at files, the assembler, or the compiler's
/// settings.
const BEYOND: &[&str] =
    &["asm", "__asm", "__asm__", "_Pragma", "__has_include", "__has_include_next", "__has_embed"];

pub const BEYOND_HELP: &str = "C here may not read files, use the assembler or change the \
                               compiler's settings; types of the kernel are known without #include";

/// The message for a place that [`beyond`] or [`beyond_expanded`] has found.
pub fn beyond_message(found: &str) -> String {
    match found {
        "\r" => "a carriage return without a line feed ends a line for some compilers only".into(),
        "\\" => "blanks between a backslash and the line's end are not the same for all compilers"
            .into(),
        // A directive of several lines.
        _ => format!("`{}` reaches beyond the schema", found.replace(['\\', '\r', '\n'], "")),
    }
}

/// Attributes that put code or data into sections that libbpf and the kernel interpret, or that run
/// code unasked.
const PLACING: &[&str] = &[
    "section",
    "alias",
    "weakref",
    "ifunc",
    "constructor",
    "destructor",
    "naked",
    "symver",
    "btf_decl_tag",
    "btf_type_tag",
];

/// Places in `text` where C would do more than describe a probe. A schema is untrusted, and root
/// compiles it.
pub fn beyond(text: &str) -> Vec<Span> {
    let spliced = Spliced::new(text);
    let (text, range) = (spliced.text.as_str(), Span { start: 0, end: spliced.text.len() });
    let mut found = spliced.odd.clone();
    let (mut before, mut percent, mut directive): (usize, Option<Span>, Option<Span>) =
        (0, None, None);
    for (token, span) in tokens(text, range) {
        let word = &text[span.start..span.end];
        if let Some(hash) = directive.take()
            && !(token == Token::Word && DIRECTIVES.contains(&word))
        {
            found.push(spliced.origin(Span { start: hash.start, end: span.end }));
        } else if token == Token::Word && BEYOND.contains(&word)
            || token == Token::Number && word.contains('\'')
        {
            // The C of a schema is older than C23, where `'` begins a character, which may hide
            // what follows.
            found.push(spliced.origin(span));
        }
        // `%:` is another spelling of `#`. Elsewhere in a line `#` belongs to a macro.
        let first = before == 0 || text[before..span.start].contains('\n');
        directive = if word == ":" { percent } else { (first && word == "#").then_some(span) };
        percent = (first && word == "%").then_some(span);
        before = span.end;
    }
    found.sort_by_key(|span| span.start);
    found
}

/// The same for the output of the preprocessor, because macros can assemble what the text itself
/// does not contain.
pub fn beyond_expanded(text: &str) -> Vec<Span> {
    let all: Vec<(Token, Span)> = tokens(text, Span { start: 0, end: text.len() }).collect();
    let word = |at: usize| all.get(at).map_or("", |(_, span)| &text[span.start..span.end]);
    let is_beyond = |at: usize| match word(at) {
        "#" => word(at + 1) == "pragma",
        // An attribute in the spelling of C23.
        "[" => word(at + 1) == "[" && all[at].1.end == all[at + 1].1.start,
        "__attribute__" | "__attribute" => places(&all[at + 1..], text),
        w => BEYOND.contains(&w) && !is_barrier(&all[at + 1..], text),
    };
    (0..all.len()).filter(|at| is_beyond(*at)).map(|at| all[at].1).collect()
}

/// The runtime's `barrier()`, which the preprocessor has expanded to an empty assembler statement.
fn is_barrier(rest: &[(Token, Span)], text: &str) -> bool {
    let words = ["volatile", "(", "\"\"", ":", ":", ":", "\"memory\"", ")"];
    rest.len() >= words.len()
        && rest.iter().zip(words).all(|((_, span), word)| &text[span.start..span.end] == word)
}

/// Whether the group of attributes that begins here has one of [`PLACING`].
fn places(rest: &[(Token, Span)], text: &str) -> bool {
    let mut depth = 0;
    for (token, span) in rest {
        match token {
            Token::OpenParen => depth += 1,
            Token::CloseParen => depth -= 1,
            Token::Word if PLACING.contains(&text[span.start..span.end].trim_matches('_')) => {
                return true;
            }
            _ => {}
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

/// A text whose lines are joined where a backslash ends them, as C does before it looks for tokens.
struct Spliced {
    text: String,
    /// (offset in `text`, offset in the original) after each place where lines were joined.
    joints: Vec<(usize, usize)>,
    /// What compilers read differently, in the original: a lone carriage return, which ends a line
    /// for some of them, and blanks between a backslash and the end of the line. Comments end at
    /// different places for them.
    odd: Vec<Span>,
}

impl Spliced {
    fn new(original: &str) -> Spliced {
        let mut found = Spliced {
            text: String::with_capacity(original.len()),
            joints: Vec::new(),
            odd: Vec::new(),
        };
        let mut at = 0;
        while let Some(next) = original[at..].find(['\\', '\r']) {
            let (here, rest) = (at + next, &original[at + next + 1..]);
            let blanks =
                rest.len() - rest.trim_start_matches([' ', '\t', '\x0b', '\x0c', '\r']).len();
            found.text += &original[at..here];
            at = here + 1;
            if original.as_bytes()[here] == b'\r' {
                found.text.push(' ');
                if !rest.starts_with('\n') {
                    found.odd.push(Span { start: here, end: here + 1 });
                }
            } else if rest[blanks..].starts_with('\n') {
                at += blanks + 1;
                found.joints.push((found.text.len(), at));
                if blanks > usize::from(rest.starts_with('\r')) {
                    found.odd.push(Span { start: here, end: here + 1 });
                }
            } else {
                found.text.push('\\');
            }
        }
        found.text += &original[at..];
        found
    }

    /// Where a span of the joined text was in the original.
    fn origin(&self, span: Span) -> Span {
        let place = |at: usize, joint: &(usize, usize)| joint.1 + (at - joint.0);
        let start = self
            .joints
            .iter()
            .rfind(|j| j.0 <= span.start)
            .map_or(span.start, |j| place(span.start, j));
        let end =
            self.joints.iter().rfind(|j| j.0 < span.end).map_or(span.end, |j| place(span.end, j));
        Span { start, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beyond_words(text: &str) -> Vec<&str> {
        let found = beyond(text);
        found.into_iter().map(|s| &text[s.start..s.end]).collect()
    }

    #[test]
    fn c_may_not_reach_beyond_its_own_text() {
        assert_eq!(beyond_words("\n #include \"/etc/passwd\"\n"), ["#include"]);
        assert_eq!(beyond_words("# include <x>"), ["# include"]);
        assert_eq!(beyond_words("x;\n%:embed <x>"), ["%:embed"]);
        assert_eq!(beyond_words("/* */ #inc\\\nlude <x>"), ["#inc\\\nlude"]);
        assert_eq!(beyond_words("#def\\\nine a as\\\r\nm"), ["as\\\r\nm"]);
        assert_eq!(beyond_words("// \\\n#include <x>\n#\\\n include <y>"), ["#\\\n include"]);
        assert_eq!(beyond_words("asm(\".incbin \\\"x\\\"\");"), ["asm"]);
        assert_eq!(
            beyond_words("#define s(x) #x\n#if 1\na % b; // #include\n#endif\n\"#include\""),
            [""; 0]
        );
    }

    #[test]
    fn what_compilers_read_in_different_ways_is_not_allowed() {
        assert_eq!(beyond_words("// x\r#include <x>\n")[0], "\r");
        assert_eq!(beyond_words("// \\ \n/*\n#include <x>\n// */"), ["\\", "#include"]);
        assert_eq!(beyond_words("a \\\r\r\nb")[0], "\\");
        assert_eq!(beyond_words("int a = 1'x/* '\n#include <x>\n//*/'"), ["1'x"]);
        assert_eq!(beyond_words("a\r\n\\\r\nb \\\nc '\\''"), [""; 0]);
    }

    fn expanded(text: &str) -> Vec<&str> {
        beyond_expanded(text).into_iter().map(|s| &text[s.start..s.end]).collect()
    }

    #[test]
    fn macros_do_not_reach_further_than_the_text() {
        assert_eq!(expanded("{ asm(\".incbin \\\"x\\\"\"); }"), ["asm"]);
        assert_eq!(expanded("__asm__ volatile(\"r0 = 1\" ::: \"memory\")"), ["__asm__"]);
        assert_eq!(expanded("x;\n#pragma clang section bss=\"x\"\n"), ["#"]);
        assert_eq!(
            expanded("char a[] __attribute__((used, __section__(\"license\")));"),
            ["__attribute__"]
        );
        assert_eq!(expanded("[[gnu::section(\"x\")]] int a;"), ["["]);
        let harmless = "asm volatile(\"\" ::: \"memory\"); int section __attribute__((unused, \
                        aligned(8))) = a[b[0]];";
        assert_eq!(expanded(harmless), [""; 0]);
    }
}
