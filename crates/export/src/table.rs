// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parquet files: tables of one event type, filled event by event, and small tables of complete
//! columns.

use crate::column::Column;
use arrow_array::{ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use klogger_log::builtin::Builtin;
use klogger_log::event::EventRef;
use klogger_log::symbols::Symbols;
use klogger_os::outputs::Folder;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Shape};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;

/// Rows that are collected before they are handed to the Parquet writer.
const BATCH_ROWS: usize = 16 << 10;
/// Rows of one row group at most, which is the unit of reading: as many as DuckDB has in one of its
/// own, so that each core gets some of a table of half a million rows.
const GROUP_ROWS: usize = 120 << 10;
/// Bytes of a row group in memory at most, because there may be many tables.
const GROUP_BYTES: usize = 16 << 20;

/// The first columns of a table of events; a field with such a name gets a `_` appended.
const GENERAL: [&str; 3] = ["time", "cpu", "serial"];
/// The next columns if threads of programs may log the event.
const THREAD: [&str; 2] = ["tid", "tgid"];
/// The value of `cpu` for an event of a thread in a table without columns for threads. No recorder
/// logs such an event.
const CPU_UNKNOWN: i16 = -2;

/// The thread of events that threads of programs may log. Null if it was a CPU.
#[derive(Default)]
struct Threads {
    tid: Vec<Option<i32>>,
    tgid: Vec<Option<i32>>,
}

/// Makes the file of a table in a folder.
fn create(dir: &Folder, name: &str) -> std::io::Result<File> {
    dir.create(format!("{name}.parquet").as_ref(), 0o666)
}

/// Encodes the rows of a table of events, and writes them.
pub struct TableFile(ArrowWriter<File>);

impl TableFile {
    /// `about`: the file's metadata.
    fn create(
        dir: &Folder,
        name: &str,
        schema: SchemaRef,
        about: BTreeMap<String, String>,
    ) -> Result<TableFile, ParquetError> {
        let by_time = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        let about = about.into_iter().map(|(name, text)| KeyValue::new(name, text)).collect();
        let sorted = properties(&schema)
            .set_sorting_columns(Some(vec![by_time]))
            .set_key_value_metadata(Some(about));
        let file = create(dir, name)?;
        ArrowWriter::try_new(file, schema, Some(sorted.build())).map(TableFile)
    }

    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        self.0.write(rows)?;
        if self.0.in_progress_size() > GROUP_BYTES { self.0.flush() } else { Ok(()) }
    }

    pub fn finish(self) -> Result<(), ParquetError> {
        self.0.close().map(|_| ())
    }
}

/// Collects the rows of the table of one event.
pub struct EventTable {
    schema: SchemaRef,
    time: Vec<i64>,
    /// -1 is the recorder, [`CPU_UNKNOWN`] a thread.
    cpu: Vec<i16>,
    serial: Vec<i64>,
    threads: Option<Threads>,
    /// In the order of the event's fields.
    fields: Vec<Column>,
    /// (which field, the names of its addresses)
    symbols: Vec<(usize, Column)>,
    pub rows: u64,
    /// Rows whose time is before the zero of the table's times.
    pub early: u64,
}

impl EventTable {
    /// `user`: threads of programs may log the event; `about`: the file's metadata.
    pub fn create(
        dir: &Folder,
        name: &str,
        layout: &EventLayout,
        user: bool,
        about: BTreeMap<String, String>,
    ) -> Result<(EventTable, TableFile), ParquetError> {
        // These two have the columns in each log, so that the same query works for all.
        let user = user || Builtin::of(layout).is_some_and(Builtin::is_of_any_stream);
        let fields: Vec<_> = layout.fields.iter().map(|f| Column::new(f.scalar, f.shape)).collect();
        let code = layout
            .fields
            .iter()
            .enumerate()
            .filter(|(_, f)| f.decode == Decode::Code && f.shape == Shape::One);
        let symbols: Vec<_> = code.map(|(i, _)| (i, Column::text())).collect();
        let mut columns = vec![
            described(
                "time",
                DataType::Int64,
                [("unit", Some("ns")), ("doc", Some("since the log's start"))],
            ),
            Field::new("cpu", DataType::Int16, user),
            Field::new("serial", DataType::Int64, false),
        ];
        if user {
            columns.extend(THREAD.map(|name| Field::new(name, DataType::Int32, true)));
        }
        for (field, column) in layout.fields.iter().zip(&fields) {
            let about = [("unit", field.unit.as_deref()), ("doc", field.doc.as_deref())];
            columns.push(described(&free_name(&field.name, &columns), column.data_type(), about));
        }
        for (index, column) in &symbols {
            let name = format!("{}_symbol", layout.fields[*index].name);
            columns.push(Field::new(free_name(&name, &columns), column.data_type(), true));
        }
        let schema = Arc::new(Schema::new(columns));
        let file = TableFile::create(dir, name, schema.clone(), about)?;
        let (time, cpu, serial) = (Vec::new(), Vec::new(), Vec::new());
        let threads = user.then(Threads::default);
        let (rows, early) = (0, 0);
        let table = EventTable { schema, time, cpu, serial, threads, fields, symbols, rows, early };
        Ok((table, file))
    }

    /// Appends a row; true if there are so many now that they are to be taken. `start_ns` is the
    /// origin of the table's times.
    #[inline]
    pub fn push(&mut self, event: &EventRef, start_ns: u64, symbols: &Symbols) -> bool {
        self.time.push(event.time_ns.wrapping_sub(start_ns) as i64);
        self.early += u64::from(event.time_ns < start_ns);
        self.cpu.push(event.origin.cpu_column().unwrap_or(CPU_UNKNOWN));
        self.serial.push(event.serial as i64);
        if let Some(threads) = &mut self.threads {
            let thread = event.origin.thread();
            threads.tid.push(thread.map(|t| t.tid as i32));
            threads.tgid.push(thread.map(|t| t.tgid as i32));
        }
        for (field, column) in event.layout.fields.iter().zip(&mut self.fields) {
            column.push(event.value(field));
        }
        for (index, column) in &mut self.symbols {
            column.push_symbol(event.value(&event.layout.fields[*index]), symbols);
        }
        self.rows += 1;
        self.time.len() == BATCH_ROWS
    }

    /// The rows that were collected, which may be none.
    pub fn take(&mut self) -> Result<RecordBatch, ParquetError> {
        let room = || Vec::with_capacity(BATCH_ROWS);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(std::mem::replace(&mut self.time, room()))),
            self.take_cpu(),
            Arc::new(Int64Array::from(std::mem::replace(&mut self.serial, room()))),
        ];
        if let Some(threads) = &mut self.threads {
            columns.push(Arc::new(Int32Array::from(std::mem::take(&mut threads.tid))));
            columns.push(Arc::new(Int32Array::from(std::mem::take(&mut threads.tgid))));
        }
        columns.extend(self.fields.iter_mut().map(Column::take));
        columns.extend(self.symbols.iter_mut().map(|(_, c)| c.take()));
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// In a table with columns for threads, the CPU of their events is null.
    fn take_cpu(&mut self) -> ArrayRef {
        let cpu = std::mem::replace(&mut self.cpu, Vec::with_capacity(BATCH_ROWS));
        if self.threads.is_none() {
            return Arc::new(Int16Array::from(cpu));
        }
        Arc::new(Int16Array::from_iter(cpu.into_iter().map(|n| (n != CPU_UNKNOWN).then_some(n))))
    }
}

/// A column with its metadata.
fn described(name: &str, ty: DataType, about: [(&str, Option<&str>); 2]) -> Field {
    let known =
        about.into_iter().filter_map(|(what, text)| Some((what.to_string(), text?.to_string())));
    Field::new(name, ty, false).with_metadata(known.collect::<HashMap<_, _>>())
}

fn free_name(name: &str, taken: &[Field]) -> String {
    let mut name = name.to_string();
    while taken
        .iter()
        .map(|f| f.name().as_str())
        .chain(GENERAL)
        .any(|t| t.eq_ignore_ascii_case(&name))
    {
        name.push('_');
    }
    name
}

/// Numbers are stored plainly, which is fastest to write and to read; strings repeat, so they get a
/// dictionary.
fn properties(schema: &Schema) -> WriterPropertiesBuilder {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for field in schema.fields().iter().filter(|f| *f.data_type() == DataType::Utf8) {
        builder =
            builder.set_column_dictionary_enabled(ColumnPath::from(field.name().as_str()), true);
    }
    builder
}

/// Writes a table of complete columns: (name, values). All may have nulls.
pub fn write_small(
    dir: &Folder,
    name: &str,
    columns: Vec<(&str, ArrayRef)>,
) -> Result<(), ParquetError> {
    let fields: Vec<_> =
        columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, c)| c).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays)
        .map_err(|e: ArrowError| ParquetError::from(e))?;
    let mut writer = ArrowWriter::try_new(
        create(dir, name)?,
        schema.clone(),
        Some(properties(&schema).build()),
    )?;
    writer.write(&batch)?;
    writer.close().map(|_| ())
}
