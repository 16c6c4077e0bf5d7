// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds out whether a schema takes stacks, and adapts its C for that.
//!
//! In a BPF program `klogger_stack()` and `klogger_user_stack()` need the program's context, which
//! only the program's main function has. So in a schema that takes stacks, each function of its
//! `code` blocks that takes one, or calls one that does, gets the context as an additional first
//! parameter, and its calls pass it on. Modules do not need this.

use klogger_schema::c::{self, Token};
use klogger_schema::model::{CBlock, Context, Schema, Span};
use std::collections::BTreeSet;
use std::ops::Range;

/// The functions that take a stack.
const STACK: &str = "klogger_stack";
const USER_STACK: &str = "klogger_user_stack";
/// The name of the parameter with the program's context.
pub(crate) const CONTEXT: &str = "klogger_context";

/// Which stacks a schema takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks {
    pub kernel: bool,
    pub user: bool,
}

impl Asks {
    pub(crate) fn of(schema: &Schema) -> Asks {
        Asks {
            kernel: asks(schema, Context::Stack, STACK),
            user: asks(schema, Context::UserStack, USER_STACK),
        }
    }

    pub(crate) fn any(self) -> bool {
        self.kernel || self.user
    }
}

/// Whether an event has this context, or the C mentions the function in a body or a helper.
fn asks(schema: &Schema, context: Context, function: &str) -> bool {
    let mut fields = schema.events.iter().flat_map(|e| &e.fields);
    fields.any(|f| f.context == Some(context)) || mentions(schema, function)
}

/// Whether the C of a schema has this word, in a body or a helper.
pub(crate) fn mentions(schema: &Schema, function: &str) -> bool {
    let bodies = schema.probes.iter().map(|p| &p.body);
    schema.code.iter().chain(bodies).any(|block| {
        words(&block.text).iter().any(|(token, text, _)| *token == Token::Word && *text == function)
    })
}

/// Where C of a schema is: functions are declared and defined in `code` only, so that `f(x);` is a
/// call in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    Code,
    Body,
}

/// A `code` block or body in which the functions of `code` get the context and pass it on. Columns
/// in compiler messages count the added parameter.
pub(crate) fn with_context(block: &CBlock, place: Within, functions: &BTreeSet<String>) -> CBlock {
    let found = words(&block.text);
    let heads: BTreeSet<usize> = match place {
        Within::Code => heads(&found).into_iter().collect(),
        Within::Body => BTreeSet::new(),
    };
    let mut text = String::new();
    let mut copied = 0;
    for (at, pair) in found.windows(2).enumerate() {
        let ((name, word, _), (open, _, paren)) = (pair[0], pair[1]);
        if (name, open) != (Token::Word, Token::OpenParen) || !functions.contains(word) {
            continue;
        }
        let passed = match heads.contains(&at) {
            true => format!("__attribute__((unused)) void *{CONTEXT}"),
            false => CONTEXT.to_string(),
        };
        let (empty, next) = first_after(&found, at + 1, paren.end);
        text += &block.text[copied..paren.end];
        text += &passed;
        text += if empty { "" } else { ", " };
        copied = next;
    }
    text += &block.text[copied..];
    CBlock { text, ..block.clone() }
}

/// The functions of the schema's `code` that need the context: all of them, if a macro does.
pub(crate) fn functions(schema: &Schema) -> BTreeSet<String> {
    let blocks: Vec<_> = schema.code.iter().map(|block| words(&block.text)).collect();
    let mut named: BTreeSet<&str> = BTreeSet::from([STACK, USER_STACK]);
    loop {
        let before = named.len();
        for found in &blocks {
            let heads = heads(found);
            for (at, (_, word, _)) in found.iter().enumerate() {
                if !named.contains(word) || heads.contains(&at) {
                    continue;
                }
                let within = heads.iter().find(|head| body(found, **head).contains(&at));
                let Some(head) = within else { return all(&blocks) };
                named.insert(found[*head].1);
            }
        }
        if named.len() == before {
            let functions = all(&blocks);
            return functions.into_iter().filter(|name| named.contains(name.as_str())).collect();
        }
    }
}

/// All that the blocks declare or define.
fn all(blocks: &[Vec<Word>]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for found in blocks {
        names.extend(heads(found).into_iter().map(|at| found[at].1.to_string()));
    }
    names
}

/// The positions in the body of the function whose name is at `head`; of a declaration, none.
fn body(found: &[Word], head: usize) -> Range<usize> {
    let Some(open) = closing(found, head + 1).map(|close| close + 1) else { return 0..0 };
    let end = found[open..]
        .iter()
        .scan(0usize, |depth, (token, ..)| {
            match token {
                Token::OpenBrace => *depth += 1,
                Token::CloseBrace => *depth = depth.saturating_sub(1),
                _ => {}
            }
            Some(*depth)
        })
        .position(|depth| depth == 0);
    open..end.map_or(found.len(), |end| open + end)
}

type Word<'a> = (Token, &'a str, Span);

fn words(text: &str) -> Vec<Word<'_>> {
    let all = c::tokens(text, Span { start: 0, end: text.len() });
    all.map(|(token, span)| (token, &text[span.start..span.end], span)).collect()
}

/// Positions of the names of functions that are declared or defined: outside of all braces, before
/// a parenthesized group that is followed by a body, a `;` or an attribute.
fn heads(found: &[Word]) -> Vec<usize> {
    let mut heads = Vec::new();
    let mut braces = 0usize;
    for (at, (token, text, _)) in found.iter().enumerate() {
        match token {
            Token::OpenBrace => braces += 1,
            Token::CloseBrace => braces = braces.saturating_sub(1),
            Token::Word if braces == 0 && !text.starts_with("__") => {
                let after = closing(found, at + 1).and_then(|close| found.get(close + 1));
                let declares = after.is_some_and(|(token, text, _)| {
                    *token == Token::OpenBrace || *text == ";" || text.starts_with("__attribute__")
                });
                if declares {
                    heads.push(at);
                }
            }
            _ => {}
        }
    }
    heads
}

/// The end of the group that the parenthesis at `open` opens, if there is one.
fn closing(found: &[Word], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, (token, ..)) in found.iter().enumerate().skip(open) {
        match token {
            Token::OpenParen => depth += 1,
            Token::CloseParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > open).then_some(at);
        }
    }
    None
}

/// Whether a group in parentheses is empty or `void`; and the offset at which the text continues.
fn first_after(found: &[Word], open: usize, from: usize) -> (bool, usize) {
    match (found.get(open + 1), found.get(open + 2)) {
        (Some((Token::CloseParen, ..)), _) => (true, from),
        (Some((Token::Word, "void", _)), Some((Token::CloseParen, _, close))) => {
            (true, close.start)
        }
        _ => (false, from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::{Options, parse};

    fn schema(code: &str, body: &str) -> Schema {
        let text = format!(
            "schema s\nevent E {{ uint s as stack }}\ncode {{{code}}}\n\
             probe tracepoint x(int n) {{\n{body}\n}}\n"
        );
        parse("s.klogger", &text, &Options::default()).unwrap().schema
    }

    #[test]
    fn a_helper_can_take_stacks_as_a_body_can() {
        let helper = "static u32 here(void) { return klogger_stack(); }";
        let kernel = Asks { kernel: true, user: false };
        assert_eq!(Asks::of(&schema(helper, "klogger(E, here());")), kernel);
        assert_eq!(Asks::of(&schema("", "klogger(E, klogger_stack());")), kernel);
        let defined = schema("\n#define HERE klogger_user_stack()\n", "klogger(E, HERE);");
        assert_eq!(Asks::of(&defined), Asks { kernel: false, user: true });
    }

    #[test]
    fn comments_and_texts_do_not_count() {
        let code = "/* klogger_stack() */ static const char *t = \"klogger_stack\";";
        assert!(!Asks::of(&schema(code, "klogger(E, 0); // klogger_stack()")).any());
    }

    fn passed(code: &str) -> String {
        // A macro that takes a stack: each function may.
        let schema = schema(&format!("{code}\n#define S klogger_stack()\n"), "klogger(E, 0);");
        let context = format!("__attribute__((unused)) void *{CONTEXT}");
        let text = with_context(&schema.code[0], Within::Code, &functions(&schema)).text;
        text.replace(&context, "CONTEXT").replace("\n#define S klogger_stack()\n", "")
    }

    #[test]
    fn only_who_takes_a_stack_gets_the_context() {
        let code = "static int a(void) { return 1; } int d(int n);\n\
                    static u32 b(void) { return klogger_stack() + a(); }\n\
                    static u32 c(void) { if (a()) { return d(0) + b(); } return 0; }\n\
                    int d(int n) { return a(); }\n";
        let found = functions(&schema(code, "klogger(E, c());"));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["b", "c"]);
        let with = format!("{code}#define B(x) b()\n");
        assert_eq!(functions(&schema(&with, "klogger(E, c());")).len(), 4);
    }

    #[test]
    fn a_statement_of_a_body_is_a_call() {
        let code = "static void f(int n) { klogger_stack(); }";
        let schema = schema(code, "f(n);\nklogger(E, klogger_stack());");
        let body = with_context(&schema.probes[0].body, Within::Body, &functions(&schema));
        assert!(body.text.contains("f(klogger_context, n);"), "{}", body.text);
    }

    #[test]
    fn functions_get_the_context_and_pass_it_on() {
        let cases = [
            ("static int f(void) { return 0; }", "static int f(CONTEXT) { return 0; }"),
            ("int f() { return 0; }", "int f(CONTEXT) { return 0; }"),
            (
                "int g(int a); int f(int *b) { return g(*b) + g(h(f(0))); }",
                "int g(CONTEXT, int a); int f(CONTEXT, int *b) { return \
                 g(klogger_context, *b) + g(klogger_context, h(f(klogger_context, 0))); }",
            ),
            (
                "static __attribute__((noinline)) int f(void) __attribute__((cold));",
                "static __attribute__((noinline)) int f(CONTEXT) __attribute__((cold));",
            ),
            (
                "#define F(x) f(x)\nint f(int a) { if (a) { return F(a - 1); } return 0; }",
                "#define F(x) f(klogger_context, x)\n\
                 int f(CONTEXT, int a) { if (a) { return F(a - 1); } return 0; }",
            ),
        ];
        for (code, expected) in cases {
            assert_eq!(passed(code), expected);
        }
    }
}
