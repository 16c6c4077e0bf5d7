// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Writes a log of N events that look like a scheduler's, for measuring readers: `synth OUT N [CPUS
//! [ZSTD-LEVEL]]`.
//!
//! Threads alternate on each CPU: wake-up, SCHEDOUT and SCHEDIN, sometimes a fork, an exec and an
//! exit.

use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::Ledger;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Clock, Host, Preamble, Recorder};
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::layout::{EventLayout, FieldLayout, HEADER_SIZE, STRING_MAX};
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};
use std::error::Error;
use std::fs::File;

const START: u64 = 1_000_000_000_000;
const PROGRAMS: [&str; 8] = ["spin", "make", "cc1", "find", "cp", "player", "daemon", "pingpong"];
const THREADS: u64 = 40;

fn layout(
    id: u16,
    schema: &str,
    name: &str,
    fields: &[(&str, Scalar, Shape, Decode)],
) -> EventLayout {
    let mut end = HEADER_SIZE;
    let fields = fields.iter().map(|(name, scalar, shape, decode)| {
        let (align, size) = shape.align_and_size(*scalar);
        let offset = end.next_multiple_of(align);
        end = offset + size;
        let type_name = format!("{scalar:?}").to_lowercase();
        let (unit, doc, context) = (None, None, None);
        FieldLayout {
            name: name.to_string(),
            type_name,
            scalar: *scalar,
            shape: *shape,
            offset,
            unit,
            decode: decode.clone(),
            doc,
            context,
        }
    });
    let fields = fields.collect();
    EventLayout {
        id,
        schema: schema.into(),
        name: name.into(),
        doc: None,
        fixed: end,
        fields,
        about: vec![],
        role: None,
        begins: vec![],
        ends: vec![],
        line: None,
    }
}

fn layouts() -> Vec<EventLayout> {
    use Scalar::{I32, U8, U16, U32, U64};
    let thread = |name: &'static str| (name, I32, Shape::One, Decode::Thread);
    let int = |name: &'static str| (name, I32, Shape::One, Decode::Plain);
    let comm = ("comm", U8, Shape::Text(16), Decode::Plain);
    let state = ("state", U32, Shape::One, Decode::Table("task_state".into()));
    vec![
        layout(
            1,
            "klogger",
            "KLOGGER_START",
            &[
                ("buffer_size", U64, Shape::One, Decode::Plain),
                ("kernel", U8, Shape::Tail(STRING_MAX), Decode::Plain),
            ],
        ),
        layout(2, "klogger", "KLOGGER_FINISH", &[]),
        layout(
            3,
            "klogger",
            "PROCESS_EXISTS",
            &[
                thread("pid"),
                int("tgid"),
                int("ppid"),
                int("prio"),
                int("policy"),
                comm.clone(),
                ("command", U8, Shape::Tail(STRING_MAX), Decode::Plain),
            ],
        ),
        layout(
            8,
            "klogger",
            "LOST",
            &[("count", U64, Shape::One, Decode::Plain), ("since", U64, Shape::One, Decode::Plain)],
        ),
        layout(9, "klogger", "PROCESS_FORK", &[thread("parent"), thread("pid"), int("tgid"), comm]),
        layout(10, "klogger", "PROCESS_EXIT", &[thread("pid")]),
        layout(
            20,
            "scheduler",
            "TRY_TO_WAKEUP",
            &[thread("pid"), int("prio"), int("target_cpu"), thread("waker")],
        ),
        layout(21, "scheduler", "SCHEDOUT", &[thread("pid"), int("prio"), state, thread("next")]),
        layout(22, "scheduler", "SCHEDIN", &[thread("pid"), int("prio"), int("tgid")]),
        layout(
            23,
            "scheduler",
            "MIGRATE",
            &[
                thread("pid"),
                ("from_cpu", U16, Shape::One, Decode::Plain),
                ("to_cpu", U16, Shape::One, Decode::Plain),
            ],
        ),
    ]
}

/// A repeatable sequence of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

struct Cpu {
    number: u16,
    running: u64,
    time: u64,
    serial: u64,
    records: Vec<u8>,
}

struct Synth {
    events: Vec<EventLayout>,
    dice: Dice,
}

impl Synth {
    fn event(&self, name: &str) -> RecordBuilder<'_> {
        RecordBuilder::new(
            self.events.iter().find(|e| e.name == name).expect("declared in layouts()"),
        )
    }

    /// One context switch: 2 to 4 events.
    fn switch(&mut self, cpu: &mut Cpu) -> u64 {
        let next = 1000 + self.dice.roll(THREADS);
        cpu.time += 200 + self.dice.roll(1500);
        let (mut logged, pid) = (2, cpu.running as i64);
        if self.dice.roll(2) == 0 {
            let wake = self
                .event("TRY_TO_WAKEUP")
                .int("pid", next as i64)
                .int("prio", 120)
                .int("target_cpu", cpu.number.into());
            wake.int("waker", pid).finish(cpu.time, &mut cpu.records);
            logged += 1;
        }
        if self.dice.roll(50) == 0 {
            let migrate = self
                .event("MIGRATE")
                .int("pid", next as i64)
                .int("from_cpu", 0)
                .int("to_cpu", cpu.number.into());
            migrate.finish(cpu.time + 50, &mut cpu.records);
            logged += 1;
        }
        let state = [0, 1, 1, 2, 0x402][self.dice.roll(5) as usize];
        cpu.time += 100;
        let out = self
            .event("SCHEDOUT")
            .int("pid", pid)
            .int("prio", 120)
            .int("state", state)
            .int("next", next as i64);
        out.finish(cpu.time, &mut cpu.records);
        let tgid = next - next % 5;
        self.event("SCHEDIN")
            .int("pid", next as i64)
            .int("prio", 120)
            .int("tgid", tgid as i64)
            .finish(cpu.time, &mut cpu.records);
        cpu.running = next;
        logged
    }

    fn head(&self) -> Vec<u8> {
        let mut records = Vec::new();
        self.event("KLOGGER_START")
            .int("buffer_size", 4 << 20)
            .text("kernel", b"6.1.0-synthetic")
            .finish(START, &mut records);
        for i in 0..THREADS {
            let (pid, name) = ((1000 + i) as i64, PROGRAMS[(i / 5) as usize]);
            let exists = self
                .event("PROCESS_EXISTS")
                .int("pid", pid)
                .int("tgid", pid - pid % 5)
                .int("ppid", 1)
                .int("prio", 20);
            exists
                .text("comm", name.as_bytes())
                .text("command", name.as_bytes())
                .finish(START + 1, &mut records);
        }
        records
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, total, rest @ ..] = words.as_slice() else {
        return Err("usage: synth OUT N [CPUS [ZSTD-LEVEL]]".into());
    };
    let total: u64 = total.parse()?;
    let cpus: u16 = rest.first().map_or(Ok(2), |w| w.parse())?;
    let compression =
        rest.get(1).map_or(Ok(Compression::None), |w| w.parse().map(Compression::Zstd))?;
    let mut synth = Synth { events: layouts(), dice: Dice(88_172_645_463_325_252) };
    let preamble = Preamble {
        klogger: env!("CARGO_PKG_VERSION").into(),
        engine: "bpf".into(),
        host: Host {
            name: "synthetic".into(),
            cpus: (0..cpus.into()).collect(),
            ..Host::default()
        },
        clock: Clock {
            name: "monotonic".into(),
            start_ns: START,
            start_realtime_ns: 1_700_000_000_000_000_000,
            ..Clock::default()
        },
        scope: "all".into(),
        recorder: Recorder {
            pid: 999,
            tids: vec![999],
            buffer_size: 4 << 20,
            lowwater: 10,
            overwrite: false,
            limits: Vec::new(),
            cpus: Vec::new(),
            threads: Default::default(),
            conditions: Vec::new(),
            triggers: Vec::new(),
            names: Vec::new(),
        },
        events: synth.events.clone(),
        decodings: vec![Decoding {
            name: "task_state".into(),
            flags: true,
            values: vec![(1, "S".into()), (2, "D".into()), (0x400, "noload".into())],
        }],
        ..Preamble::default()
    };
    let mut writer = Writer::new(File::create(out)?, &preamble, compression)?;
    writer.block(&EventBlock {
        origin: Origin::Recorder,
        time_base: START,
        first_serial: 0,
        records: &synth.head(),
    })?;
    let mut rings: Vec<Cpu> = (0..cpus)
        .map(|number| Cpu {
            number,
            running: 0,
            time: START + 1000,
            serial: 0,
            records: Vec::new(),
        })
        .collect();
    let mut logged = 0;
    while logged < total {
        for cpu in &mut rings {
            cpu.records.clear();
            let base = cpu.time;
            while logged < total && cpu.records.len() < 700_000 {
                logged += synth.switch(cpu);
            }
            cpu.serial = writer.block(&EventBlock {
                origin: Origin::Cpu(cpu.number),
                time_base: base,
                first_serial: cpu.serial,
                records: &cpu.records,
            })?;
        }
    }
    let end = rings.iter().map(|c| c.time).max().unwrap_or(START) + 1;
    let mut records = Vec::new();
    synth.event("KLOGGER_FINISH").finish(end, &mut records);
    writer.block(&EventBlock {
        origin: Origin::Recorder,
        time_base: end,
        first_serial: THREADS + 1,
        records: &records,
    })?;
    let summary = writer.finish(&Ledger::default())?;
    println!("{} events, {} bytes", summary.events, summary.bytes);
    Ok(())
}
