// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The values of one field of many events.

use arrow_array::builder::{
    BooleanBuilder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, ListBuilder,
    StringBuilder, UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::{
    ArrayRef, BooleanArray, Int8Array, Int16Array, Int32Array, Int64Array, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field};
use klogger_log::event::{Elements, Value};
use klogger_log::symbols::Symbols;
use klogger_schema::model::{Scalar, Shape};
use std::sync::Arc;

/// Collected values of one type.
pub enum Column {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    I16(Vec<i16>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Text(StringBuilder),
    List(List),
}

/// Collected arrays of one type.
pub enum List {
    Bool(ListBuilder<BooleanBuilder>),
    I8(ListBuilder<Int8Builder>),
    U8(ListBuilder<UInt8Builder>),
    I16(ListBuilder<Int16Builder>),
    U16(ListBuilder<UInt16Builder>),
    I32(ListBuilder<Int32Builder>),
    U32(ListBuilder<UInt32Builder>),
    I64(ListBuilder<Int64Builder>),
    U64(ListBuilder<UInt64Builder>),
}

impl Column {
    pub fn new(scalar: Scalar, shape: Shape) -> Column {
        match shape {
            Shape::One => match scalar {
                Scalar::Bool => Column::Bool(Vec::new()),
                Scalar::I8 => Column::I8(Vec::new()),
                Scalar::U8 => Column::U8(Vec::new()),
                Scalar::I16 => Column::I16(Vec::new()),
                Scalar::U16 => Column::U16(Vec::new()),
                Scalar::I32 => Column::I32(Vec::new()),
                Scalar::U32 => Column::U32(Vec::new()),
                Scalar::I64 => Column::I64(Vec::new()),
                Scalar::U64 => Column::U64(Vec::new()),
            },
            Shape::Array(_) => Column::List(List::new(scalar)),
            Shape::Text(_) | Shape::Tail(_) => Column::text(),
        }
    }

    pub fn text() -> Column {
        Column::Text(StringBuilder::new())
    }

    /// The type of the column in the table.
    pub fn data_type(&self) -> DataType {
        match self {
            Column::Bool(_) => DataType::Boolean,
            Column::I8(_) => DataType::Int8,
            Column::U8(_) => DataType::UInt8,
            Column::I16(_) => DataType::Int16,
            Column::U16(_) => DataType::UInt16,
            Column::I32(_) => DataType::Int32,
            Column::U32(_) => DataType::UInt32,
            Column::I64(_) => DataType::Int64,
            Column::U64(_) => DataType::UInt64,
            Column::Text(_) => DataType::Utf8,
            Column::List(list) => {
                DataType::List(Arc::new(Field::new_list_field(list.element(), true)))
            }
        }
    }

    /// Appends the value of an event's field, which is of this column's type.
    #[inline]
    pub fn push(&mut self, value: Value) {
        let bits = value.bits().unwrap_or_default();
        match self {
            Column::Bool(v) => v.push(bits != 0),
            Column::I8(v) => v.push(bits as i8),
            Column::U8(v) => v.push(bits as u8),
            Column::I16(v) => v.push(bits as i16),
            Column::U16(v) => v.push(bits as u16),
            Column::I32(v) => v.push(bits as i32),
            Column::U32(v) => v.push(bits as u32),
            Column::I64(v) => v.push(bits as i64),
            Column::U64(v) => v.push(bits),
            Column::Text(v) => {
                v.append_value(String::from_utf8_lossy(value.text().unwrap_or_default()))
            }
            Column::List(list) => {
                if let Value::Array(elements) = value {
                    list.push(elements);
                }
            }
        }
    }

    /// Appends the name of the code at an address; null if it has none.
    pub fn push_symbol(&mut self, value: Value, symbols: &Symbols) {
        if let Column::Text(v) = self {
            let found = value.bits().and_then(|address| symbols.find(address));
            v.append_option(found.map(|(name, _)| String::from_utf8_lossy(name)));
        }
    }

    /// Returns what was collected.
    pub fn take(&mut self) -> ArrayRef {
        match self {
            Column::Bool(v) => Arc::new(BooleanArray::from(renew(v))),
            Column::I8(v) => Arc::new(Int8Array::from(renew(v))),
            Column::U8(v) => Arc::new(UInt8Array::from(renew(v))),
            Column::I16(v) => Arc::new(Int16Array::from(renew(v))),
            Column::U16(v) => Arc::new(UInt16Array::from(renew(v))),
            Column::I32(v) => Arc::new(Int32Array::from(renew(v))),
            Column::U32(v) => Arc::new(UInt32Array::from(renew(v))),
            Column::I64(v) => Arc::new(Int64Array::from(renew(v))),
            Column::U64(v) => Arc::new(UInt64Array::from(renew(v))),
            Column::Text(v) => Arc::new(v.finish()),
            Column::List(list) => list.take(),
        }
    }
}

/// The values, leaving an empty vector of the same capacity.
fn renew<T>(values: &mut Vec<T>) -> Vec<T> {
    let capacity = values.capacity();
    std::mem::replace(values, Vec::with_capacity(capacity))
}

/// Applies the same code to the builder in each variant.
macro_rules! each_list {
    ($list:expr, $builder:ident => $do:expr) => {
        match $list {
            List::Bool($builder) => $do,
            List::I8($builder) => $do,
            List::U8($builder) => $do,
            List::I16($builder) => $do,
            List::U16($builder) => $do,
            List::I32($builder) => $do,
            List::U32($builder) => $do,
            List::I64($builder) => $do,
            List::U64($builder) => $do,
        }
    };
}

impl List {
    fn new(scalar: Scalar) -> List {
        match scalar {
            Scalar::Bool => List::Bool(ListBuilder::new(BooleanBuilder::new())),
            Scalar::I8 => List::I8(ListBuilder::new(Int8Builder::new())),
            Scalar::U8 => List::U8(ListBuilder::new(UInt8Builder::new())),
            Scalar::I16 => List::I16(ListBuilder::new(Int16Builder::new())),
            Scalar::U16 => List::U16(ListBuilder::new(UInt16Builder::new())),
            Scalar::I32 => List::I32(ListBuilder::new(Int32Builder::new())),
            Scalar::U32 => List::U32(ListBuilder::new(UInt32Builder::new())),
            Scalar::I64 => List::I64(ListBuilder::new(Int64Builder::new())),
            Scalar::U64 => List::U64(ListBuilder::new(UInt64Builder::new())),
        }
    }

    fn element(&self) -> DataType {
        match self {
            List::Bool(_) => DataType::Boolean,
            List::I8(_) => DataType::Int8,
            List::U8(_) => DataType::UInt8,
            List::I16(_) => DataType::Int16,
            List::U16(_) => DataType::UInt16,
            List::I32(_) => DataType::Int32,
            List::U32(_) => DataType::UInt32,
            List::I64(_) => DataType::Int64,
            List::U64(_) => DataType::UInt64,
        }
    }

    fn push(&mut self, elements: Elements) {
        for value in elements.iter() {
            let bits = value.bits().unwrap_or_default();
            match self {
                List::Bool(b) => b.values().append_value(bits != 0),
                List::I8(b) => b.values().append_value(bits as i8),
                List::U8(b) => b.values().append_value(bits as u8),
                List::I16(b) => b.values().append_value(bits as i16),
                List::U16(b) => b.values().append_value(bits as u16),
                List::I32(b) => b.values().append_value(bits as i32),
                List::U32(b) => b.values().append_value(bits as u32),
                List::I64(b) => b.values().append_value(bits as i64),
                List::U64(b) => b.values().append_value(bits),
            }
        }
        each_list!(self, b => b.append(true));
    }

    fn take(&mut self) -> ArrayRef {
        each_list!(self, b => Arc::new(b.finish()))
    }
}
