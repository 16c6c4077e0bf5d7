// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the tests share: the repository's files, expectations, and two renderings of the model.

#![allow(dead_code)] // Each test file is a program of its own, and uses a part.

use klogger_schema::layout::EventLayout;
use klogger_schema::model::{
    Counter, Decode, Decoding, Entries, Event, Field, Key, Probe, Scalar, Schema, Scope, Shape,
    Source, State,
};
use klogger_schema::vocabulary::{DECODES, PLACES, ROLES, TYPES};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The entries of a folder of the repository, sorted.
pub fn entries(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let folder = root().join(folder);
    let list = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = list.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Compares with a file that has the expected text or, with KLOGGER_BLESS=1, writes it. Returns the
/// difference.
pub fn compare(expected: &Path, got: &str) -> Option<String> {
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        std::fs::write(expected, got).unwrap();
    }
    let shown = expected.strip_prefix(root()).unwrap_or(expected).display();
    let Ok(text) = std::fs::read_to_string(expected) else {
        return Some(format!("{shown} is missing; KLOGGER_BLESS=1 writes it"));
    };
    if text.trim().is_empty() {
        return Some(format!("{shown} is empty: that expects nothing"));
    }
    (text != got).then(|| format!("{shown} differs; got:\n{got}"))
}

pub fn all_well(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} of the cases are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// The whole model as text.
pub fn dump(schema: &Schema) -> String {
    let mut out = format!("schema {}{}\n", schema.name, doc(&schema.doc));
    for Decoding { name, flags, values } in &schema.decodings {
        let _ = writeln!(out, "\n{} {name}", if *flags { "flags" } else { "enum" });
        values.iter().for_each(|(value, text)| {
            let _ = writeln!(out, "    {:<8} {text:?}", *value as i64);
        });
    }
    for event in &schema.events {
        dump_event(&mut out, schema, event);
    }
    for probe in &schema.probes {
        out.push_str("\nprobe\n");
        for t in &probe.targets {
            let params: Vec<String> =
                t.params.iter().map(|p| format!("{:?} {:?}", p.ty, p.name)).collect();
            let _ = writeln!(out, "    {} {:?} ({})", t.kind.word(), t.name, params.join(", "));
        }
        let _ = writeln!(out, "    body at {}:{}", probe.body.line, probe.body.column);
        for c in &probe.calls {
            let _ = writeln!(out, "    logs {} with {} values", c.event, c.arguments);
        }
    }
    for code in &schema.code {
        let _ = writeln!(out, "\ncode at {}:{} {:?}", code.line, code.column, code.text);
    }
    for m in &schema.modules {
        let optional = if m.optional { " optional" } else { "" };
        let _ = writeln!(out, "\nmodule {}{optional}", m.name);
    }
    for p in &schema.parameters {
        let _ = writeln!(
            out,
            "\nparameter {} {} = {} from {} to {}{}",
            p.type_name,
            p.name,
            p.shown(p.default),
            p.least,
            p.most,
            doc(&p.doc)
        );
    }
    for s in &schema.states {
        let _ = writeln!(out, "\nstate {} {:?} by {:?}{}", s.name, s.entries, s.key, doc(&s.doc));
        for f in &s.fields {
            let _ = writeln!(out, "    {} {} = {:?} {:?}", f.type_name, f.name, f.scalar, f.shape);
        }
    }
    for arch in &schema.arch {
        let _ = writeln!(out, "\narch {}", arch.name);
        for c in &arch.counters {
            let _ = writeln!(
                out,
                "    counter{} {} = {:?}{}",
                c.number,
                c.event,
                c.counted,
                if c.optional { ", optional" } else { "" }
            );
        }
    }
    out
}

fn dump_event(out: &mut String, schema: &Schema, event: &Event) {
    let layout = EventLayout::new(&schema.name, event, 1);
    let _ = writeln!(out, "\nevent {}{}", event.name, doc(&event.doc));
    let _ = writeln!(
        out,
        "    scope {:?}, {} bytes, at most {}",
        event.scope,
        layout.record_size(0),
        layout.max_size()
    );
    let slices = [("begins", &layout.begins), ("ends", &layout.ends)];
    for (does, slice) in
        slices.into_iter().flat_map(|(does, all)| all.iter().map(move |slice| (does, slice)))
    {
        let _ = writeln!(out, "    {does} {} by {:?} on {:?}", slice.name, slice.by, slice.on);
    }
    if let Some(line) = &layout.line {
        let _ = writeln!(out, "    line {:?} with {:?} by {:?}", line.text, line.with, line.by);
    }
    if let Some(role) = layout.role {
        let _ = writeln!(out, "    role {role:?}");
    }
    if let Some(poll) = &event.poll {
        let rows = if poll.rows { ", rows" } else { "" };
        let _ = writeln!(out, "    from {} every {} ns{rows}", poll.path, poll.every_ns);
        let _ = writeln!(out, "    {:?}", poll.sources);
    }
    for (field, at) in event.fields.iter().zip(&layout.fields) {
        let _ = write!(
            out,
            "    {:>4}  {} {} = {:?} {:?}",
            at.offset, field.type_name, field.name, field.scalar, field.shape
        );
        if let Some(unit) = &field.unit {
            let _ = write!(out, " in {unit}");
        }
        if field.decode != Decode::Plain {
            let _ = write!(out, " as {:?}", field.decode);
        }
        if let Some(context) = &field.context {
            let _ = write!(out, " context {context:?}");
        }
        let _ = writeln!(out, "{}", doc(&field.doc));
    }
}

fn doc(doc: &Option<String>) -> String {
    doc.as_ref().map_or(String::new(), |d| format!(" {}", quote(d)))
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The model printed as a schema.
pub fn print(schema: &Schema) -> String {
    let mut out = format!("schema {}{}\n", schema.name, doc(&schema.doc));
    for Decoding { name, flags, values } in &schema.decodings {
        let _ = write!(out, "{} {name} {{", if *flags { "flags" } else { "enum" });
        for (value, text) in values {
            let value = if *flags { value.to_string() } else { (*value as i64).to_string() };
            let _ = write!(out, " {value} {}", quote(text));
        }
        out.push_str(" }\n");
    }
    for m in &schema.modules {
        let _ = writeln!(out, "module {}{}", m.name, if m.optional { " optional" } else { "" });
    }
    for p in &schema.parameters {
        let unit = p.unit.as_ref().map_or(String::new(), |unit| format!(" in {unit}"));
        let (default, range) = match p.scalar {
            Scalar::Bool => ((p.default != 0).to_string(), String::new()),
            _ => (p.default.to_string(), format!(" from {} to {}", p.least, p.most)),
        };
        let (ty, name) = (&p.type_name, &p.name);
        let _ = writeln!(out, "parameter {ty} {name}{unit} = {default}{range}{}", doc(&p.doc));
    }
    schema.states.iter().for_each(|s| print_state(&mut out, s));
    schema.events.iter().for_each(|e| print_event(&mut out, e));
    for (from, slice) in
        schema.events.iter().flat_map(|e| e.begins.iter().map(move |slice| (e, slice)))
    {
        let to = schema.events.iter().find(|e| e.ends.contains(slice)).unwrap();
        let by = if slice.by.is_empty() {
            String::new()
        } else {
            format!(" by {}", slice.by.join(", "))
        };
        let on = PLACES.iter().find(|(_, place)| *place == slice.on).unwrap().0;
        let _ = writeln!(out, "slice {} from {} to {}{by} on {on}", slice.name, from.name, to.name);
    }
    for (event, line) in schema.events.iter().filter_map(|e| Some((e, e.line.as_ref()?))) {
        let text = line.text.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(out, "line {} \"{text}\"", event.name);
        if !line.with.is_empty() {
            let _ = write!(out, " with {} by {}", line.with.join(", "), line.by.join(", "));
        }
        out.push('\n');
    }
    for c in &schema.code {
        let _ = writeln!(out, "code {{{}}}", c.text);
    }
    schema.probes.iter().for_each(|p| print_probe(&mut out, p));
    for arch in &schema.arch {
        let counters: Vec<String> = arch.counters.iter().map(print_counter).collect();
        let _ = writeln!(out, "arch {} {{ {} }}", arch.name, counters.join("; "));
    }
    out
}

fn print_counter(c: &Counter) -> String {
    format!("counter{} {}{}", c.number, c.event, if c.optional { " optional" } else { "" })
}

fn print_event(out: &mut String, event: &Event) {
    let scope = match &event.scope {
        Scope::Current => String::new(),
        Scope::All => " scope all".into(),
        Scope::Fields(names) => format!(" scope {}", names.join(", ")),
    };
    let role = event.role.map_or(String::new(), |role| {
        format!(" role {}", ROLES.iter().find(|(_, known)| *known == role).unwrap().0)
    });
    let _ = match &event.poll {
        Some(poll) => writeln!(
            out,
            "poll {}{} from {} every {}ms{} {{",
            event.name,
            doc(&event.doc),
            quote(&poll.path),
            poll.every_ns / 1_000_000,
            if poll.rows { " rows" } else { "" }
        ),
        None => writeln!(out, "event {}{}{scope}{role} {{", event.name, doc(&event.doc)),
    };
    for (n, field) in event.fields.iter().enumerate() {
        match field.context {
            Some(_) => {
                let _ = writeln!(out, "context {}", field.name);
            }
            None => print_field(out, field, event.poll.as_ref().map(|poll| &poll.sources[n])),
        }
    }
    out.push_str("}\n");
}

fn print_state(out: &mut String, state: &State) {
    let entries = match &state.entries {
        Entries::Number(n) => format!("[{n}]"),
        Entries::Parameter(name) => format!("[{name}]"),
        Entries::Each => String::new(),
    };
    let key = match state.key {
        Key::Thread => "thread",
        Key::Cpu => "cpu",
        Key::Value(scalar) => TYPES.iter().find(|(_, known)| *known == scalar).unwrap().0,
    };
    let _ = writeln!(out, "state {}{entries} by {key}{} {{", state.name, doc(&state.doc));
    state.fields.iter().for_each(|f| print_field(out, f, None));
    out.push_str("}\n");
}

fn print_field(out: &mut String, field: &Field, source: Option<&Source>) {
    let length = match field.shape {
        Shape::Array(n) => format!("[{n}]"),
        Shape::Text(n) if field.type_name == "char" => format!("[{n}]"),
        Shape::One | Shape::Text(_) | Shape::Tail(_) => String::new(),
    };
    let _ = write!(out, "{} {}{length}", field.type_name, field.name);
    let _ = match source {
        Some(Source::Key(key, n)) => write!(out, " from {} {n}", quote(key)),
        Some(Source::Word(n)) => write!(out, " from {n}"),
        None => Ok(()),
    };
    if let Some(unit) = &field.unit {
        let _ = write!(out, " in {unit}");
    }
    match &field.decode {
        Decode::Plain => {}
        Decode::Table(table) => {
            let _ = write!(out, " as {table}");
        }
        own => {
            let _ = write!(out, " as {}", DECODES.iter().find(|(_, d)| d == own).unwrap().0);
        }
    }
    let _ = writeln!(out, "{}", doc(&field.doc));
}

fn print_probe(out: &mut String, probe: &Probe) {
    let targets: Vec<String> = probe
        .targets
        .iter()
        .map(|t| {
            let params: Vec<String> =
                t.params.iter().map(|p| format!("{} {}", p.ty, p.name)).collect();
            format!("{} {}({})", t.kind.word(), t.name, params.join(", "))
        })
        .collect();
    let _ = writeln!(out, "probe {} {{{}}}", targets.join(" or "), probe.body.text);
}
