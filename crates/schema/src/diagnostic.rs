// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A diagnostic: what is wrong with a schema, where, and the remedy. The caller prints it.

use crate::model::Span;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// One error or warning. [`miette`] can render it, given the text as source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    pub span: Span,
    /// The label of `span`; if it is empty, `span` is only underlined.
    pub label: String,
    /// The remedy.
    pub help: Option<String>,
    /// A second, related place: "first declared here".
    pub related: Option<(Span, String)>,
}

impl Diagnostic {
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            span,
            label: String::new(),
            help: None,
            related: None,
        }
    }

    pub fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) }
    }

    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    pub fn help(mut self, remedy: impl Into<String>) -> Diagnostic {
        self.help = Some(remedy.into());
        self
    }

    pub fn related(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.related = Some((span, label.into()));
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|h| Box::new(h) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        let label = (!self.label.is_empty()).then(|| self.label.clone());
        let primary = miette::LabeledSpan::new_primary_with_span(label, range(self.span));
        let related = self.related.iter().map(|(span, label)| {
            miette::LabeledSpan::new_with_span(Some(label.clone()), range(*span))
        });
        Some(Box::new(std::iter::once(primary).chain(related)))
    }
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.start..span.end
}
