// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger show`: the effective schema, with defaults and offsets resolved, and which of its
//! probes this kernel can attach.

mod json;
mod states;

pub use json::probes_json;

use super::{Format, Outcome};
use crate::diagnostics::count;
use crate::engines;
use crate::schemata::{self, Opinion, Place};
use crate::trace_events;
use json::{event_json, to_json};
use klogger_codegen::Refusal;
use klogger_engines::engine::{EngineInfo, Forecast};
use klogger_os::Error;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Probe, Schema, Shape, Target};
use klogger_schema::system_calls;
use klogger_toolchain::compiled_schema::Plan;
use klogger_toolchain::host_kernel;
use serde_json::{Value, json};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger show scheduler
  klogger show ./my.klogger --format json
  klogger show klogger                    the events that every log has
  klogger show scheduler --engine bpf     with the C code for this engine
  klogger show -e sched_switch > my.klogger
                                          a schema to start from";

/// Show a schema: events with offsets and sizes, and which probes this kernel can attach
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of a schema, `klogger`, or a schema file or folder
    #[arg(required_unless_present = "events")]
    schema: Option<String>,
    /// Print the text of a schema of these trace events of the kernel, to start from: names as for
    /// 'klogger record -e'
    #[arg(short, long = "event", value_name = "NAME", value_delimiter = ',',
          conflicts_with_all = ["schema", "engine", "format"])]
    events: Vec<String>,
    /// Show which probes this engine attaches, and the C code that it generates
    #[arg(long, value_name = "ENGINE", value_parser = engines::those_that(|_| true))]
    engine: Option<&'static EngineInfo>,
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
    let Some(word) = &args.schema else {
        say_part!("{}", trace_events::text(&args.events)?);
        return Ok(ExitCode::SUCCESS);
    };
    let schema = schemata::shown(word)?;
    let layouts: Vec<EventLayout> =
        schema.events.iter().map(|e| EventLayout::new(&schema.name, e, 1)).collect();
    if let Some(engine) = args.engine {
        return show_engine(engine, &schema, &layouts, args.format);
    }
    let opinion = opinion(word, &schema);
    if opinion.is_refused() {
        schemata::show(&schema, &opinion.found);
    }
    match args.format {
        Format::Text => {
            print_head(&schema);
            layouts.iter().for_each(print_event);
            print_decodings(&schema);
            print_polls(&schema);
            print_parameters(&schema);
            print_modules(&schema);
            states::print(&schema);
            print_rules(&schema);
            print_probes(&schema, &opinion);
        }
        Format::Json => say_json!(to_json(&schema, &layouts, &opinion)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The layouts, the probes that the engine attaches, and the C.
fn show_engine(
    engine: &EngineInfo,
    schema: &Schema,
    layouts: &[EventLayout],
    format: Format,
) -> Outcome {
    let types = || {
        host_kernel::types().map_err(|e| Refusal { message: e.message, help: e.help, wrong: false })
    };
    let texts = (engine.maker.texts)(schema, &types)?;
    let forecast = engine.plan.map(|plan| plan(schema));
    if format == Format::Json {
        let events: Vec<Value> = layouts.iter().map(|e| event_json(schema, e)).collect();
        let texts: Vec<Value> =
            texts.iter().map(|t| json!({ "name": t.name, "text": t.text })).collect();
        let shown = json!({
            "schema": schema.name,
            "engine": engine.name,
            "events": events,
            "probes": attached_json(engine, schema, forecast.as_ref()),
            "unchecked": forecast.as_ref().and_then(unchecked),
            "texts": texts,
        });
        say!("{shown:#}");
        return Ok(ExitCode::SUCCESS);
    }
    print_head(schema);
    layouts.iter().for_each(print_event);
    print_attached(engine, schema, forecast.as_ref());
    for text in &texts {
        say!("\n==> {} <==\n{}", text.name, text.text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn print_rules(schema: &Schema) {
    for rule in &schema.rules {
        say!("\nrule {}: {}", rule.name, rule.text);
        rule.doc.iter().for_each(|doc| say!("    {doc}"));
    }
}

/// What is not known of the probes.
fn unchecked(forecast: &Result<Forecast, Error>) -> Option<&str> {
    match forecast {
        Ok(forecast) => forecast.unchecked,
        Err(e) => Some(&e.message),
    }
}

/// The first alternative of a kind that the engine attaches.
fn first_of_kind<'a>(engine: &EngineInfo, probe: &'a Probe) -> Option<&'a Target> {
    probe.targets.iter().find(|target| (engine.maker.attaches)(target.kind))
}

/// Of each probe, what is attached: as this kernel has it, or by its kind if that is not known.
fn attached_json(
    engine: &EngineInfo,
    schema: &Schema,
    forecast: Option<&Result<Forecast, Error>>,
) -> Vec<Option<String>> {
    let attached = |(i, probe): (usize, &Probe)| {
        let target = match forecast {
            Some(Ok(forecast)) => forecast.plans[i].target.map(|target| &probe.targets[target]),
            Some(Err(_)) | None => first_of_kind(engine, probe),
        };
        target.map(Target::prototype)
    };
    schema.probes.iter().enumerate().map(attached).collect()
}

fn print_attached(
    engine: &EngineInfo,
    schema: &Schema,
    forecast: Option<&Result<Forecast, Error>>,
) {
    if let Some(Ok(forecast)) = forecast {
        say!("\nprobes that the {} engine attaches to this kernel", engine.name);
        let probes = schema.probes.iter().zip(&forecast.plans);
        probes.for_each(|(probe, plan)| print_probe(probe, plan));
    } else {
        say!("\nprobes of kinds that the {} engine attaches", engine.name);
        for probe in &schema.probes {
            match first_of_kind(engine, probe) {
                Some(target) => say!("  yes  {}", target.label()),
                None => say!("  no   {}", probe.targets[0].label()),
            }
        }
    }
    if let Some(why) = forecast.and_then(unchecked).filter(|_| !schema.probes.is_empty()) {
        say!("  not checked: {why}");
    }
}

/// The state of the probes. The C of bundled schemata was compiled when klogger was built.
fn opinion(word: &str, schema: &Schema) -> Opinion {
    let types = host_kernel::types();
    match schemata::place(word) {
        Ok(Place::File(_)) => Opinion::of(schema, &types),
        Ok(Place::Bundled(_)) | Err(_) => Opinion::of_plans(schema, &types),
    }
}

fn print_head(schema: &Schema) {
    say!("schema {}: {}", schema.name, schema.doc.as_deref().unwrap_or("(no description)"));
    say!(
        "{}, {}, from {}",
        count(schema.events.len(), "event"),
        count(schema.probes.len(), "probe"),
        schema.file
    );
    let included: Vec<&str> = schema.includes.files().collect();
    if !included.is_empty() {
        say!("includes {}", included.join(", "));
    }
}

fn print_event(e: &EventLayout) {
    let size = match e.tails().count() {
        0 => format!("{} bytes", e.record_size(0)),
        _ => format!("{} to {} bytes", e.record_size(0), e.max_size()),
    };
    say!("\nevent {}  ({size}{})", e.name, whose(e));
    if let Some(doc) = &e.doc {
        say!("    {doc}");
    }
    for f in &e.fields {
        let line =
            format!("  {:>6}  {:>5}  {:<10} {}", f.offset, field_size(f), type_text(f), f.name);
        let notes = notes(f);
        say!("{}", if notes.is_empty() { line } else { format!("{line:<44}  {notes}") });
    }
}

fn whose(e: &EventLayout) -> String {
    if e.about.is_empty() {
        String::new()
    } else {
        format!("; logged if {} is in scope", e.about.join(" or "))
    }
}

fn field_size(f: &FieldLayout) -> String {
    match f.shape {
        Shape::Tail(_) => "2+n".into(),
        Shape::One | Shape::Array(_) | Shape::Text(_) => {
            f.shape.align_and_size(f.scalar).1.to_string()
        }
    }
}

fn type_text(f: &FieldLayout) -> String {
    match f.shape {
        // `string[16]` is a type; of `int NAME[4]`, the length is the field's.
        Shape::Array(n) | Shape::Text(n) if !f.type_name.ends_with(']') => {
            format!("{}[{n}]", f.type_name)
        }
        Shape::One | Shape::Tail(_) | Shape::Array(_) | Shape::Text(_) => f.type_name.clone(),
    }
}

fn notes(f: &FieldLayout) -> String {
    let decode = match &f.decode {
        Decode::Plain => None,
        Decode::Hex => Some("as hex".to_string()),
        Decode::Octal => Some("as octal".into()),
        Decode::Thread => Some("as thread".into()),
        Decode::Code => Some("as code".into()),
        Decode::Data => Some("as data".into()),
        Decode::Stack => Some("as stack".into()),
        Decode::Device => Some("as device".into()),
        Decode::Ip => Some("as ip".into()),
        Decode::Endpoint => Some("as endpoint".into()),
        Decode::Errno => Some("as errno".into()),
        Decode::Path => Some("as path".into()),
        Decode::Table(name) => Some(format!("as {name}")),
    };
    let unit = f.unit.as_ref().map(|u| format!("in {u}"));
    let context = f.context.map(|_| "context".to_string());
    let parts: Vec<String> = [unit, decode, context, f.doc.clone()].into_iter().flatten().collect();
    parts.join(", ")
}

/// The files that the recorder reads.
fn print_polls(schema: &Schema) {
    let polls: Vec<_> = schema.events.iter().filter_map(|e| Some((e, e.poll.as_ref()?))).collect();
    if !polls.is_empty() {
        say!("\nfiles that are polled");
    }
    for (event, poll) in polls {
        let rows = if poll.rows { ", an event for each row" } else { "" };
        let ms = poll.every_ns / 1_000_000;
        let every = if ms % 1000 == 0 { format!("{} s", ms / 1000) } else { format!("{ms} ms") };
        say!("  {}: {} every {every}{rows}", event.name, poll.path);
    }
}

fn print_decodings(schema: &Schema) {
    for d in &schema.decodings {
        if *d == system_calls::table() {
            say!("\nsyscall: the names of {} system calls", d.values.len());
            continue;
        }
        let word = if d.flags { "flags" } else { "enum" };
        if schema.kernel_enums.contains(&d.name) {
            say!("\n{word} {}: the kernel's", d.name);
            continue;
        }
        let values: Vec<_> = d.values.iter().map(|(v, text)| format!("{v:#x} {text}")).collect();
        say!("\n{word} {}", d.name);
        for row in values.chunks(6) {
            say!("    {}", row.join("  "));
        }
    }
}

/// What `klogger record --set` can set.
fn print_parameters(schema: &Schema) {
    for p in &schema.parameters {
        say!("\nparameter {} {} = {}", p.type_name, p.name, p.shown(p.default));
        p.doc.iter().for_each(|doc| say!("    {doc}"));
        say!("    {}; klogger record --set {}.{}=...", p.range(), schema.name, p.name);
    }
}

/// What `klogger record` loads if it is not there.
fn print_modules(schema: &Schema) {
    for module in &schema.modules {
        say!("\nmodule {}{}", module.name, if module.optional { " optional" } else { "" });
    }
}

fn print_probes(schema: &Schema, opinion: &Opinion) {
    say!("\nprobes on this kernel");
    if opinion.is_refused() {
        say!("  none: a recording with this schema is rejected (the reasons are above)");
    }
    match (&opinion.plans, &opinion.unchecked) {
        (Some(plans), None) if !opinion.is_refused() => {
            schema.probes.iter().zip(plans).for_each(|(probe, plan)| print_probe(probe, plan));
        }
        (_, Some(why)) => say!("  unknown: {why}"),
        _ => {}
    }
}

/// Prints whether a probe can be attached to a kernel, and why not.
pub fn print_probe(probe: &Probe, plan: &Plan) {
    let mut events: Vec<&str> = probe.calls.iter().map(|c| c.event.as_str()).collect();
    events.dedup();
    let events = if events.is_empty() { "(logs nothing)".to_string() } else { events.join(", ") };
    let shown = &probe.targets[plan.target.unwrap_or(0)];
    let attaches = if plan.target.is_some() { "yes" } else { "no" };
    let switch = probe.switch.as_ref().map(|s| format!(" if {}", s.parameter)).unwrap_or_default();
    say!("  {attaches:<3}  {}{switch}: {events}", shown.label());
    if let Some(places) = plan.places_in_words(shown) {
        say!("         {}", places.replace("; ", "\n         "));
    }
    for (target, r) in &plan.refusals {
        say!("         {}: {}", probe.targets[*target].prototype(), r.message);
        r.help.iter().flat_map(|h| h.lines()).for_each(|l| say!("           {l}"));
    }
}
