// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe KIND NAME(params) or KIND NAME(params) { C }` and `code { C }`.

use super::{Parse, Parser};
use crate::c::{self, BadCall, Token as C, Unclosed};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{CBlock, Call, Param, Probe, ProbeKind, Span, Target};
use crate::names::{self, shorten};
use crate::nearest::did_you_mean;
use crate::words::{C_MACROS, C_RESERVED, C_TYPE_WORDS, PROBE_REMEDIES};

/// Bytes of a target's name at most: a path and a symbol.
const TARGET_MAX: usize = 512;
/// What a tracepoint can have.
const PARAMS_MAX: usize = 12;

impl Parser<'_> {
    /// Without the word `probe`, which stands at `keyword`.
    pub(super) fn probe(&mut self, keyword: Span) -> Parse<()> {
        let mut targets = vec![self.target()?];
        while self.cursor.eat_word("or").is_some() {
            targets.push(self.target()?);
        }
        let span = Span { start: keyword.start, end: self.cursor.at };
        let next = self.cursor.peek();
        if next.token != Token::OpenBrace {
            self.cursor.at = next.span.end;
            let help = "after its places a probe has a body in C between `{` and `}`; `or` joins alternatives";
            return Err(self.unexpected(next, "`{` or `or`", help));
        }
        let body = self.c_block()?;
        let calls = self.calls(&body);
        self.draft.probes.push(Probe { targets, body, calls, span });
        Ok(())
    }

    /// Without the word `code`.
    pub(super) fn code(&mut self) -> Parse<()> {
        let block = self.c_block()?;
        for call in c::calls(self.cursor.text, block.span) {
            let span = call.map_or_else(|BadCall(span)| span, |call| call.span);
            self.report(
                Diagnostic::error(span, "klogger() is called outside of a probe")
                    .label("no probe has been hit here")
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
                let help = "write `klogger(EVENT, value, ...)`, with the name of an event of this schema, and close it with `)`";
                self.report(Diagnostic::error(span, "this klogger() call names no event").label("no event's name").help(help));
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
        // Only where it begins: the rest may be half the file.
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
        let Some(word) = self.word_of(next) else {
            let help = format!("a probe is at a {}", crate::nearest::alternatives(&words, "or"));
            return Err(self.unexpected(next, "a kind of probe", &help));
        };
        let kind = ProbeKind::ALL.into_iter().find(|k| k.word() == word).unwrap_or_else(|| {
            let help = match PROBE_REMEDIES.iter().find(|(other, _)| *other == word) {
                Some((_, kind)) => format!("write `{}`", kind.word()),
                None => did_you_mean(word, words).unwrap_or_else(|| {
                    format!("a probe is at a {}", crate::nearest::alternatives(&words, "or"))
                }),
            };
            let what = format!("unknown kind of probe `{}`", shorten(word));
            self.report(Diagnostic::error(next.span, what).label("not a kind").help(help));
            ProbeKind::Tracepoint
        });
        let (name, span) = self.target_name(kind, word == kind.word())?;
        let params = self.params()?;
        Ok(Target { kind, name, params, span })
    }

    /// All up to the parenthesis: names of places hold characters that are no tokens of this
    /// language.
    fn target_name(&mut self, kind: ProbeKind, known: bool) -> Parse<(String, Span)> {
        let first = self.cursor.peek();
        let start = first.span.start;
        let rest = &self.cursor.text[start..];
        let length =
            rest.find(|c: char| c.is_whitespace() || "(){};\"".contains(c)).unwrap_or(rest.len());
        let span = Span { start, end: start + length };
        if length == 0 {
            self.cursor.at = first.span.end;
            return Err(self.unexpected(
                first,
                "the probe's place",
                &format!("for example `{}`", example(kind)),
            ));
        }
        self.cursor.at = span.end;
        let name = self.cursor.text(span);
        if known && let Some((label, help)) = wrong_target(kind, name) {
            let what = format!("`{}` is not the name of a {}", shorten(name), place(kind));
            self.report(Diagnostic::error(span, what).label(label).help(help));
        }
        Ok((name.into(), span))
    }

    fn params(&mut self) -> Parse<Vec<Param>> {
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
        if tokens.iter().filter(|(token, _)| *token == C::Comma).count() >= PARAMS_MAX {
            let message = format!("a probe has at most {PARAMS_MAX} parameters");
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

/// One parameter: words and stars, the last word being its name. Otherwise what is wrong, and the
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
    let tag = matches!(ty.last(), Some((C::Word, at)) if matches!(&text[at.start..at.end], "struct" | "union" | "enum"));
    if *last != C::Word || ty.is_empty() || tag || C_TYPE_WORDS.contains(&word) {
        return Err(("this parameter has no name, or no type", TYPE_AND_NAME));
    }
    if C_RESERVED.contains(&word) || C_MACROS.contains(&word) || !names::is_identifier(word) {
        return Err(("this parameter's name means something else in C", "choose another name"));
    }
    Ok(Param { ty: spelled, name: word.into() })
}

/// Why a name cannot be that of a place of this kind, and the remedy.
fn wrong_target(kind: ProbeKind, name: &str) -> Option<(&'static str, String)> {
    let example = format!("for example `{}`", example(kind));
    if name.len() > TARGET_MAX
        || !name.chars().all(|c| c.is_ascii_graphic() && !"\\'`$".contains(c))
    {
        return Some(("not the characters of a name", example));
    }
    match kind {
        ProbeKind::Tracepoint => match name.rsplit_once(':') {
            Some((_, own)) => Some(("with its group", format!("leave the group away: `{own}`"))),
            None => (!names::is_identifier(name)).then_some(("not a tracepoint's name", example)),
        },
        ProbeKind::Syscall => {
            (!names::is_identifier(name)).then_some(("not a system call's name", example))
        }
        ProbeKind::Function | ProbeKind::Return => {
            let symbol = name.rsplit_once(':').map_or(name, |(_, symbol)| symbol);
            (!is_symbol(symbol) || name.starts_with(':'))
                .then_some(("not a function's name", example))
        }
        ProbeKind::User => {
            let good = name
                .rsplit_once(':')
                .is_some_and(|(path, symbol)| !path.is_empty() && is_symbol(symbol));
            (!good).then_some(("needs a program or library, and a function in it", example))
        }
        ProbeKind::Usdt => {
            let parts: Vec<&str> = name.rsplitn(3, ':').collect();
            let good = parts.len() == 3 && parts.iter().all(|part| !part.is_empty());
            (!good).then_some(("needs a program or library, a provider and a name", example))
        }
        ProbeKind::Timer => (!is_rate(name)).then_some((
            "not a rate or an interval",
            format!("{example}: 1 to 10000 Hz, or 1 to 3600 s, or ms, or us of at least 100"),
        )),
    }
}

/// A function's name: C's, and what compilers add, such as `.isra.0`.
fn is_symbol(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.@+-".contains(c))
}

/// `99Hz`, `10ms`: between once an hour and 10,000 times a second, which is as fast as a timer is
/// of any use.
fn is_rate(name: &str) -> bool {
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    let Ok(n) = name[..digits].parse::<u64>() else { return false };
    match &name[digits..] {
        "Hz" => (1..=10_000).contains(&n),
        "kHz" => (1..=10).contains(&n),
        "us" => (100..=3_600_000_000).contains(&n),
        "ms" => (1..=3_600_000).contains(&n),
        "s" => (1..=3_600).contains(&n),
        _ => false,
    }
}

fn place(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Tracepoint => "tracepoint",
        ProbeKind::Function | ProbeKind::Return => "function",
        ProbeKind::Syscall => "system call",
        ProbeKind::User => "function of a program",
        ProbeKind::Usdt => "static probe of a program",
        ProbeKind::Timer => "timer",
    }
}

fn example(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Tracepoint => {
            "probe tracepoint sched_switch(bool preempt, struct task_struct *prev)"
        }
        ProbeKind::Function => "probe function vfs_read(struct file *file)",
        ProbeKind::Return => "probe return vfs_read(long result)",
        ProbeKind::Syscall => "probe syscall openat(int dfd, const char *filename)",
        ProbeKind::User => "probe user /usr/bin/bash:readline(const char *prompt)",
        ProbeKind::Usdt => "probe usdt /usr/bin/python3:python:gc__start(int generation)",
        ProbeKind::Timer => "probe timer 99Hz()",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for good in ["1Hz", "10000Hz", "10kHz", "100us", "1ms", "3600s"] {
            assert!(is_rate(good), "{good}");
        }
        for bad in [
            "",
            "Hz",
            "0Hz",
            "10001Hz",
            "99us",
            "3601s",
            "1h",
            "1 s",
            "99999999999999999999s",
            "-1s",
        ] {
            assert!(!is_rate(bad), "{bad}");
        }
    }

    #[test]
    fn every_example_is_legal() {
        for kind in ProbeKind::ALL {
            let words: Vec<&str> = example(kind).split([' ', '(']).collect();
            assert_eq!((words[0], words[1]), ("probe", kind.word()));
            assert_eq!(wrong_target(kind, words[2]), None);
        }
    }
}
