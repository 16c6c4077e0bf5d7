// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger list`

use super::{Format, Outcome};
use klogger_schema::model::Schema;
use klogger_toolchain::bundled;
use serde_json::{Value, json};
use std::process::ExitCode;

/// List the schemata that come with klogger
#[derive(clap::Args)]
pub struct Args {
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let units: Result<Vec<_>, _> = bundled::all().iter().map(|b| b.load()).collect();
    let schemas: Vec<Schema> = units?.into_iter().map(|u| u.schema).collect();
    match args.format {
        Format::Text => {
            for s in &schemas {
                println!("{:<14} {}", s.name, s.doc.as_deref().unwrap_or(""));
            }
            println!(
                "\n'klogger show NAME' shows its events; 'klogger record -s NAME -- COMMAND' records with it."
            );
        }
        Format::Json => {
            let list: Vec<Value> =
                schemas.iter().map(|s| json!({ "name": s.name, "doc": s.doc })).collect();
            println!("{:#}", Value::from(list));
        }
    }
    Ok(ExitCode::SUCCESS)
}
