// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The model of a schema that was parsed and checked.
//!
//! The model is plain data. It knows neither the C that is generated from it nor the file that it
//! came from, except by the name and text which diagnostics and `#line` need.

mod arch;
mod decoding;
mod module;
mod parameter;
mod poll;
mod rule;
mod state;

pub use crate::attach_points::ProbeKind;
use crate::attach_points::syscall::ALL_CALLS;
pub use crate::contexts::Context;
pub use crate::counted::Counted;
use crate::include::Includes;
pub use arch::{Arch, Counter};
pub use decoding::Decoding;
pub use module::Module;
pub use parameter::Parameter;
pub use poll::{Poll, Source};
pub use rule::{Condition, Form, Path, Rule, Term};
pub use state::{Entries, Key, State};

use crate::layout::STRING_MAX;
use serde::{Deserialize, Serialize};

/// A byte range in [`Schema::text`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

/// One schema file.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Declared by `schema NAME`, or else made from the file's name.
    pub name: String,
    pub doc: Option<String>,
    /// The file's name as the user gave it, for messages and `#line`.
    pub file: String,
    /// With the texts that it includes.
    pub text: String,
    pub includes: Includes,
    pub decodings: Vec<Decoding>,
    /// The names of those decodings that are enums of the kernel (`as enum NAME`), which has their
    /// values.
    pub kernel_enums: Vec<String>,
    pub events: Vec<Event>,
    pub probes: Vec<Probe>,
    /// `code { ... }`: C at file level, for helpers that several probe bodies share.
    pub code: Vec<CBlock>,
    /// In the order of their declaration.
    pub parameters: Vec<Parameter>,
    /// Modules of the kernel that it needs, in the order of their declaration.
    pub modules: Vec<Module>,
    pub states: Vec<State>,
    pub rules: Vec<Rule>,
    /// `arch NAME { counter0 event }`: what counters count, as in the paper.
    pub arch: Vec<Arch>,
}

/// An event and its fields, in the order of their declaration. Context fields come last.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    pub doc: Option<String>,
    pub fields: Vec<Field>,
    pub scope: Scope,
    pub role: Option<Role>,
    /// The slices that begin with it, and those that end with it.
    pub begins: Vec<Slice>,
    pub ends: Vec<Slice>,
    /// How it reads as one line.
    pub line: Option<Line>,
    /// A C expression over the fields, of `klogger record --where`: others are not logged. No
    /// schema's text has it.
    pub condition: Option<String>,
    /// Of `klogger record --trigger`, in the order of their numbers. No schema's text has them.
    pub triggers: Vec<Trigger>,
    /// Set if the recorder reads the event from a file.
    pub poll: Option<Poll>,
    /// The position of the name.
    pub span: Span,
}

/// A trigger that an event fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// From 1.
    pub number: u16,
    /// A C expression over the fields of the event.
    pub condition: String,
}

/// The scope of an event: it is logged if one of these threads is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The thread that was running when the probe was hit.
    #[default]
    Current,
    /// The threads named by these integer fields: `event WAKE scope pid, waker { ... }`.
    Fields(Vec<String>),
    /// No thread: `event TICK scope all { ... }` is always logged.
    All,
}

/// What an event means to programs that draw a schedule. Its field `pid` is the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A thread leaves its CPU: `pid` and, if there are such fields, `prio`, `state`, `next`.
    SwitchOut,
    /// A thread gets a CPU: `pid`, `prio`.
    SwitchIn,
    /// A thread leaves its run queue: `pid`, `state`. Redundant after a `switch_out` with the same
    /// contents.
    Dequeue,
    /// A thread is being woken: `pid`, `prio`, `target_cpu`, `waker`.
    Waking,
    /// A thread was put on a run queue: `pid`, `prio`, `runq`, `is_new`.
    Wakeup,
}

/// `slice NAME from EVENT to EVENT by FIELD, FIELD on PLACE`: an operation with a begin and an end.
/// Both events have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub name: String,
    /// Fields of both events that must be equal for an end to match a begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    #[serde(default)]
    pub on: Place,
}

/// `line EVENT "TEXT" with EVENT, EVENT by FIELD, FIELD`: how an event reads as one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// [`crate::lines::parts`] reads it.
    pub text: String,
    /// Events whose fields the line may name as well: the latest of them that has the same values
    /// in the fields `by`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
}

/// What else must be the same for an end to match a begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The thread: the one that logged the event, or the one in the event's scope.
    #[default]
    Thread,
    Cpu,
    /// Nothing.
    Any,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// The type as it was written: `int`, `u64`, `string`.
    pub type_name: String,
    pub scalar: Scalar,
    pub shape: Shape,
    pub unit: Option<String>,
    pub decode: Decode,
    pub doc: Option<String>,
    /// Set if the runtime supplies the value, rather than the `klogger()` call.
    pub context: Option<Context>,
    /// The position of the name, or of the word after `context` that made the field.
    pub span: Span,
}

/// The machine type of a field, or of one element of an array or string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scalar {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

/// How many elements a field has, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredShape", into = "StoredShape")]
pub enum Shape {
    One,
    /// `TYPE NAME[N]`
    Array(u32),
    /// `string[N]` or `char NAME[N]`: N bytes, cut and padded with NUL.
    Text(u32),
    /// `string` or `string[..N]`, with the bytes at most: its length (u16) is at the field's
    /// offset. The bytes of all these fields follow the fixed part of the record, in their order.
    Tail(u32),
}

/// A [`Shape`] in JSON. Logs have had `tail` since before texts could be longer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredShape {
    One,
    Array(u32),
    Text(u32),
    /// A `string` without a length.
    Tail,
    /// `string[..N]`
    Long(u32),
}

impl From<StoredShape> for Shape {
    fn from(stored: StoredShape) -> Shape {
        match stored {
            StoredShape::One => Shape::One,
            StoredShape::Array(n) => Shape::Array(n),
            StoredShape::Text(n) => Shape::Text(n),
            StoredShape::Tail => Shape::Tail(STRING_MAX),
            StoredShape::Long(n) => Shape::Tail(n),
        }
    }
}

impl From<Shape> for StoredShape {
    fn from(shape: Shape) -> StoredShape {
        match shape {
            Shape::One => StoredShape::One,
            Shape::Array(n) => StoredShape::Array(n),
            Shape::Text(n) => StoredShape::Text(n),
            Shape::Tail(STRING_MAX) => StoredShape::Tail,
            Shape::Tail(n) => StoredShape::Long(n),
        }
    }
}

/// Bytes of a field `as endpoint`: the address family and the port, both u16 in the byte order of
/// the machine, and 16 bytes of address, of which IPv4 uses the first four.
pub const ENDPOINT_BYTES: u32 = 20;

/// How a value is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decode {
    #[default]
    Plain,
    Hex,
    /// Rights of a file: `0644`.
    Octal,
    /// A thread id; the process table has its name.
    Thread,
    /// An address in code; the symbol table has its name.
    Code,
    /// An address of data: of a variable of the kernel, or of the program that the event's `tgid`
    /// is.
    Data,
    /// A kernel stack: the number from `klogger_stack()`, which identifies a row in the table of
    /// stacks; 0: none.
    Stack,
    /// A kernel `dev_t`: major << 20 | minor.
    Device,
    /// An IPv4 address in network byte order (4 bytes), or IPv6 (array of 16 bytes).
    Ip,
    /// An address of a socket with its port and family, in [`ENDPOINT_BYTES`] bytes.
    Endpoint,
    /// A negative value is an error number.
    Errno,
    /// A text is the path of a file.
    Path,
    /// A table of [`Decoding`], by name.
    Table(String),
}

#[derive(Clone, Debug)]
pub struct Probe {
    /// Alternatives, the preferred one first: `probe A or B { }`.
    pub targets: Vec<Target>,
    pub switch: Option<Switch>,
    pub body: CBlock,
    /// The `klogger(EVENT, ...)` calls of the body, in order.
    pub calls: Vec<Call>,
    /// From the word `probe` up to the body.
    pub span: Span,
}

/// `if NAME` before the body: the probe is attached only where this parameter, a `bool`, is true.
#[derive(Clone, Debug)]
pub struct Switch {
    pub parameter: String,
    pub span: Span,
}

/// An attach point.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: ProbeKind,
    pub name: String,
    pub params: Vec<Param>,
    /// Why it has no program, if the kernel lacks a type that its C needs. No schema's text has it.
    pub lacks: Option<String>,
    /// Of system calls, the names of those that are wanted; empty: all. No schema's text has it.
    pub only: Vec<String>,
    /// The position of the name.
    pub span: Span,
}

/// One parameter of a probe: the C type with single spaces, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub ty: String,
    pub name: String,
}

/// A `klogger(EVENT, ...)` call in a probe's body.
#[derive(Clone, Debug)]
pub struct Call {
    pub event: String,
    /// Number of values after the event's name.
    pub arguments: usize,
    /// From `klogger` to the closing parenthesis.
    pub span: Span,
}

/// C text between braces, and its position.
#[derive(Clone, Debug)]
pub struct CBlock {
    /// Without the braces, otherwise as written.
    pub text: String,
    /// 1-based line on which `text` begins.
    pub line: u32,
    /// 1-based column (bytes) at which `text` begins.
    pub column: u32,
    /// The position of `text`, without the braces.
    pub span: Span,
}

impl Scalar {
    /// Bytes.
    pub fn size(self) -> u32 {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 => 4,
            Scalar::I64 | Scalar::U64 => 8,
        }
    }

    pub fn signed(self) -> bool {
        match self {
            Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 => true,
            Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => false,
        }
    }
}

impl Param {
    /// `TYPE NAME`, without a space after a `*`.
    pub fn declare(&self) -> String {
        if self.ty.ends_with('*') {
            format!("{}{}", self.ty, self.name)
        } else {
            format!("{} {}", self.ty, self.name)
        }
    }
}

impl Target {
    /// A target without parameters that is not from a schema.
    pub fn bare(kind: ProbeKind, name: &str) -> Target {
        Target {
            kind,
            name: name.into(),
            params: Vec::new(),
            lacks: None,
            only: Vec::new(),
            span: Span::default(),
        }
    }

    /// The names in its list, or its only name. They may have wildcards.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        let separator = if self.kind.takes_many() { ", " } else { "\n" };
        self.name.split(separator)
    }

    /// It may be several attach points.
    pub fn is_many(&self) -> bool {
        self.kind.is_many(&self.name)
    }

    /// Whether this attach point of its list is wanted: see `only`. One at all system calls is.
    pub fn wants(&self, place: &str) -> bool {
        self.only.is_empty() || place == ALL_CALLS || self.only.iter().any(|name| name == place)
    }

    /// One of its attach points, with the same parameters.
    pub fn at(&self, place: &str) -> Target {
        Target { name: place.into(), ..self.clone() }
    }

    /// As in a schema, but without the names of parameters: `tracepoint sched_switch(bool, struct
    /// task_struct *)`.
    pub fn prototype(&self) -> String {
        let types: Vec<_> = self.params.iter().map(|p| p.ty.as_str()).collect();
        format!("{}({})", self.label(), types.join(", "))
    }

    /// Without its parameters: `tracepoint sched_switch`.
    pub fn label(&self) -> String {
        format!("{} {}", self.kind.word(), self.name)
    }
}

impl Schema {
    /// The counters of all its `arch` blocks.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.arch.iter().flat_map(|arch| &arch.counters)
    }

    /// Whether an event has an address of data, and whose it is if it is one of a program.
    pub fn has_data_of_programs(&self) -> bool {
        let has_data = |e: &&Event| e.fields.iter().any(|f| f.decode == Decode::Data);
        self.events.iter().filter(has_data).any(|e| e.fields.iter().any(|f| f.name == "tgid"))
    }

    /// Whether a recording with the values that the parameters have attaches the probe.
    pub fn is_on(&self, probe: &Probe) -> bool {
        let of = |switch: &Switch| self.parameters.iter().find(|p| p.name == switch.parameter);
        probe.switch.as_ref().and_then(of).is_none_or(|p| p.value != 0)
    }

    pub fn event(&self, name: &str) -> Option<&Event> {
        self.events.iter().find(|e| e.name == name)
    }

    /// The file that a part of the text is from, and its line there, from 1 on.
    pub fn place(&self, span: Span) -> (&str, usize) {
        self.includes.line((&self.file, &self.text), span.start)
    }
}
