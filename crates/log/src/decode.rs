// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Shows values as text: names of threads, of code addresses, of flags, of errors.

use crate::code::Data;
use crate::endpoint;
use crate::event::{Elements, EventRef, Value};
use crate::names::Processes;
use crate::preamble::Preamble;
use crate::reader::Reader;
use crate::seen::has_data;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::text::{push_hex, push_int, push_octal, push_word};
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Decoding};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How a field is shown: its [`Decode`] with the tables looked up.
enum Show {
    Plain,
    Hex,
    Octal,
    Thread,
    Code,
    Data,
    Stack,
    Device,
    Ip,
    Endpoint,
    Errno,
    Table(Table),
}

/// A [`Decoding`], sorted for look-up.
struct Table {
    flags: bool,
    values: Vec<(u64, String)>,
}

/// Shows the values of a log's events.
pub struct Decoder {
    /// By event, then field, in the order of the preamble.
    fields: Vec<Vec<Show>>,
    symbols: Symbols,
    stacks: Stacks,
    data: Data,
}

impl Decoder {
    /// Reads symbols and stacks, if any field needs them.
    pub fn new(reader: &Reader) -> Decoder {
        let preamble = reader.preamble();
        let symbols = if has_code(preamble) { reader.symbols() } else { Symbols::default() };
        let has_data = has_data(&preamble.events);
        let data = if has_data { Data::new(&reader.code()) } else { Data::default() };
        let stacks = reader.stacks();
        Decoder { stacks, data, ..Decoder::live(preamble, symbols) }
    }

    /// Of a recording that runs: its stacks are not known yet.
    pub fn live(preamble: &Preamble, symbols: Symbols) -> Decoder {
        let show_all =
            |e: &EventLayout| e.fields.iter().map(|f| show(f, preamble)).collect::<Vec<_>>();
        let fields = preamble.events.iter().map(show_all).collect();
        Decoder { fields, symbols, stacks: Stacks::default(), data: Data::default() }
    }

    /// For events that were added to the preamble.
    pub fn extend(self, preamble: &Preamble) -> Decoder {
        Decoder { stacks: self.stacks, data: self.data, ..Decoder::live(preamble, self.symbols) }
    }

    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The name of the data at an address that an event has.
    pub fn variable(&self, event: &EventRef, address: u64) -> Option<&str> {
        self.data.find(event.process(), address, event.time_ns)
    }

    /// Appends the value of the field `index` of an event as text, with its unit.
    pub fn show(&self, event: &EventRef, index: usize, processes: &Processes, out: &mut Vec<u8>) {
        self.show_bare(event, index, processes, out);
        if let Some(unit) = &event.layout.fields[index].unit {
            out.extend_from_slice(if unit == "bytes" { b"B" } else { unit.as_bytes() });
        }
    }

    /// The same without its unit.
    pub fn show_bare(
        &self,
        event: &EventRef,
        index: usize,
        processes: &Processes,
        out: &mut Vec<u8>,
    ) {
        let field = &event.layout.fields[index];
        let value = event.value(field);
        match value {
            Value::Text(text) => {
                push_word(out, text);
                // A text that fills its place was most likely longer.
                if field.shape.tail_max().is_some_and(|most| text.len() >= most as usize) {
                    out.extend_from_slice(b"...");
                }
            }
            Value::Array(elements) => self.show_array(event, index, elements, processes, out),
            Value::Int(_) | Value::Uint(_) | Value::Bool(_) => {
                self.show_scalar(event, index, value, processes, out);
            }
        }
    }

    /// Appends only the name of a value (a thread's name, a flag's text), and returns whether it
    /// has one.
    pub fn name(
        &self,
        event: &EventRef,
        index: usize,
        processes: &Processes,
        out: &mut Vec<u8>,
    ) -> bool {
        let value = event.value(&event.layout.fields[index]);
        let (Some(bits), Some(show)) = (value.bits(), self.fields[event.index].get(index)) else {
            return false;
        };
        match show {
            Show::Plain | Show::Hex | Show::Octal | Show::Device | Show::Ip | Show::Endpoint => {
                return false;
            }
            Show::Thread => match value.int().and_then(|pid| processes.name(pid)) {
                Some(name) => out.extend_from_slice(name),
                None => return false,
            },
            Show::Code => match self.symbols.find(bits) {
                Some((name, _)) => out.extend_from_slice(name),
                None => return false,
            },
            Show::Data => match self.variable(event, bits) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => return false,
            },
            Show::Stack => match self.stacks.find(bits) {
                Some(frames) => frames.push_text(out),
                None => return false,
            },
            Show::Errno => match value.int().and_then(errno) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => return false,
            },
            Show::Table(table) => table.show(value, bits, out),
        }
        true
    }

    fn show_scalar(
        &self,
        event: &EventRef,
        index: usize,
        value: Value,
        processes: &Processes,
        out: &mut Vec<u8>,
    ) {
        let bits = value.bits().unwrap_or_default();
        match &self.fields[event.index][index] {
            Show::Plain | Show::Endpoint => push_number(out, value),
            Show::Hex => push_hex(out, bits),
            Show::Octal => push_octal(out, bits),
            Show::Thread => match value.int().and_then(|pid| processes.name(pid)) {
                Some(name) => {
                    push_word(out, name);
                    out.push(b'[');
                    push_number(out, value);
                    out.push(b']');
                }
                None => push_number(out, value),
            },
            Show::Code => self.show_code(bits, out),
            Show::Data => match self.variable(event, bits) {
                Some(name) => push_word(out, name.as_bytes()),
                None => push_hex(out, bits),
            },
            Show::Stack => {
                push_number(out, value);
                if let Some(frames) = self.stacks.find(bits) {
                    out.push(b'[');
                    frames.push_text(out);
                    out.push(b']');
                }
            }
            Show::Device => {
                push_int(out, bits >> 20);
                out.push(b':');
                push_int(out, bits & 0xf_ffff);
            }
            // Network byte order: the first byte in memory is the first of the address.
            Show::Ip => out.extend_from_slice(
                Ipv4Addr::from((bits as u32).to_le_bytes()).to_string().as_bytes(),
            ),
            Show::Errno => match value.int().and_then(errno) {
                Some(name) => {
                    out.push(b'-');
                    out.extend_from_slice(name.as_bytes());
                }
                None => push_number(out, value),
            },
            Show::Table(table) => table.show(value, bits, out),
        }
    }

    fn show_code(&self, address: u64, out: &mut Vec<u8>) {
        match self.symbols.find(address) {
            Some((name, offset)) => {
                push_word(out, name);
                out.push(b'+');
                push_hex(out, offset);
            }
            None => push_hex(out, address),
        }
    }

    fn show_array(
        &self,
        event: &EventRef,
        index: usize,
        elements: Elements,
        processes: &Processes,
        out: &mut Vec<u8>,
    ) {
        let show = &self.fields[event.index][index];
        if matches!(show, Show::Ip)
            && let Some(address) = address_of(elements.bytes)
        {
            return out.extend_from_slice(address.to_string().as_bytes());
        }
        if matches!(show, Show::Endpoint)
            && let Some(text) = endpoint::text(elements.bytes)
        {
            return out.extend_from_slice(text.as_bytes());
        }
        out.push(b'[');
        for (i, value) in elements.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.show_scalar(event, index, value, processes, out);
        }
        out.push(b']');
    }
}

/// Whether an event has an address of code.
pub fn has_code(preamble: &Preamble) -> bool {
    preamble.events.iter().flat_map(|e| &e.fields).any(|f| f.decode == Decode::Code)
}

/// The IP address that 4 or 16 bytes are.
fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 16]>::try_from(bytes) {
        return Some(Ipv6Addr::from(bytes).into());
    }
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into())
}

fn show(field: &FieldLayout, preamble: &Preamble) -> Show {
    match &field.decode {
        Decode::Plain | Decode::Path => Show::Plain,
        Decode::Hex => Show::Hex,
        Decode::Octal => Show::Octal,
        Decode::Thread => Show::Thread,
        Decode::Code => Show::Code,
        Decode::Data => Show::Data,
        Decode::Stack => Show::Stack,
        Decode::Device => Show::Device,
        Decode::Ip => Show::Ip,
        Decode::Endpoint => Show::Endpoint,
        Decode::Errno => Show::Errno,
        Decode::Table(name) => preamble
            .decodings
            .iter()
            .find(|d| d.name == *name)
            .map_or(Show::Plain, |d| Show::Table(Table::new(d))),
    }
}

impl Table {
    fn new(decoding: &Decoding) -> Table {
        let mut values = decoding.values.clone();
        values.sort_by_key(|v| v.0);
        Table { flags: decoding.flags, values }
    }

    fn text(&self, value: u64) -> Option<&str> {
        self.values.binary_search_by_key(&value, |v| v.0).ok().map(|at| self.values[at].1.as_str())
    }

    /// Flags are joined by `|`; bits without a name are shown as a number.
    fn show(&self, value: Value, bits: u64, out: &mut Vec<u8>) {
        if let Some(text) = self.text(bits) {
            return out.extend_from_slice(text.as_bytes());
        }
        if !self.flags || bits == 0 {
            return push_number(out, value);
        }
        let mut rest = bits;
        let mut first = true;
        for (flag, text) in self.values.iter().filter(|v| v.0 != 0) {
            if bits & flag == *flag {
                if !std::mem::take(&mut first) {
                    out.push(b'|');
                }
                out.extend_from_slice(text.as_bytes());
                rest &= !flag;
            }
        }
        if rest != 0 {
            if !first {
                out.push(b'|');
            }
            push_hex(out, rest);
        }
    }
}

/// The text of a value that a field with this decoding has.
pub fn text_of(decoding: &Decoding, bits: u64) -> String {
    let mut out = Vec::new();
    Table::new(decoding).show(Value::Uint(bits), bits, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends a number in decimal.
pub fn push_number(out: &mut Vec<u8>, value: Value) {
    match value {
        Value::Int(n) => push_int(out, n),
        Value::Uint(n) => push_int(out, n),
        Value::Bool(b) => push_int(out, u8::from(b)),
        Value::Text(_) | Value::Array(_) => {}
    }
}

/// The texts of errors, each for its negative number.
pub fn errors() -> Decoding {
    let text = |(number, name)| (-i64::from(number) as u64, format!("-{name}"));
    Decoding { name: "errno".into(), flags: false, values: error_names().map(text).collect() }
}

/// The numbers of errors, and their names.
pub fn error_names() -> impl Iterator<Item = (i32, &'static str)> {
    ERRNO.iter().chain(KERNEL).copied()
}

/// The name of an error, for its negative number.
fn errno(value: i64) -> Option<&'static str> {
    let number = i32::try_from(value.checked_neg()?).ok()?;
    error_names().find(|(n, _)| *n == number).map(|(_, name)| name)
}

/// What the kernel does not tell programs (include/linux/errno.h): calls that a signal interrupts
/// and that are begun again, and its own errors.
const KERNEL: &[(i32, &str)] = &[
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"),
    (517, "EPROBE_DEFER"),
    (518, "EOPENSTALE"),
    (519, "ENOPARAM"),
    (521, "EBADHANDLE"),
    (522, "ENOTSYNC"),
    (523, "EBADCOOKIE"),
    (524, "ENOTSUPP"),
    (525, "ETOOSMALL"),
    (526, "ESERVERFAULT"),
    (527, "EBADTYPE"),
    (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"),
    (530, "ERECALLCONFLICT"),
    (531, "ENOGRACE"),
];

macro_rules! errno_table {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// The errors of Linux, by number and name.
const ERRNO: &[(i32, &str)] = errno_table! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP
    ENOMSG EIDRM ECHRNG ENOSTR ENODATA ETIME ENOSR EREMOTE ENOLINK EPROTO EBADMSG EOVERFLOW EILSEQ
    EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT
    EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET
    ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED EHOSTDOWN
    EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE
    ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL
    EHWPOISON
};
