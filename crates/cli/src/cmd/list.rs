// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger list`

use super::{Format, Outcome};
use crate::own_schemata;
use crate::schema_file;
use klogger_engines::choice::Choice;
use klogger_engines::registry::CHOICES;
use klogger_schema::{Options, parse};
use klogger_toolchain::bundled;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// List the schemata that can be recorded by name, or the engines
#[derive(clap::Args)]
pub struct Args {
    /// List the values of 'klogger record --engine', and whether each can run here
    #[arg(long)]
    engines: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

pub fn run(args: Args) -> Outcome {
    match args.engines {
        true => engines(args.format),
        false => schemata(args.format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A schema that can be recorded by name.
struct Listed {
    name: String,
    doc: Option<String>,
    /// Of the user's own ones.
    file: Option<PathBuf>,
    /// False: it has errors.
    ok: bool,
}

fn schemata(format: Format) -> Result<(), klogger_os::Error> {
    let own = own_schemata::all();
    let mut all = Vec::new();
    for bundled in bundled::all().iter().filter(|b| !own.contains_key(b.name)) {
        let schema = bundled.load()?.schema;
        all.push(Listed { name: schema.name, doc: schema.doc, file: None, ok: true });
    }
    all.extend(own.into_iter().map(|(name, file)| listed(name, file)));
    match format {
        Format::Text => {
            let hint = |s: &Listed| (!s.ok).then_some("has errors, see 'klogger check'");
            for s in &all {
                say!("{:<14} {}", s.name, hint(s).or(s.doc.as_deref()).unwrap_or(""));
                s.file.iter().for_each(|file| say!("{:<14} {}", "", file.display()));
            }
            say!(
                "\n'klogger show NAME' shows its events.\n\
                 'klogger record -s NAME -- COMMAND' records with it.\n\
                 'klogger new NAME' writes one of your own."
            );
        }
        Format::Json => {
            let list = all
                .iter()
                .map(|s| json!({ "name": s.name, "doc": s.doc, "file": s.file, "ok": s.ok }));
            say_json!(list.collect::<Value>());
        }
    }
    Ok(())
}

fn listed(name: String, file: PathBuf) -> Listed {
    let text = schema_file::read(&file).ok();
    let parsed =
        text.and_then(|text| parse(&file.to_string_lossy(), &text, &Options::default()).ok());
    let ok = parsed.is_some();
    // By its name as a folder, which is what `-s` takes.
    Listed { name, doc: parsed.and_then(|p| p.schema.doc), file: Some(file), ok }
}

fn engines(format: Format) {
    match format {
        Format::Text => {
            for choice in &CHOICES {
                say!("{:<8} {}", choice.name, choice.description);
                if let Err(e) = choice.check() {
                    say!("         not here: {}", e.message);
                    e.help.iter().for_each(|help| say!("         help: {help}"));
                }
            }
            say!("\n'klogger record --engine NAME' records with it; 'auto' is the default.");
        }
        Format::Json => say_json!(CHOICES.iter().map(described).collect::<Value>()),
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
