// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `event NAME "doc" scope FIELD { fields }`.

use super::{EventDraft, Name, Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::model::{Event, Poll, Scope, Span};
use crate::names::{Kind, is_type};
use crate::nearest::alternatives;
use crate::vocabulary::ROLES;

/// Each field costs one more test in each hit of a probe.
const SCOPE_MAX: usize = 8;

impl EventDraft {
    pub(super) fn new(name: &Name, poll: Option<Poll>) -> EventDraft {
        EventDraft {
            event: Event {
                name: name.text.clone(),
                doc: None,
                fields: Vec::new(),
                scope: if poll.is_some() { Scope::All } else { Scope::Current },
                role: None,
                begins: Vec::new(),
                ends: Vec::new(),
                line: None,
                condition: None,
                triggers: Vec::new(),
                poll,
                span: name.span,
            },
            scope_spans: Vec::new(),
            decode_spans: Vec::new(),
            contexts: Vec::new(),
            role_span: Span::default(),
            incomplete: false,
        }
    }
}

impl Parser<'_> {
    /// Without the word `event`.
    pub(super) fn event(&mut self) -> Parse<()> {
        let name = self.name(Kind::Event)?;
        let mut draft = EventDraft::new(&name, None);
        self.event_head(&mut draft)?;
        let open = self.open_brace(&format!("event {}", name.text))?;
        let closed = self.event_body(&mut draft, open, &name);
        self.draft.events.push(draft);
        closed
    }

    /// Doc, scope and role, in any order.
    fn event_head(&mut self, draft: &mut EventDraft) -> Parse<()> {
        let mut scope_at: Option<Span> = None;
        loop {
            if let Some(text) = self.doc()? {
                draft.event.doc = Some(text);
            } else if let Some(word) = self.cursor.eat_word("scope") {
                if let Some(before) = scope_at.replace(word) {
                    self.report(
                        Diagnostic::error(word, "an event has one scope")
                            .label("a second one")
                            .related(before, "the first")
                            .help("name all threads at once: `scope pid, waker`"),
                    );
                }
                self.scope(draft)?;
            } else if self.cursor.eat_word("role").is_some() {
                self.role(draft)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Without the word `role`.
    fn role(&mut self, draft: &mut EventDraft) -> Parse<()> {
        let known = ROLES.map(|(word, _)| word);
        let next = self.cursor.next();
        let found =
            self.word_of(next).and_then(|word| ROLES.iter().find(|(name, _)| *name == word));
        let Some((_, role)) = found else {
            let help = format!("roles are {}", alternatives(&known, "and"));
            return Err(self.unexpected(next, "a role", &help));
        };
        draft.role_span = next.span;
        if draft.event.role.replace(*role).is_some() {
            self.report(
                Diagnostic::error(next.span, "an event has one role")
                    .label("a second one")
                    .help("remove it"),
            );
        }
        Ok(())
    }

    /// `all`, `current`, or names of fields.
    fn scope(&mut self, draft: &mut EventDraft) -> Parse<()> {
        draft.scope_spans.clear();
        let mut fields = Vec::new();
        loop {
            let next = self.cursor.next();
            let Some(word) = self.word_of(next) else {
                return Err(self.unexpected(
                    next,
                    "the event's scope",
                    "`scope all`, `scope current`, or fields that hold thread ids",
                ));
            };
            if fields.len() >= SCOPE_MAX || fields.iter().any(|f| f == word) {
                let message = format!("a scope has at most {SCOPE_MAX} fields, each once");
                return Err(self.report(
                    Diagnostic::error(next.span, message).label("one too many").help("remove it"),
                ));
            }
            fields.push(word.to_string());
            draft.scope_spans.push(next.span);
            if self.cursor.eat(Token::Comma).is_none() {
                break;
            }
        }
        draft.event.scope = match fields.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["all"] => Scope::All,
            ["current"] => Scope::Current,
            _ => Scope::Fields(fields),
        };
        if !matches!(draft.event.scope, Scope::Fields(_)) {
            draft.scope_spans.clear();
        }
        Ok(())
    }

    /// Fields up to the closing brace.
    pub(super) fn event_body(
        &mut self,
        draft: &mut EventDraft,
        open: Span,
        name: &Name,
    ) -> Parse<()> {
        loop {
            let next = self.cursor.peek();
            match next.token {
                Token::CloseBrace => {
                    self.cursor.at = next.span.end;
                    return Ok(());
                }
                Token::Semicolon => self.cursor.at = next.span.end,
                Token::End => return self.never_closed(open, next.span, &name.text),
                _ if self.at_declaration() => {
                    return self.never_closed(open, next.span, &name.text);
                }
                _ if self.full() => return Ok(()),
                _ if self.cursor.eat_word("context").is_some() => match self.contexts(true) {
                    Ok(found) => draft.contexts.extend(found),
                    Err(_) => self.skip_field(draft),
                },
                _ => {
                    if self.field(draft).is_err() {
                        self.skip_field(draft);
                    }
                }
            }
        }
    }

    fn never_closed(&mut self, open: Span, at: Span, event: &str) -> Parse<()> {
        self.draft.incomplete = true;
        self.report(
            Diagnostic::error(open, format!("the braces of event {event} are never closed"))
                .label("opened here")
                .related(at, "`}` is missing before this")
                .help("write `}` after the last field"),
        );
        Ok(())
    }

    /// Skips to where the next field seems to begin.
    fn skip_field(&mut self, draft: &mut EventDraft) {
        draft.incomplete = true;
        loop {
            let next = self.cursor.peek();
            let begins = match next.token {
                Token::End | Token::CloseBrace | Token::Semicolon => true,
                Token::Word => {
                    self.word_of(next).is_some_and(|w| is_type(w) || w == "context")
                        || self.at_declaration()
                }
                _ => false,
            };
            if begins {
                return;
            }
            self.cursor.at = next.span.end;
        }
    }
}
