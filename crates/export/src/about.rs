// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The tables about a log: processes, ledger, events, decodings, stacks,
//! symbols.

use crate::roles;
use crate::stacks::path;
use crate::table::write_small;
use arrow_array::builder::{
    BooleanBuilder, Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray, UInt64Array};
use klogger_log::code::Data;
use klogger_log::decode::errors;
use klogger_log::ledger::{Ledger, Severity};
use klogger_log::names::Row;
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::stacks::{Side, Stacks};
use klogger_log::symbols::Symbols;
use klogger_os::outputs::Folder;
use parquet::errors::ParquetError;
use std::sync::Arc;

/// ns since the log's start.
fn since(start_ns: u64, time_ns: u64) -> i64 {
    time_ns.wrapping_sub(start_ns) as i64
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn numbers(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn maybe_numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values))
}

/// Ids of threads have 32 bits in all tables.
fn thread_ids(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(Int32Array::from_iter(values.map(|id| id.map(|n| n as i32))))
}

pub fn write_processes(dir: &Folder, rows: &[Row], start_ns: u64) -> Result<(), ParquetError> {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let known = |id: i64| (id >= 0).then_some(id);
    let mut comm = StringBuilder::new();
    let mut command = StringBuilder::new();
    let mut recorder = BooleanBuilder::new();
    for row in rows {
        comm.append_value(lossy(&row.comm));
        command.append_value(lossy(&row.command));
        recorder.append_value(row.recorder);
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("pid", thread_ids(rows.iter().map(|r| Some(r.pid)))),
        ("tgid", thread_ids(rows.iter().map(|r| known(r.tgid)))),
        ("parent", thread_ids(rows.iter().map(|r| known(r.parent)))),
        ("comm", Arc::new(comm.finish())),
        ("command", Arc::new(command.finish())),
        ("from_ns", numbers(rows.iter().map(|r| since(start_ns, r.from_ns)))),
        ("to_ns", numbers(rows.iter().map(|r| since(start_ns, r.to_ns)))),
        ("exit_ns", maybe_numbers(rows.iter().map(|r| r.exit_ns.map(|t| since(start_ns, t))))),
        ("recorder", Arc::new(recorder.finish())),
    ];
    write_small(dir, "process", columns)
}

pub fn write_ledger(dir: &Folder, ledger: &Ledger, start_ns: u64) -> Result<(), ParquetError> {
    let entries = &ledger.entries;
    let mut event = StringBuilder::new();
    let mut cpu = Int16Builder::new();
    let (mut tid, mut tgid) = (Int32Builder::new(), Int32Builder::new());
    let mut from = Int64Builder::new();
    let mut to = Int64Builder::new();
    for entry in entries {
        event.append_option(entry.event.as_deref());
        cpu.append_option(entry.cpu.and_then(|cpu| Origin::of_cpu(cpu).cpu_column()));
        tid.append_option(entry.thread.map(|t| t.tid as i32));
        tgid.append_option(entry.thread.map(|t| t.tgid as i32));
        from.append_option(entry.from_ns.map(|t| since(start_ns, t)));
        to.append_option(entry.to_ns.map(|t| since(start_ns, t)));
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", texts(entries.iter().map(|e| e.key.as_str()))),
        ("severity", texts(entries.iter().map(|e| e.severity.word()))),
        ("source", texts(entries.iter().map(|e| e.source.word()))),
        ("event", Arc::new(event.finish())),
        ("cpu", Arc::new(cpu.finish())),
        ("tid", Arc::new(tid.finish())),
        ("tgid", Arc::new(tgid.finish())),
        ("count", numbers(entries.iter().map(|e| e.count as i64))),
        ("from_ns", Arc::new(from.finish())),
        ("to_ns", Arc::new(to.finish())),
        ("text", texts(entries.iter().map(|e| e.text.as_str()))),
    ];
    write_small(dir, "ledger", columns)
}

/// `logged` is the number of rows, by event of the preamble.
pub fn write_events(
    dir: &Folder,
    preamble: &Preamble,
    logged: &[u64],
    ledger: &Ledger,
) -> Result<(), ParquetError> {
    let events = &preamble.events;
    let lost = |name: &str| -> i64 {
        let losses = ledger
            .entries
            .iter()
            .filter(|e| e.severity >= Severity::Loss && e.event.as_deref() == Some(name));
        losses.fold(0u64, |sum, e| sum.saturating_add(e.count)) as i64
    };
    let mut doc = StringBuilder::new();
    let mut role = StringBuilder::new();
    let mut fields = StringBuilder::new();
    let failed = |e: serde_json::Error| ParquetError::External(Box::new(e));
    for (event, declared) in std::iter::zip(events, roles::of_schemata(events)) {
        doc.append_option(event.doc.as_deref());
        // As in a schema: `switch_in`.
        let word = serde_json::to_value(declared).map_err(failed)?;
        role.append_option(word.as_str());
        fields.append_value(serde_json::to_string(&event.fields).map_err(failed)?);
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("name", texts(events.iter().map(|e| e.name.as_str()))),
        ("schema", texts(events.iter().map(|e| e.schema.as_str()))),
        ("id", numbers(events.iter().map(|e| e.id.into()))),
        ("doc", Arc::new(doc.finish())),
        ("role", Arc::new(role.finish())),
        ("logged", numbers(logged.iter().map(|n| *n as i64))),
        ("lost", numbers(events.iter().map(|e| lost(&e.name)))),
        ("fields", Arc::new(fields.finish())),
    ];
    write_small(dir, "event", columns)
}

/// The decodings of the log's schemata, and that of errors, unless a schema has one of this name.
pub fn write_decodings(dir: &Folder, preamble: &Preamble) -> Result<(), ParquetError> {
    let own = errors();
    let own = Some(&own)
        .filter(|own| preamble.decodings.iter().all(|d| !d.name.eq_ignore_ascii_case(&own.name)));
    let rows = || {
        let all = preamble.decodings.iter().chain(own);
        all.flat_map(|d| d.values.iter().map(move |(value, text)| (d, *value, text)))
    };
    let flags: Vec<bool> = rows().map(|(d, _, _)| d.flags).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("decoding", texts(rows().map(|(d, _, _)| d.name.as_str()))),
        ("flags", Arc::new(BooleanArray::from(flags))),
        ("value", numbers(rows().map(|(_, value, _)| value as i64))),
        ("text", texts(rows().map(|(_, _, text)| text.as_str()))),
    ];
    write_small(dir, "decoding", columns)
}

/// The parameters of the log's schemata, with the values of the recording.
pub fn write_parameters(dir: &Folder, preamble: &Preamble) -> Result<(), ParquetError> {
    let rows = || preamble.schemas.iter().flat_map(|s| s.parameters.iter().map(move |p| (s, p)));
    let mut unit = StringBuilder::new();
    let mut doc = StringBuilder::new();
    for (_, p) in rows() {
        unit.append_option(p.unit.as_deref());
        doc.append_option(p.doc.as_deref());
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("schema", texts(rows().map(|(s, _)| s.name.as_str()))),
        ("name", texts(rows().map(|(_, p)| p.name.as_str()))),
        ("type", texts(rows().map(|(_, p)| p.type_name.as_str()))),
        ("unit", Arc::new(unit.finish())),
        // A ulong that BIGINT does not hold is the greatest one that it does.
        ("value", numbers(rows().map(|(_, p)| i64::try_from(p.value).unwrap_or(i64::MAX)))),
        ("default", numbers(rows().map(|(_, p)| i64::try_from(p.default).unwrap_or(i64::MAX)))),
        ("doc", Arc::new(doc.finish())),
    ];
    write_small(dir, "parameter", columns)
}

pub fn write_symbols(dir: &Folder, symbols: &Symbols) -> Result<(), ParquetError> {
    let mut name = StringBuilder::new();
    symbols.iter().for_each(|(_, text)| name.append_value(String::from_utf8_lossy(text)));
    let address = UInt64Array::from_iter_values(symbols.iter().map(|(address, _)| address));
    let columns: Vec<(&str, ArrayRef)> =
        vec![("address", Arc::new(address)), ("name", Arc::new(name.finish()))];
    write_small(dir, "symbol", columns)
}

/// What an address of data is of a process (0: the kernel), from a time on until the next row of
/// the same address. Without a name it is nothing that is known.
pub fn write_variables(dir: &Folder, data: &Data, start_ns: u64) -> Result<(), ParquetError> {
    let mut name = StringBuilder::new();
    data.iter().for_each(|one| name.append_option(one.name));
    let since = |from: u64| (i128::from(from) - i128::from(start_ns)) as i64;
    let tgid = Int32Array::from_iter_values(data.iter().map(|one| one.pid as i32));
    let address = UInt64Array::from_iter_values(data.iter().map(|one| one.address));
    let from = Int64Array::from_iter_values(data.iter().map(|one| since(one.from)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("tgid", Arc::new(tgid)),
        ("address", Arc::new(address)),
        ("from_ns", Arc::new(from)),
        ("name", Arc::new(name.finish())),
    ];
    write_small(dir, "variable", columns)
}

pub fn write_stacks(dir: &Folder, stacks: &Stacks) -> Result<(), ParquetError> {
    let lists = || ListBuilder::new(StringBuilder::new());
    let (mut functions, mut files, mut sources) = (lists(), lists(), lists());
    let (mut text, mut kind) = (StringBuilder::new(), StringBuilder::new());
    let mut whole = BooleanBuilder::new();
    let mut paths = lists();
    for (number, stack) in stacks.iter() {
        for frame in path([number, 0], stacks) {
            paths.values().append_value(frame.text());
        }
        paths.append(true);
        for frame in &stack.frames {
            functions.values().append_value(String::from_utf8_lossy(&frame.function));
            files.values().append_option(known(&frame.file));
            sources.values().append_option(known(&frame.source));
        }
        functions.append(true);
        files.append(true);
        sources.append(true);
        let mut shown = Vec::new();
        stack.push_text(&mut shown);
        text.append_value(String::from_utf8_lossy(&shown));
        kind.append_value(match stack.side {
            Side::Kernel => "kernel",
            Side::User => "user",
        });
        whole.append_value(stack.is_whole());
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", numbers(stacks.iter().map(|(id, _)| id as i64))),
        ("frames", Arc::new(functions.finish())),
        ("text", Arc::new(text.finish())),
        ("kind", Arc::new(kind.finish())),
        ("files", Arc::new(files.finish())),
        ("sources", Arc::new(sources.finish())),
        ("whole", Arc::new(whole.finish())),
        ("path", Arc::new(paths.finish())),
    ];
    write_small(dir, "stack", columns)
}

fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
