// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check-log`

mod found;

use self::found::Found;
use super::{Format, Outcome};
use crate::failure::Failure;
use crate::messages;
use crate::schema_file;
use crate::text::open;
use klogger_log::damage::Damage;
use klogger_log::decode::Decoder;
use klogger_log::filter::FilterError;
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::reader::Reader;
use klogger_log::rules::gaps::{self, Missing};
use klogger_log::rules::tally::Tally;
use klogger_log::rules::{Checker, Log, Source};
use klogger_log::text::{escaped, escaped_lines};
use klogger_schema::model::Rule;
use klogger_schema::nearest::did_you_mean;
use klogger_schema::{Options, parse};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare a log with the rules of its schemata
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The log
    file: PathBuf,

    /// Only this rule; can be given several times
    #[arg(long = "rule", value_name = "NAME")]
    names: Vec<String>,

    /// Rules of this file, instead of those of the log's schemata
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Show at most this many violations of each rule
    #[arg(long, value_name = "N", default_value_t = 10)]
    max: usize,

    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const NOTES: &str = "\
Examples:
  klogger check-log scheduler.klog
  klogger check-log a.klog --rules mine.klogger --max 3
  klogger check-log a.klog --rule switches --format json

The exit code is 0 if all rules are kept, 1 if one is violated. What cannot be
decided is counted: what may have begun before the log or ended after it, and
what depends on a time in which events were lost.";

/// Violations that are kept in memory, of each rule.
const SHOWN_MAX: usize = 100_000;

impl Args {
    pub fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

/// A rule, and the schema that it is of; `None`: of a file of rules.
struct Known {
    schema: Option<String>,
    rule: Rule,
}

pub fn run(args: Args) -> Outcome {
    let reader = open::open(&args.file)?;
    let known = chosen(known(&args, &reader)?, &args)?;
    let sources: Vec<Source> =
        known.iter().map(|k| Source { schema: k.schema.as_deref(), rule: &k.rule }).collect();
    let mut missing = gaps::missing(&reader);
    let most = args.max.min(SHOWN_MAX);
    let (mut tallies, damage) = pass(&reader, &sources, &missing, most)?;
    if !damage.is_empty() {
        // What is missing there was not known before.
        let span = reader.span();
        let of_damage = |d: &Damage| Missing { event: None, span: d.times.unwrap_or(span) };
        missing.extend(damage.iter().map(of_damage));
        tallies = pass(&reader, &sources, &missing, most)?.0;
    }
    open::warn(&reader, &damage);
    let violated = tallies.iter().any(|tally| tally.violations > 0);
    let found = Found::new(&reader, &known, tallies, args.format)?;
    match args.format {
        Format::Text => say_part!("{}", escaped_lines(&found.text())),
        Format::Json => {
            say_json!(found.json());
        }
    }
    Ok(ExitCode::from(u8::from(violated)))
}

/// What was found about each rule, and the damage on the way.
fn pass(
    reader: &Reader,
    sources: &[Source],
    missing: &[Missing],
    most: usize,
) -> Result<(Vec<Tally>, Vec<Damage>), Failure> {
    let (start, end) = reader.span();
    let log = Log { preamble: reader.preamble(), start, missing };
    let mut checker = Checker::new(sources, &log, most).map_err(refused)?;
    let (decoder, mut processes) = (Decoder::new(reader), Processes::new(reader));
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        processes.apply(&event);
        checker.see(&event, &decoder, &processes);
    }
    Ok((checker.finish(end), merge.damage().to_vec()))
}

fn refused(error: FilterError) -> Failure {
    Failure::new(error.message).help(error.help)
}

/// All rules there are.
fn known(args: &Args, reader: &Reader) -> Result<Vec<Known>, Failure> {
    if let Some(file) = &args.rules {
        let options = Options { rules_apart: true, ..Options::default() };
        let rules = schema_file::load(file, &options)?.rules;
        if rules.is_empty() {
            return Err(Failure::new(format!("{} has no rules", file.display()))
                .help("write one: 'rule NAME: every A(x) is followed by B(x) within 10 ms'"));
        }
        return Ok(rules.into_iter().map(|rule| Known { schema: None, rule }).collect());
    }
    let mut all = Vec::new();
    for schema in &reader.preamble().schemas {
        // Most have none, and are not read again.
        if !schema.text.contains("rule") {
            continue;
        }
        let options = Options {
            default_name: Some(schema.name.clone()),
            builtin: true,
            ..Options::default()
        };
        match parse(&schema.file, &schema.text, &options) {
            Ok(parsed) => all.extend(
                parsed
                    .schema
                    .rules
                    .into_iter()
                    .map(|rule| Known { schema: Some(schema.name.clone()), rule }),
            ),
            Err(_) => messages::print(&escaped(&format!(
                "klogger: warning: the text of schema {} in this log is not valid, so its rules \
                 are not checked",
                schema.name
            ))),
        }
    }
    if all.is_empty() {
        return Err(Failure::new(format!("{}: its schemata have no rules", args.file.display()))
            .help("name a file with rules: 'klogger check-log LOG --rules FILE'"));
    }
    Ok(all)
}

fn chosen(known: Vec<Known>, args: &Args) -> Result<Vec<Known>, Failure> {
    for name in &args.names {
        if !known.iter().any(|k| k.rule.name == *name) {
            let names = known.iter().map(|k| k.rule.name.as_str());
            let all = names.clone().collect::<Vec<_>>().join(", ");
            return Err(Failure::new(format!("there is no rule '{name}'")).help(
                did_you_mean(name, names).unwrap_or_else(|| format!("the rules are {all}")),
            ));
        }
    }
    let wanted = |k: &Known| args.names.is_empty() || args.names.contains(&k.rule.name);
    Ok(known.into_iter().filter(wanted).collect())
}
