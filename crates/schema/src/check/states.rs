// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks states: their names, and the parameters that say how large they are.

use super::{parameter_named, unique};
use crate::diagnostic::Diagnostic;
use crate::model::{Entries, Scalar, State};
use crate::names::shorten;
use crate::parse::{Draft, ENTRIES_MAX};

/// Reports what is wrong with them.
pub fn check(draft: &Draft, found: &mut Vec<Diagnostic>) {
    unique("a state", draft.states.iter().map(|(s, _)| (s.name.as_str(), s.span)), found);
    for (state, _) in &draft.states {
        let same = |name: &str| name.eq_ignore_ascii_case(&state.name);
        let parameter = draft.parameters.iter().find(|p| same(&p.name));
        found.extend(parameter.map(|p| {
            Diagnostic::error(state.span, format!("there is a parameter `{}` already", p.name))
                .label("declared again")
                .related(p.span, "declared here")
                .help("choose another name")
        }));
    }
    for (state, span) in &draft.states {
        unique("a field", state.fields.iter().map(|f| (f.name.as_str(), f.span)), found);
        if let Entries::Parameter(name) = &state.entries {
            found.extend(wrong_number(draft, state, name).map(|(message, help)| {
                Diagnostic::error(*span, message).label("not a number of entries").help(help)
            }));
        }
    }
}

/// Why a parameter cannot be the number of a state's entries.
fn wrong_number(draft: &Draft, state: &State, name: &str) -> Option<(String, String)> {
    let declare = format!(
        "write a number, or declare it: `parameter uint {} = 10000 from 1 to 1000000`",
        shorten(name)
    );
    let p = match parameter_named(draft, name, declare) {
        Ok(p) => p,
        Err(fault) => return fault,
    };
    let fits = p.scalar != Scalar::Bool && p.least >= 1 && p.most <= ENTRIES_MAX.into();
    (!fits).then(|| {
        (
            format!("`{name}` may be a number of entries that state {} cannot have", state.name),
            format!("give it a range: `from 1 to {ENTRIES_MAX}`, or less"),
        )
    })
}
