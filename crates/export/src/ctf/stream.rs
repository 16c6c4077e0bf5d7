// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The files of events, which are the same in both versions of CTF.
//!
//! A file is a stream: a CPU, the recorder, or one thread of a program. It consists of packets,
//! each with a header, a context and events. Everything is aligned to bytes, and little-endian.

use klogger_log::event::{EventRef, Value};
use klogger_log::origin::Origin;
use klogger_os::outputs::Folder;
use klogger_schema::model::Scalar;
use std::io::{self, Write};

pub const MAGIC: u32 = 0xc1fc_1fc1;

/// Approximate size of a packet in bytes.
const PACKET: usize = 64 << 10;

/// The meaning of a number in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    None,
    Magic,
    Uuid,
    Class,
    Instance,
    Time,
    PacketEnd,
    ContentBits,
    PacketBits,
    PacketNumber,
    Discarded,
    EventId,
}

/// A number in a header.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub name: &'static str,
    pub bits: u32,
    pub role: Role,
}

const fn member(name: &'static str, bits: u32, role: Role) -> Member {
    Member { name, bits, role }
}

/// The uuid is 16 bytes, each a member.
pub const PACKET_HEADER: &[Member] = &[
    member("magic", 32, Role::Magic),
    member("uuid", 8, Role::Uuid),
    member("stream_id", 32, Role::Class),
    member("stream_instance_id", 64, Role::Instance),
];
pub const PACKET_CONTEXT: &[Member] = &[
    member("timestamp_begin", 64, Role::Time),
    member("timestamp_end", 64, Role::PacketEnd),
    member("content_size", 64, Role::ContentBits),
    member("packet_size", 64, Role::PacketBits),
    member("packet_seq_num", 64, Role::PacketNumber),
    member("events_discarded", 64, Role::Discarded),
];
pub const EVENT_HEADER: &[Member] =
    &[member("id", 16, Role::EventId), member("timestamp", 64, Role::Time)];
pub const EVENT_CONTEXT: &[Member] = &[member("serial", 64, Role::None)];

/// Streams of a class have the same context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Cpu,
    Recorder,
    Thread,
}

impl Class {
    pub fn of(origin: Origin) -> Class {
        match origin {
            Origin::Cpu(_) => Class::Cpu,
            Origin::Recorder => Class::Recorder,
            Origin::Thread { .. } => Class::Thread,
        }
    }

    pub fn id(self) -> u32 {
        match self {
            Class::Cpu => 0,
            Class::Recorder => 1,
            Class::Thread => 2,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Class::Cpu => "cpu",
            Class::Recorder => "recorder",
            Class::Thread => "thread",
        }
    }

    /// The last members of a packet's context.
    pub fn members(self) -> &'static [Member] {
        match self {
            Class::Cpu => const { &[member("cpu_id", 16, Role::None)] },
            Class::Recorder => &[],
            Class::Thread => {
                const { &[member("tid", 32, Role::None), member("tgid", 32, Role::None)] }
            }
        }
    }
}

/// One file, and its current packet.
pub struct Stream<'d> {
    origin: Origin,
    dir: &'d Folder,
    name: String,
    uuid: [u8; 16],
    instance: u64,
    events: Vec<u8>,
    /// When the first packet begins, if not with its first event.
    begin_ns: Option<u64>,
    first_ns: u64,
    last_ns: u64,
    packets: u64,
    discarded: u64,
}

impl<'d> Stream<'d> {
    pub fn new(
        dir: &'d Folder,
        origin: Origin,
        uuid: [u8; 16],
        instance: u64,
        begin_ns: Option<u64>,
    ) -> Stream<'d> {
        let name = match origin {
            Origin::Cpu(cpu) => format!("cpu_{cpu}"),
            Origin::Recorder => "recorder".into(),
            Origin::Thread { stream, thread } => format!("thread_{}_{stream}", thread.tid),
        };
        Stream {
            origin,
            dir,
            name,
            uuid,
            instance,
            events: Vec::new(),
            begin_ns,
            first_ns: 0,
            last_ns: 0,
            packets: 0,
            discarded: 0,
        }
    }

    /// Buffered bytes.
    pub fn waiting(&self) -> usize {
        self.events.len()
    }

    /// Appends an event under this id.
    pub fn push(&mut self, event: &EventRef, id: u16) -> io::Result<()> {
        self.record(id, event.time_ns, event.serial, |out| {
            for field in &event.layout.fields {
                push_value(event.value(field), field.scalar, out);
            }
        })
    }

    /// Appends any event: `fields` appends the bytes of its fields. Readers rely on the order of
    /// events, so no time may be earlier than the one before.
    pub fn record(
        &mut self,
        id: u16,
        time_ns: u64,
        serial: u64,
        fields: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let time_ns = time_ns.max(self.last_ns);
        if self.events.is_empty() {
            self.first_ns = self.opened(time_ns);
        }
        self.last_ns = time_ns;
        self.events.extend_from_slice(&id.to_le_bytes());
        self.events.extend_from_slice(&time_ns.to_le_bytes());
        self.events.extend_from_slice(&serial.to_le_bytes());
        fields(&mut self.events);
        if self.events.len() >= PACKET { self.flush() } else { Ok(()) }
    }

    /// Appends a `LOST` record, in a packet of its own, so that readers place the loss between it
    /// and the event before.
    pub fn push_lost(
        &mut self,
        event: &EventRef,
        id: u16,
        count: u64,
        since_ns: u64,
    ) -> io::Result<()> {
        if self.packets == 0 && self.events.is_empty() {
            // Readers count losses from the packet before.
            self.last_ns = since_ns.min(event.time_ns);
            self.first_ns = self.opened(self.last_ns);
            self.write_packet()?;
        }
        self.flush()?;
        self.discarded = self.discarded.saturating_add(count);
        self.push(event, id)?;
        self.flush()
    }

    /// Writes the current packet, unless it is empty.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.events.is_empty() { Ok(()) } else { self.write_packet() }
    }

    /// Writes the last packet, which ends after all events.
    pub fn close(&mut self, end_ns: u64) -> io::Result<()> {
        if self.events.is_empty() {
            self.first_ns = self.last_ns;
        }
        self.last_ns = self.last_ns.max(end_ns);
        self.write_packet()
    }

    /// When a packet begins whose first event has this time.
    fn opened(&self, time_ns: u64) -> u64 {
        self.begin_ns.filter(|_| self.packets == 0).map_or(time_ns, |begin| begin.min(time_ns))
    }

    fn write_packet(&mut self) -> io::Result<()> {
        let head = self.head();
        let mut file = match self.packets {
            0 => self.dir.create(self.name.as_ref(), 0o666)?,
            // Not all are open all the time: a log has thousands of threads.
            _ => self.dir.append(self.name.as_ref())?,
        };
        file.write_all(&head)?;
        file.write_all(&self.events)?;
        self.events.clear();
        self.packets += 1;
        Ok(())
    }

    /// [`PACKET_HEADER`], [`PACKET_CONTEXT`] and the class's own members.
    fn head(&self) -> Vec<u8> {
        let class = Class::of(self.origin);
        let mut head = Vec::with_capacity(128);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&self.uuid);
        head.extend_from_slice(&class.id().to_le_bytes());
        head.extend_from_slice(&self.instance.to_le_bytes());
        let own: u32 = class.members().iter().map(|m| m.bits).sum();
        let context: u32 = PACKET_CONTEXT.iter().map(|m| m.bits).sum();
        let bits = head.len() as u64 * 8 + u64::from(context + own) + self.events.len() as u64 * 8;
        for word in [self.first_ns, self.last_ns, bits, bits, self.packets, self.discarded] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        match self.origin {
            Origin::Cpu(cpu) => head.extend_from_slice(&cpu.to_le_bytes()),
            Origin::Recorder => {}
            Origin::Thread { thread, .. } => {
                head.extend_from_slice(&thread.tid.to_le_bytes());
                head.extend_from_slice(&thread.tgid.to_le_bytes());
            }
        }
        head
    }
}

fn push_value(value: Value, scalar: Scalar, out: &mut Vec<u8>) {
    match value {
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) => push_bits(value, scalar, out),
        Value::Array(elements) => elements.iter().for_each(|v| push_bits(v, scalar, out)),
        Value::Text(text) => push_text(text, out),
    }
}

#[inline]
fn push_bits(value: Value, scalar: Scalar, out: &mut Vec<u8>) {
    let bytes = value.bits().unwrap_or_default().to_le_bytes();
    out.extend_from_slice(&bytes[..scalar.size() as usize]);
}

/// Appends a string. Invalid UTF-8, and characters that would end the string, become U+FFFD.
pub fn push_text(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().all(|b| (1..0x80).contains(b)) {
        out.extend_from_slice(text);
    } else {
        out.extend_from_slice(String::from_utf8_lossy(text).replace('\0', "\u{fffd}").as_bytes());
    }
    out.push(0);
}
