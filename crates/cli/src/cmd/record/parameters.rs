// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--set`: values for parameters of schemata.

use crate::failure::Failure;
use klogger_engines::choice::Choice;
use klogger_schema::model::{Parameter, Schema};
use klogger_schema::nearest::did_you_mean;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// `SCHEMA.NAME=VALUE`, or `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    schema: Option<String>,
    name: String,
    value: String,
}

pub fn setting(text: &str) -> Result<Setting, String> {
    let (place, value) =
        text.split_once('=').ok_or("write NAME=VALUE, or SCHEMA.NAME=VALUE: slow=10ms")?;
    let (schema, name) = match place.trim().rsplit_once('.') {
        Some((schema, name)) => (Some(schema.to_string()), name),
        None => (None, place.trim()),
    };
    if name.is_empty() || value.trim().is_empty() {
        return Err("write NAME=VALUE, or SCHEMA.NAME=VALUE: slow=10ms".into());
    }
    Ok(Setting { schema, name: name.into(), value: value.trim().into() })
}

/// Sets the parameters of the schemata that are recorded.
pub fn set(
    units: &mut [CompiledSchema],
    settings: &[Setting],
    choice: &Choice,
) -> Result<(), Failure> {
    if !settings.is_empty() && !choice.has_probes() {
        let name = choice.name;
        return Err(Failure::new(format!(
            "--set: the {name} engine runs no probes, which are all that parameters are for"
        ))
        .help("record without --set, or with another engine"));
    }
    for (n, setting) in settings.iter().enumerate() {
        let (unit, at) = find(units, setting)?;
        let before = settings[..n].iter().any(|s| find(units, s).is_ok_and(|p| p == (unit, at)));
        let schema = &mut units[unit].schema;
        let whole = format!("{}.{}", schema.name, schema.parameters[at].name);
        if before {
            return Err(Failure::new(format!("--set: {whole} is given two values"))
                .help("give each parameter one"));
        }
        let value = schema.parameters[at].value_of(&setting.value);
        schema.parameters[at].value = value
            .map_err(|e| Failure::new(format!("--set {whole}: {}", e.message)).help(e.help))?;
    }
    Ok(())
}

/// The indices of the schema and of the parameter.
fn find(units: &[CompiledSchema], setting: &Setting) -> Result<(usize, usize), Failure> {
    let Setting { schema, name, .. } = setting;
    let wanted = |s: &Schema| schema.as_ref().is_none_or(|own| s.name.eq_ignore_ascii_case(own));
    if let Some(own) = schema.as_ref().filter(|_| !units.iter().any(|u| wanted(&u.schema))) {
        let names = units.iter().map(|u| u.schema.name.as_str());
        let failure = Failure::new(format!("--set: the schema '{own}' is not recorded"));
        return Err(match did_you_mean(own, names) {
            Some(help) => failure.help(help),
            None => failure.help(format!("record it as well: -s {own}")),
        });
    }
    let at = |unit: &CompiledSchema| {
        wanted(&unit.schema).then(|| place(&unit.schema.parameters, name)).flatten()
    };
    let mut found = units.iter().enumerate().filter_map(|(n, unit)| Some((n, at(unit)?)));
    let Some(first) = found.next() else { return Err(unknown(units, &wanted, name)) };
    if let Some(other) = found.next() {
        let names = [first.0, other.0].map(|n| units[n].schema.name.as_str());
        return Err(Failure::new(format!(
            "--set: the schemata '{}' and '{}' both have a parameter '{name}'",
            names[0], names[1]
        ))
        .help(format!("name the schema: --set {}.{name}={}", names[0], setting.value)));
    }
    Ok(first)
}

fn place(parameters: &[Parameter], name: &str) -> Option<usize> {
    parameters.iter().position(|p| p.name.eq_ignore_ascii_case(name))
}

fn unknown(units: &[CompiledSchema], wanted: &dyn Fn(&Schema) -> bool, name: &str) -> Failure {
    let all: Vec<&str> = units
        .iter()
        .filter(|unit| wanted(&unit.schema))
        .flat_map(|unit| unit.schema.parameters.iter().map(|p| p.name.as_str()))
        .collect();
    let failure =
        Failure::new(format!("--set: no schema of this recording has a parameter '{name}'"));
    match (did_you_mean(name, all.iter().copied()), all.is_empty()) {
        (Some(help), _) => failure.help(help),
        (None, true) => failure.help("they have no parameters; 'klogger show SCHEMA' lists those"),
        (None, false) => failure.help(format!("there are: {}", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_engines::registry::CHOICES;

    fn unit(name: &str, text: &str) -> CompiledSchema {
        let text = format!("schema {name}\n{text}");
        let schema = klogger_schema::parse("x.klogger", &text, &Default::default()).unwrap().schema;
        CompiledSchema { schema, object: None }
    }

    fn values(settings: &[&str]) -> Result<Vec<i128>, (String, String)> {
        let settings: Vec<Setting> = settings.iter().map(|s| setting(s).unwrap()).collect();
        let mut units = [
            unit("io", "parameter ulong slow in ns = 10ms\nparameter uint depth = 4 from 1 to 8"),
            unit("net", "parameter uint slow in ms = 1"),
        ];
        set(&mut units, &settings, &CHOICES[0])
            .map_err(|e| (e.message.clone(), e.help.clone().unwrap_or_default()))?;
        Ok(units.iter().flat_map(|u| u.schema.parameters.iter().map(|p| p.value)).collect())
    }

    #[test]
    fn a_parameter_is_named_alone_or_with_its_schema() {
        assert_eq!(values(&[]).unwrap(), [10_000_000, 4, 1]);
        assert_eq!(values(&["io.slow=2us", "depth=8"]).unwrap(), [2000, 8, 1]);
        assert_eq!(values(&["net.slow = 3s"]).unwrap(), [10_000_000, 4, 3000]);
    }

    #[test]
    fn each_mistake_has_its_message() {
        let error = |text: &str| values(&[text]).unwrap_err();
        let said = |message: &str, help: &str| (message.to_string(), help.to_string());
        assert_eq!(
            error("slow=1"),
            said(
                "--set: the schemata 'io' and 'net' both have a parameter 'slow'",
                "name the schema: --set io.slow=1"
            )
        );
        assert_eq!(
            error("dept=1"),
            said(
                "--set: no schema of this recording has a parameter 'dept'",
                "did you mean `depth`?"
            )
        );
        assert_eq!(error("depth=9"), said("--set io.depth: 9 is out of range", "depth is 1 to 8"));
        assert_eq!(
            error("disk.slow=1"),
            said("--set: the schema 'disk' is not recorded", "record it as well: -s disk")
        );
        assert_eq!(
            values(&["depth=2", "io.depth=3"]).unwrap_err().0,
            "--set: io.depth is given two values"
        );
        assert!(setting("slow").is_err() && setting("=1").is_err() && setting("a=").is_err());
    }
}
