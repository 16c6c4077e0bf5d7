// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--engine`: its values and descriptions come from the registry.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use klogger_engines::choice::Choice;
use klogger_engines::engine::EngineInfo;
use klogger_engines::registry::{CHOICES, ENGINES, choice};

/// Parses the name of a choice of engines.
pub fn choices() -> impl TypedValueParser<Value = &'static Choice> {
    let values = CHOICES.iter().map(|c| PossibleValue::new(c.name).help(c.description));
    PossibleValuesParser::new(values).try_map(|name| choice(&name).ok_or("unknown engine"))
}

/// Takes the name of an engine that fits.
pub fn those_that(
    fit: impl Fn(&EngineInfo) -> bool,
) -> impl TypedValueParser<Value = &'static EngineInfo> {
    PossibleValuesParser::new(names(fit))
        .try_map(|name| ENGINES.into_iter().find(|e| e.name == name).ok_or("unknown engine"))
}

/// The names of the engines that fit.
pub fn names(fit: impl Fn(&EngineInfo) -> bool) -> Vec<&'static str> {
    ENGINES.into_iter().filter(|e| fit(e)).map(|e| e.name).collect()
}
