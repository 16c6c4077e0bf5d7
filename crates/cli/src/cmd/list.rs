// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger list`

use super::{Format, Outcome};
use klogger_engines::choice::Choice;
use klogger_engines::registry::CHOICES;
use klogger_schema::model::Schema;
use klogger_toolchain::bundled;
use serde_json::{Value, json};
use std::process::ExitCode;

/// List the bundled schemata, or the engines
#[derive(clap::Args)]
pub struct Args {
    /// List the values of 'klogger record --engine', and whether each can run here
    #[arg(long)]
    engines: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    match args.engines {
        true => engines(args.format),
        false => schemata(args.format)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn schemata(format: Format) -> Result<(), klogger_os::Error> {
    let units: Result<Vec<_>, _> = bundled::all().iter().map(|b| b.load()).collect();
    let schemas: Vec<Schema> = units?.into_iter().map(|u| u.schema).collect();
    match format {
        Format::Text => {
            for s in &schemas {
                println!("{:<14} {}", s.name, s.doc.as_deref().unwrap_or(""));
            }
            println!(
                "\n'klogger show NAME' shows its events.\n\
                 'klogger record -s NAME -- COMMAND' records with it."
            );
        }
        Format::Json => {
            let list: Vec<Value> =
                schemas.iter().map(|s| json!({ "name": s.name, "doc": s.doc })).collect();
            println!("{:#}", Value::from(list));
        }
    }
    Ok(())
}

fn engines(format: Format) {
    match format {
        Format::Text => {
            for choice in &CHOICES {
                println!("{:<8} {}", choice.name, choice.description);
                if let Err(e) = choice.check() {
                    println!("         not here: {}", e.message);
                    e.help.iter().for_each(|help| println!("         help: {help}"));
                }
            }
            println!("\n'klogger record --engine NAME' records with it; 'auto' is the default.");
        }
        Format::Json => println!("{:#}", CHOICES.iter().map(described).collect::<Value>()),
    }
}

/// `engines`: those that may take part. `why_not` and `help` are null if it can run.
fn described(choice: &Choice) -> Value {
    let engines: Vec<&str> = choice.engines.iter().map(|e| e.name).collect();
    let refusal = choice.check().err();
    json!({
        "name": choice.name,
        "description": choice.description,
        "engines": engines,
        "available": refusal.is_none(),
        "why_not": refusal.as_ref().map(|e| &e.message),
        "help": refusal.as_ref().and_then(|e| e.help.as_ref()),
    })
}
