// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The tables of `tests/logs/v1.klog` and `v2.klog`: columns and values, when they are made again,
//! and when they are not made.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, UInt32Type};
use klogger_export::{Error, export};
use klogger_log::reader::Reader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A copy of a golden log in a directory of its own.
fn copy_of(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("x.klog");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs").join(name), &log)
        .unwrap();
    (dir, log)
}

fn copy() -> (TempDir, PathBuf) {
    copy_of("v1.klog")
}

fn make(log: &Path, to: Option<&Path>) -> Result<klogger_export::Export, Error> {
    export(log, &Reader::open(log).unwrap(), to, &mut |_, _| {})
}

fn table(dir: &Path, name: &str) -> RecordBatch {
    let file = File::open(dir.join(format!("{name}.parquet"))).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let schema = builder.schema().clone();
    let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
    assert!(batches.len() <= 1);
    batches.into_iter().next().unwrap_or_else(|| RecordBatch::new_empty(schema))
}

fn columns(batch: &RecordBatch) -> Vec<String> {
    batch.schema().fields().iter().map(|f| f.name().clone()).collect()
}

fn text(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    batch[column].as_string::<i32>().iter().map(|t| t.map(String::from)).collect()
}

#[test]
fn events_are_rows_in_the_order_of_time() {
    let (_dir, log) = copy();
    let made = make(&log, None).unwrap();
    assert_eq!(
        (made.rows, made.fresh, made.dir.file_name().unwrap().to_str()),
        (11, false, Some("x.klog-parquet"))
    );
    let out = table(&made.dir, "SCHEDOUT");
    assert_eq!(columns(&out), ["time", "cpu", "serial", "pid", "prio", "state"]);
    assert_eq!(out["time"].as_primitive::<Int64Type>().values(), &[400, 1_000_000_000]);
    assert_eq!(out["cpu"].as_primitive::<Int16Type>().values(), &[0, 1]);
    assert_eq!(out["serial"].as_primitive::<Int64Type>().values(), &[3, 4]);
    assert_eq!(out["pid"].as_primitive::<Int32Type>().values(), &[10, 20]);
    assert_eq!(out["state"].as_primitive::<UInt32Type>().values(), &[0x1402, 0]);
    let start = table(&made.dir, "KLOGGER_START");
    assert_eq!(start["cpu"].as_primitive::<Int16Type>().values(), &[-1]);
    assert_eq!(text(&start, "kernel"), [Some("6.1.0".into())]);
}

#[test]
fn code_has_a_symbol_and_an_array_is_a_list() {
    let (_dir, log) = copy();
    let call = table(&make(&log, None).unwrap().dir, "CALL");
    assert_eq!(columns(&call), ["time", "cpu", "serial", "from", "depth", "note", "from_symbol"]);
    assert_eq!(text(&call, "from_symbol"), [Some("do_fork".into())]);
    assert_eq!(
        call["depth"]
            .as_list::<i32>()
            .value(0)
            .as_primitive::<arrow_array::types::Int16Type>()
            .values(),
        &[-1, 0, 300]
    );
}

/// Rows of the decodings of schemata; there are those of errors besides.
fn decodings(dir: &Path) -> usize {
    let names = text(&table(dir, "decoding"), "decoding");
    let own = names.iter().filter(|name| name.as_deref() != Some("errno")).count();
    assert!(own < names.len());
    own
}

#[test]
fn tables_about_the_log() {
    let (_dir, log) = copy();
    let dir = make(&log, None).unwrap().dir;
    let process = table(&dir, "process");
    let comm: Vec<_> = text(&process, "comm").into_iter().flatten().collect();
    assert_eq!(comm, ["idle", "a \"shell\"", "child"]);
    assert_eq!(process["from_ns"].as_primitive::<Int64Type>().values(), &[0, 0, 300]);
    assert_eq!(process["to_ns"].as_primitive::<Int64Type>().values(), &[2_500_000_001; 3]);
    let ledger = table(&dir, "ledger");
    assert_eq!(text(&ledger, "key"), [Some("ring_full".into())]);
    assert_eq!(ledger["count"].as_primitive::<Int64Type>().values(), &[3]);
    assert_eq!(ledger["from_ns"].as_primitive::<Int64Type>().values(), &[500]);
    let events = table(&dir, "event");
    assert_eq!(events["logged"].as_primitive::<Int64Type>().values(), &[1, 1, 1, 1, 1, 2, 3, 1]);
    assert_eq!(events["lost"].as_primitive::<Int64Type>().values(), &[0, 0, 0, 0, 0, 0, 3, 0]);
    assert_eq!(decodings(&dir), 3);
    let meta: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("meta.json")).unwrap()).unwrap();
    assert_eq!((meta["rows"].as_u64(), meta["complete"].as_bool()), (Some(11), Some(true)));
    assert_eq!(meta["preamble"]["host"]["name"], "golden");
}

#[test]
fn events_of_threads_have_no_cpu() {
    let (_dir, log) = copy_of("v2.klog");
    let dir = make(&log, None).unwrap().dir;
    let task = table(&dir, "TASK");
    assert_eq!(columns(&task), ["time", "cpu", "serial", "tid", "tgid", "n"]);
    assert_eq!(task["cpu"].null_count(), 4);
    assert_eq!(task["tid"].as_primitive::<Int32Type>().values(), &[31, 1201, 31, 31]);
    assert_eq!(task["tgid"].as_primitive::<Int32Type>().values(), &[31, 1200, 31, 31]);
    let request = table(&dir, "REQUEST");
    assert_eq!(columns(&request), ["time", "cpu", "serial", "tid", "tgid", "tid_", "verb", "path"]);
    assert_eq!(request["tid_"].as_primitive::<Int32Type>().values(), &[7, 0]);
    let lost = table(&dir, "LOST");
    assert_eq!(columns(&lost), ["time", "cpu", "serial", "tid", "tgid", "count", "since"]);
    let ints = |column: &str| lost[column].as_primitive::<Int32Type>().iter().collect::<Vec<_>>();
    assert_eq!(lost["cpu"].as_primitive::<Int16Type>().iter().collect::<Vec<_>>(), [None, Some(1)]);
    assert_eq!((ints("tid"), ints("tgid")), (vec![Some(1201), None], vec![Some(1200), None]));
    let schedin = table(&dir, "SCHEDIN");
    assert_eq!(columns(&schedin), ["time", "cpu", "serial", "pid", "prio", "tgid"]);
    assert!(!schedin.schema().field_with_name("cpu").unwrap().is_nullable());
    let ledger = table(&dir, "ledger");
    assert_eq!(
        ledger["tid"].as_primitive::<Int32Type>().iter().collect::<Vec<_>>(),
        [None, Some(1201), None]
    );
    assert_eq!(decodings(&dir), 5);
    let meta: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("meta.json")).unwrap()).unwrap();
    assert_eq!(meta["preamble"]["schemas"][2]["name"], "web");
}

#[test]
fn tables_are_made_again_only_if_the_log_changes() {
    let (_dir, log) = copy();
    assert!(!make(&log, None).unwrap().fresh);
    assert!(make(&log, None).unwrap().fresh);
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 10]).unwrap();
    let again = make(&log, None).unwrap();
    assert!(!again.fresh);
    assert_eq!(again.damage.len(), 2);
    assert_eq!(table(&again.dir, "ledger").num_rows(), 3);
}

#[test]
fn files_not_made_by_klogger_are_left_alone() {
    let (dir, log) = copy();
    let other = dir.path().join("precious");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.txt"), "years of work").unwrap();
    assert!(matches!(make(&log, Some(&other)), Err(Error::Occupied(_))));
    assert!(other.join("thesis.txt").exists());
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(make(&log, Some(&file)).is_err());
    assert!(matches!(make(&log, Some(&file.join("below"))), Err(Error::Unwritable(..))));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "files were left behind: {left:?}");
}

#[test]
fn an_event_without_rows_has_a_table() {
    let (_dir, log) = copy();
    let bytes = fs::read(&log).unwrap();
    let first = Reader::open(&log).unwrap().blocks()[0].offset as usize;
    fs::write(&log, &bytes[..first]).unwrap();
    let made = make(&log, None).unwrap();
    assert_eq!(made.rows, 0);
    let schedin = table(&made.dir, "SCHEDIN");
    assert_eq!((schedin.num_rows(), schedin.num_columns()), (0, 6));
}
