// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe KIND NAME(params) or KIND NAME(params) if PARAMETER { C }` and `code { C }`.

use super::{Parse, Parser};
use crate::attach_points::PLACES_MAX;
use crate::attach_points::syscall::ALL_CALLS;
use crate::c::{self, BadCall, Token as C, Unclosed};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{CBlock, Call, Param, Probe, ProbeKind, Span, Switch, Target};
use crate::names::{self, shorten};
use crate::nearest::{alternatives, did_you_mean};
use crate::vocabulary::C_TYPE_WORDS;

impl Parser<'_> {
    /// Without the word `probe`, which is at `keyword`.
    pub(super) fn probe(&mut self, keyword: Span) -> Parse<()> {
        let mut targets = vec![self.target()?];
        while self.cursor.eat_word("or").is_some() {
            targets.push(self.target()?);
        }
        let span = Span { start: keyword.start, end: self.cursor.at };
        let switch = self.switch()?;
        let next = self.cursor.peek();
        if next.token != Token::OpenBrace {
            self.cursor.at = next.span.end;
            let expected = if switch.is_some() { "`{`" } else { "`{` or `or`" };
            let help = "after its attach points a probe has a body in C between `{` and `}`; `or` \
                        joins alternatives";
            return Err(self.unexpected(next, expected, help));
        }
        let body = self.c_block()?;
        let calls = self.calls(&body);
        self.draft.probes.push(Probe { targets, switch, body, calls, span });
        Ok(())
    }

    /// `if PARAMETER`
    fn switch(&mut self) -> Parse<Option<Switch>> {
        if self.cursor.eat_word("if").is_none() {
            return Ok(None);
        }
        let next = self.cursor.next();
        let Some(word) = self.word_of(next) else {
            let help = "a probe is attached `if` a parameter of the schema, a `bool`, is true";
            return Err(self.unexpected(next, "the name of a parameter", help));
        };
        Ok(Some(Switch { parameter: word.to_string(), span: next.span }))
    }

    /// Without the word `code`.
    pub(super) fn code(&mut self) -> Parse<()> {
        let block = self.c_block()?;
        for call in c::calls(self.cursor.text, block.span) {
            let span = call.map_or_else(|BadCall(span)| span, |call| call.span);
            self.report(
                Diagnostic::error(span, "klogger() is called outside of a probe")
                    .label("not in a probe")
                    .help("compute the values here, and call klogger() in the probe's own body"),
            );
        }
        self.draft.code.push(block);
        Ok(())
    }

    fn calls(&mut self, body: &CBlock) -> Vec<Call> {
        let found = c::calls(self.cursor.text, body.span);
        let report = |call: Result<Call, BadCall>| {
            call.map_err(|BadCall(span)| {
                self.draft.incomplete = true;
                let help = "write `klogger(EVENT, value, ...)`, with the name of an event of this \
                            schema, and close it with `)`";
                self.report(
                    Diagnostic::error(span, "this klogger() call names no event")
                        .label("no event's name")
                        .help(help),
                );
            })
        };
        found.into_iter().map(report).filter_map(Result::ok).collect()
    }

    /// The braces and the C between them.
    fn c_block(&mut self) -> Parse<CBlock> {
        let open = self.open_brace("C code")?;
        let start = open.end;
        let end = match c::group_end(self.cursor.text, start, C::OpenBrace, C::CloseBrace) {
            Ok(end) => end,
            Err(unclosed) => return Err(self.unclosed(unclosed, open, "brace", "}")),
        };
        self.cursor.at = end + 1;
        let (line, column) = self.lines.position(start);
        let span = Span { start, end };
        Ok(CBlock { text: self.cursor.text(span).into(), line, column, span })
    }

    fn unclosed(
        &mut self,
        what: Unclosed,
        open: Span,
        group: &str,
        close: &str,
    ) -> super::Reported {
        // Only where it begins, because the rest may be half of the file.
        let begin = |span: Span| Span { start: span.start, end: span.start + 1 };
        let (span, what, close) = match what {
            Unclosed::Group => (open, format!("this {group} is never closed"), close),
            Unclosed::Comment(span) => (span, "this comment is never closed".into(), "*/"),
            Unclosed::Text(span) => (begin(span), "this text is never closed".into(), "\""),
            Unclosed::Char(span) => (begin(span), "this character is never closed".into(), "'"),
        };
        self.report(
            Diagnostic::error(span, what)
                .label("opened here")
                .help(format!("close it with `{close}`")),
        )
    }

    /// `KIND NAME(params)`
    fn target(&mut self) -> Parse<Target> {
        let next = self.cursor.next();
        let words = ProbeKind::ALL.map(ProbeKind::word);
        let kinds = || format!("a probe is at a {}", alternatives(&words, "or"));
        let Some(word) = self.word_of(next) else {
            return Err(self.unexpected(next, "a kind of probe", &kinds()));
        };
        let known = self.kind_of_two_words(word).or(ProbeKind::of(word));
        let kind = known.unwrap_or_else(|| {
            let help = match ProbeKind::of_other_tools(word) {
                Some(kind) => format!("write `{}`", kind.word()),
                None => did_you_mean(word, words).unwrap_or_else(kinds),
            };
            let what = format!("unknown kind of probe `{}`", shorten(word));
            self.report(Diagnostic::error(next.span, what).label("not a kind").help(help));
            ProbeKind::Tracepoint
        });
        let (name, span) = self.target_name(kind, known.is_some())?;
        let params = self.params(kind)?;
        Ok(Target { kind, name, params, lacks: None, only: Vec::new(), span })
    }

    /// `return syscall NAME`. A function may have the name `syscall`: then its parameters follow.
    fn kind_of_two_words(&mut self, first: &str) -> Option<ProbeKind> {
        let second = self.cursor.peek();
        let kind = ProbeKind::of(&format!("{first} {}", self.word_of(second)?))?;
        let after = self.cursor.text[second.span.end..].trim_start();
        (!after.starts_with('(')).then(|| {
            self.cursor.at = second.span.end;
            kind
        })
    }

    /// The name of an attach point, or a list of them with commas.
    fn target_name(&mut self, kind: ProbeKind, known: bool) -> Parse<(String, Span)> {
        let (mut name, mut span) = self.one_name(kind, known)?;
        let mut count = 1;
        while kind.takes_many() && self.cursor.peek().token == Token::Comma {
            self.cursor.next();
            let (other, at) = self.one_name(kind, known)?;
            self.check_alone(kind, [&name, &other], at);
            if name.split(", ").any(|before| before == other) {
                let what = format!("`{}` is in this list twice", shorten(&other));
                self.report(Diagnostic::error(at, what).label("again").help("remove it"));
            }
            count += 1;
            if count > PLACES_MAX {
                let what = format!("a probe has at most {PLACES_MAX} attach points");
                return Err(self.report(
                    Diagnostic::error(at, what).label("one more").help("write a second probe"),
                ));
            }
            name = format!("{name}, {other}");
            span.end = at.end;
        }
        Ok((name, span))
    }

    /// The name that stands for all system calls is not one of a list.
    fn check_alone(&mut self, kind: ProbeKind, names: [&str; 2], at: Span) {
        if kind.is_system_call() && names.contains(&ALL_CALLS) {
            self.report(
                Diagnostic::error(at, "`*` stands for all system calls")
                    .label("with others")
                    .help("write it alone, or in a probe of its own"),
            );
        }
    }

    /// Everything up to the parenthesis: names of attach points may contain characters that are not
    /// tokens of this language.
    fn one_name(&mut self, kind: ProbeKind, known: bool) -> Parse<(String, Span)> {
        let first = self.cursor.peek();
        let start = first.span.start;
        let rest = &self.cursor.text[start..];
        // Names of C++ have commas between `<` and `>`.
        let mut depth = 0i32;
        let ends = |c: char| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            "(){};\"".contains(c)
                || c == ',' && kind.takes_many() && depth <= 0
                || if kind.is_phrase() { c == '\n' } else { c.is_whitespace() }
        };
        let length = rest[..rest.find(ends).unwrap_or(rest.len())].trim_end().len();
        let span = Span { start, end: start + length };
        if length == 0 {
            self.cursor.at = first.span.end;
            return Err(self.unexpected(
                first,
                "the probe's attach point",
                &format!("for example `{}`", kind.example()),
            ));
        }
        self.cursor.at = span.end;
        let words: Vec<&str> = self.cursor.text(span).split_whitespace().collect();
        let name = &words.join(" ");
        if known && let Some((label, help)) = kind.wrong(name) {
            let what = format!("`{}` is not the name of a {}", shorten(name), kind.noun());
            self.report(Diagnostic::error(span, what).label(label).help(help));
        }
        Ok((name.into(), span))
    }

    fn params(&mut self, kind: ProbeKind) -> Parse<Vec<Param>> {
        let open = self.cursor.next();
        if open.token != Token::OpenParen {
            return Err(self.unexpected(
                open,
                "`(`",
                "the parameters that the body uses follow; write `()` if there are none",
            ));
        }
        let text = self.cursor.text;
        let end = match c::group_end(text, open.span.end, C::OpenParen, C::CloseParen) {
            Ok(end) => end,
            Err(unclosed) => return Err(self.unclosed(unclosed, open.span, "parenthesis", ")")),
        };
        self.cursor.at = end + 1;
        let tokens: Vec<(C, Span)> = c::tokens(text, Span { start: open.span.end, end }).collect();
        let nothing = matches!(tokens[..], [(C::Word, at)] if &text[at.start..at.end] == "void");
        if tokens.is_empty() || nothing {
            return Ok(Vec::new());
        }
        let mut params: Vec<Param> = Vec::new();
        let most = kind.parameters_max();
        if tokens.iter().filter(|(token, _)| *token == C::Comma).count() >= most {
            let message = match most {
                1 => "such a probe has one parameter, the result".into(),
                _ => format!("a probe has at most {most} parameters"),
            };
            self.report(
                Diagnostic::error(open.span, message)
                    .label("of these")
                    .help("write those that the body uses"),
            );
            return Ok(params);
        }
        for part in tokens.split(|(token, _)| *token == C::Comma) {
            let at = part.first().map_or(open.span, |(_, span)| *span);
            let whole =
                Span { start: at.start, end: part.last().map_or(at.end, |(_, span)| span.end) };
            match param(text, part) {
                Ok(param) if params.iter().any(|p| p.name == param.name) => {
                    let what = format!("two parameters are called `{}`", shorten(&param.name));
                    self.report(
                        Diagnostic::error(whole, what)
                            .label("again")
                            .help("give each parameter its own name"),
                    );
                }
                Ok(param) => params.push(param),
                Err((what, help)) => {
                    self.report(Diagnostic::error(whole, what).label("not a parameter").help(help));
                }
            }
        }
        Ok(params)
    }
}

/// One parameter: words and stars, the last word being its name. Otherwise the error and the
/// remedy.
fn param(text: &str, tokens: &[(C, Span)]) -> Result<Param, (&'static str, &'static str)> {
    const TYPE_AND_NAME: &str = "a parameter is a type and a name: `struct task_struct *prev`";
    let Some(((last, name), ty)) = tokens.split_last() else {
        return Err((
            "there is a comma, but no parameter",
            "remove the comma, or write the parameter",
        ));
    };
    let mut spelled = String::new();
    for (token, span) in tokens {
        match token {
            C::Word | C::Star => {}
            C::Ellipsis => {
                return Err((
                    "a probe has no variable number of parameters",
                    "write those that the body uses",
                ));
            }
            C::OpenBracket => {
                return Err(("an array is not a parameter", "write a pointer: `u8 *name`"));
            }
            C::OpenParen => {
                return Err(("a pointer to a function is not a parameter", "write `void *name`"));
            }
            _ => return Err(("a parameter has words and stars only", TYPE_AND_NAME)),
        }
        if span.start == name.start {
            break;
        }
        if !spelled.is_empty() && !(spelled.ends_with('*')) {
            spelled.push(' ');
        }
        spelled.push_str(&text[span.start..span.end]);
    }
    let word = &text[name.start..name.end];
    let tag = matches!(ty.last(), Some((C::Word, at)) if matches!(&text[at.start..at.end],
        "struct" | "union" | "enum"));
    if *last != C::Word || ty.is_empty() || tag || C_TYPE_WORDS.contains(&word) {
        return Err(("this parameter has no name, or no type", TYPE_AND_NAME));
    }
    if !names::is_parameter(word) {
        return Err(("this parameter's name means something else in C", "choose another name"));
    }
    Ok(Param { ty: spelled, name: word.into() })
}
