// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The vocabulary of the language: declarations, types, units, decodings, roles. Contexts are in
//! [`crate::contexts`], kinds of probes in [`crate::attach_points`].

use crate::model::{Decode, Place, Role, Scalar};

/// Words that begin a declaration.
pub const DECLARATIONS: [&str; 16] = [
    "schema",
    "event",
    "probe",
    "poll",
    "enum",
    "flags",
    "arch",
    "code",
    "context",
    "slice",
    "line",
    "rule",
    "parameter",
    "state",
    "include",
    "module",
];

/// Types with one machine type. `string` is the other type.
pub const TYPES: [(&str, Scalar); 27] = [
    ("bool", Scalar::Bool),
    ("char", Scalar::I8),
    ("uchar", Scalar::U8),
    ("short", Scalar::I16),
    ("ushort", Scalar::U16),
    ("int", Scalar::I32),
    ("uint", Scalar::U32),
    ("long", Scalar::I64),
    ("ulong", Scalar::U64),
    ("longlong", Scalar::I64),
    ("ulonglong", Scalar::U64),
    ("s8", Scalar::I8),
    ("u8", Scalar::U8),
    ("s16", Scalar::I16),
    ("u16", Scalar::U16),
    ("s32", Scalar::I32),
    ("u32", Scalar::U32),
    ("s64", Scalar::I64),
    ("u64", Scalar::U64),
    ("int8_t", Scalar::I8),
    ("uint8_t", Scalar::U8),
    ("int16_t", Scalar::I16),
    ("uint16_t", Scalar::U16),
    ("int32_t", Scalar::I32),
    ("uint32_t", Scalar::U32),
    ("int64_t", Scalar::I64),
    ("uint64_t", Scalar::U64),
];

/// The string type; it takes a length in brackets.
pub const STRING: &str = "string";

/// What to write instead of types that C or the kernel has, but this language does not.
pub const TYPE_REMEDIES: [(&str, &str); 50] = [
    ("unsigned", "uint"),
    ("unsigned int", "uint"),
    ("unsigned char", "uchar"),
    ("unsigned short", "ushort"),
    ("unsigned short int", "ushort"),
    ("unsigned long", "ulong"),
    ("unsigned long int", "ulong"),
    ("unsigned long long", "ulonglong"),
    ("unsigned long long int", "ulonglong"),
    ("signed", "int"),
    ("signed int", "int"),
    ("signed char", "char"),
    ("signed short", "short"),
    ("signed long", "long"),
    ("short int", "short"),
    ("long int", "long"),
    ("long long", "longlong"),
    ("long long int", "longlong"),
    ("_Bool", "bool"),
    ("boolean", "bool"),
    ("byte", "uchar"),
    ("str", "string"),
    ("i8", "s8"),
    ("i16", "s16"),
    ("i32", "s32"),
    ("i64", "s64"),
    ("__s8", "s8"),
    ("__u8", "u8"),
    ("__s16", "s16"),
    ("__u16", "u16"),
    ("__s32", "s32"),
    ("__u32", "u32"),
    ("__s64", "s64"),
    ("__u64", "u64"),
    ("pid_t", "int"),
    ("uid_t", "uint"),
    ("gid_t", "uint"),
    ("gfp_t", "uint"),
    ("dev_t", "uint"),
    ("umode_t", "ushort"),
    ("size_t", "ulong"),
    ("ssize_t", "long"),
    ("loff_t", "longlong"),
    ("off_t", "long"),
    ("ino_t", "ulong"),
    ("sector_t", "ulonglong"),
    ("blkcnt_t", "ulonglong"),
    ("ktime_t", "longlong"),
    ("uintptr_t", "ulong"),
    ("dma_addr_t", "ulonglong"),
];

/// Words that are part of C type names, and of pointers.
pub const C_TYPE_WORDS: [&str; 15] = [
    "unsigned", "signed", "const", "volatile", "struct", "union", "void", "char", "short", "int",
    "long", "float", "double", "_Bool", "enum",
];

/// The unit of a number. Case counts: `ms` is not `Ms`.
pub const UNITS: [&str; 40] = [
    "ns",
    "us",
    "ms",
    "s",
    "min",
    "h",
    "jiffies",
    "cycles",
    "ticks",
    "instructions",
    "bits",
    "bytes",
    "KiB",
    "MiB",
    "GiB",
    "pages",
    "sectors",
    "blocks",
    "Hz",
    "kHz",
    "MHz",
    "GHz",
    "percent",
    "permille",
    "ratio",
    "count",
    "events",
    "packets",
    "frames",
    "threads",
    "cpus",
    "C",
    "mC",
    "mV",
    "uV",
    "mA",
    "mW",
    "uW",
    "mJ",
    "uJ",
];

/// Other common spellings of units.
pub const UNIT_REMEDIES: [(&str, &str); 20] = [
    ("nsec", "ns"),
    ("nsecs", "ns"),
    ("nanoseconds", "ns"),
    ("usec", "us"),
    ("usecs", "us"),
    ("microseconds", "us"),
    ("msec", "ms"),
    ("msecs", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("seconds", "s"),
    ("B", "bytes"),
    ("byte", "bytes"),
    ("KB", "KiB"),
    ("MB", "MiB"),
    ("GB", "GiB"),
    ("pct", "percent"),
    ("hertz", "Hz"),
    ("tick", "ticks"),
    ("clocks", "cycles"),
];

/// Decodings that need no table.
pub const DECODES: [(&str, Decode); 11] = [
    ("hex", Decode::Hex),
    ("octal", Decode::Octal),
    ("thread", Decode::Thread),
    ("code", Decode::Code),
    ("data", Decode::Data),
    ("stack", Decode::Stack),
    ("device", Decode::Device),
    ("ip", Decode::Ip),
    ("endpoint", Decode::Endpoint),
    ("errno", Decode::Errno),
    ("path", Decode::Path),
];

/// The decoding whose table the recorder makes: names of the places of probes.
pub const PLACE: &str = "place";

/// The roles of events.
pub const ROLES: [(&str, Role); 5] = [
    ("switch_out", Role::SwitchOut),
    ("switch_in", Role::SwitchIn),
    ("dequeue", Role::Dequeue),
    ("waking", Role::Waking),
    ("wakeup", Role::Wakeup),
];

/// What a slice is on: the word after `on`.
pub const PLACES: [(&str, Place); 3] =
    [("thread", Place::Thread), ("cpu", Place::Cpu), ("any", Place::Any)];
