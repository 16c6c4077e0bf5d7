// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--engine`: its values and descriptions come from the registry.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use klogger_engines::registry::{CHOICES, Choice};

/// Parses the name of a choice of engines.
pub fn parser() -> impl TypedValueParser<Value = &'static Choice> {
    let values = CHOICES.iter().map(|c| PossibleValue::new(c.name).help(c.description));
    PossibleValuesParser::new(values).try_map(|name| Choice::find(&name).ok_or("unknown engine"))
}
