// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `state NAME[N] by TYPE "doc" { fields }`

use super::{EventDraft, Name, Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Entries, Event, Field, Key, Scope, Shape, Span, State};
use crate::names::Kind;
use crate::vocabulary::TYPES;

/// Most entries of a state.
pub const ENTRIES_MAX: u64 = 1 << 24;
/// Most bytes of one entry's fields: a copy of one is on the stack of a BPF program.
const SIZE_MAX: u32 = 256;

impl Parser<'_> {
    /// Without the first word.
    pub(super) fn state(&mut self) -> Parse<()> {
        let name = self.name(Kind::State)?;
        let entries = self.entries()?;
        if self.cursor.eat_word("by").is_none() {
            let next = self.cursor.next();
            let help = "a state says what its entries are found by: `by ulong`, `by thread` or \
                        `by cpu`";
            return Err(self.unexpected(next, "`by`", help));
        }
        let key = self.key()?;
        let (entries, entries_span) = self.number_for(entries, key, &name)?;
        let doc = self.doc()?;
        let open = self.open_brace(&format!("state {}", name.text))?;
        let fields = self.state_fields(open, &name.text)?;
        let state = State { name: name.text, doc, entries, key, fields, span: name.span };
        self.draft.states.push((state, entries_span));
        Ok(())
    }

    /// The number of entries, which only a state by a value has, and its position.
    fn number_for(
        &mut self,
        entries: Option<(Entries, Span)>,
        key: Key,
        name: &Name,
    ) -> Parse<(Entries, Span)> {
        let each = match key {
            Key::Value(_) => None,
            Key::Thread => Some("a state by thread has one entry for each thread"),
            Key::Cpu => Some("a state by cpu has one entry for each CPU"),
        };
        match (entries, each) {
            (Some(entries), None) => Ok(entries),
            (None, Some(_)) => Ok((Entries::Each, name.span)),
            (Some((_, span)), Some(why)) => Err(self.report(
                Diagnostic::error(span, why).label("not needed").help("remove the number"),
            )),
            (None, None) => {
                let help = format!("write how many it holds: `state {}[10000] by ...`", name.text);
                Err(self.report(
                    Diagnostic::error(name.span, "a state has a number of entries")
                        .label("how many is missing")
                        .help(help),
                ))
            }
        }
    }

    /// `[N]`, where N is a number or a parameter.
    fn entries(&mut self) -> Parse<Option<(Entries, Span)>> {
        if self.cursor.eat(Token::OpenBracket).is_none() {
            return Ok(None);
        }
        let next = self.cursor.next();
        let entries = match next.token {
            Token::Number => {
                let n = self.number(next.span)?;
                if !(1..=ENTRIES_MAX).contains(&n) {
                    self.report(
                        Diagnostic::error(next.span, format!("a state of {n} entries"))
                            .label("not supported")
                            .help(format!("a state has 1 to {ENTRIES_MAX} entries")),
                    );
                }
                Entries::Number(n)
            }
            Token::Word => Entries::Parameter(self.cursor.text(next.span).into()),
            _ => {
                let help = "a number, or the name of a parameter: `[10000]`";
                return Err(self.unexpected(next, "the number of entries", help));
            }
        };
        match self.cursor.eat(Token::CloseBracket) {
            Some(_) => Ok(Some((entries, next.span))),
            None => {
                let next = self.cursor.next();
                Err(self.unexpected(next, "`]`", "the number of entries is between `[` and `]`"))
            }
        }
    }

    fn key(&mut self) -> Parse<Key> {
        let next = self.cursor.next();
        let word = self.word_of(next).unwrap_or_default();
        match (word, TYPES.iter().find(|(name, _)| *name == word)) {
            ("thread", _) => Ok(Key::Thread),
            ("cpu", _) => Ok(Key::Cpu),
            (_, Some((_, scalar))) => Ok(Key::Value(*scalar)),
            (_, None) => {
                let help = "a key is an integer type, such as `ulong` for an address; `thread`; or \
                            `cpu`";
                Err(self.unexpected(next, "what the key is", help))
            }
        }
    }

    fn state_fields(&mut self, open: Span, name: &str) -> Parse<Vec<Field>> {
        // Fields are written as those of events are.
        let mut draft = EventDraft {
            event: Event {
                name: name.into(),
                doc: None,
                fields: Vec::new(),
                scope: Scope::All,
                role: None,
                begins: Vec::new(),
                ends: Vec::new(),
                line: None,
                condition: None,
                triggers: Vec::new(),
                poll: None,
                span: open,
            },
            scope_spans: Vec::new(),
            decode_spans: Vec::new(),
            contexts: Vec::new(),
            role_span: Span::default(),
            incomplete: false,
        };
        loop {
            let next = self.cursor.peek();
            match next.token {
                Token::CloseBrace => {
                    self.cursor.at = next.span.end;
                    break;
                }
                Token::Semicolon => self.cursor.at = next.span.end,
                _ if next.token == Token::End || self.at_declaration() => {
                    return Err(self.report(
                        Diagnostic::error(open, format!("the braces of state {name} are open"))
                            .label("opened here")
                            .related(next.span, "`}` is missing before this")
                            .help("write `}` after the last field"),
                    ));
                }
                _ => self.field(&mut draft)?,
            }
        }
        self.check_state(open, &draft.event.fields);
        Ok(draft.event.fields)
    }

    fn check_state(&mut self, open: Span, fields: &[Field]) {
        let text = fields.iter().find(|f| matches!(f.shape, Shape::Tail(_)));
        if let Some(text) = text {
            self.report(
                Diagnostic::error(text.span, "a text in a state needs a length")
                    .label("of any length")
                    .help(format!("write `string[32] {}`", text.name)),
            );
        }
        let size: u32 = fields.iter().map(|f| f.shape.align_and_size(f.scalar).1).sum();
        if fields.is_empty() || size > SIZE_MAX {
            self.report(
                Diagnostic::error(open, format!("the fields of an entry take {size} bytes"))
                    .label("not supported")
                    .help(format!("an entry has 1 to {SIZE_MAX} bytes of fields")),
            );
        }
    }
}
