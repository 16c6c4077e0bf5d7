// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! /dev/klogger: the structures and numbers of `runtime/include/klogger/device.h`.

use klogger_os::Mapping;
use klogger_os::modules::{Plain, command, request};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

pub const PATH: &str = "/dev/klogger";
pub const VERSION: u32 = 2;
pub const CALL_RESIZED: u32 = u32::MAX;
pub const CLOCK_COUNTER: u32 = 1;
pub const MAP_RINGS: u64 = 0;
pub const MAP_SCOPE: u64 = 1 << 40;
pub const MAP_RINGLESS: u64 = 2 << 40;
pub const MAP_STACKS: u64 = 3 << 40;
pub const MAP_ANCHOR: u64 = 4 << 40;
/// `struct klogger_stacks`: a word, the rest of its page, then slots of two small numbers and the
/// frames.
pub const STACK_SLOTS: usize = 65536;
pub const STACK_DEPTH: usize = 24;
pub const STACKS_HEAD: usize = 4096;
pub const STACK_SLOT: usize = 8 + 8 * STACK_DEPTH;
pub const STACK_COMPLETE: u32 = 2;
/// In a ring: its size - 1, or 0 for none.
pub const RING_MASK: usize = 48;
const NAME_MAX: usize = 64;
/// Calls that are read at a time.
const CALLS_MAX: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    pub version: u32,
    pub clock: u32,
    pub cpus: u32,
    pub schemata: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SchemaAbout {
    pub index: u32,
    pub events: u32,
    pub probes: u32,
    pub text_length: u32,
    pub text_digest: u64,
    name: [u8; NAME_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub index: u32,
    pub base: u32,
    pub text_digest: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub ring_size: u64,
    pub stride: u64,
    pub lowwater: u32,
    pub scoped: u8,
    pub overwrite: u8,
    /// Out: some schema asks for stacks.
    pub stacks: u8,
    pub unused: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RingsAbout {
    pub ring_size: u64,
    pub stride: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventOn {
    pub id: u32,
    pub on: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProbeAbout {
    pub index: u32,
    pub place: u32,
    pub probe: u32,
    pub target: u32,
    pub error: i32,
    pub attached: u32,
    pub missed: u64,
    name: [u8; NAME_MAX],
}

// SAFETY: all are repr(C) and without padding; a test compares their sizes and numbers with the
// header's.
unsafe impl Plain for About {}
unsafe impl Plain for SchemaAbout {}
unsafe impl Plain for Use {}
unsafe impl Plain for Start {}
unsafe impl Plain for RingsAbout {}
unsafe impl Plain for EventOn {}
unsafe impl Plain for ProbeAbout {}

impl SchemaAbout {
    pub fn name(&self) -> String {
        text(&self.name)
    }
}

impl ProbeAbout {
    pub fn name(&self) -> String {
        text(&self.name)
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The number of a request, as `_IOC` of linux/ioctl.h makes it.
const fn number(direction: u32, of: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'k' as u32) << 8 | of
}

const WRITE: u32 = 1;
const READ: u32 = 2;
const ABOUT: u32 = number(READ, 0, size_of::<About>());
const SCHEMA: u32 = number(READ | WRITE, 1, size_of::<SchemaAbout>());
const USE: u32 = number(WRITE, 2, size_of::<Use>());
const START: u32 = number(READ | WRITE, 3, size_of::<Start>());
const ATTACH: u32 = number(0, 4, 0);
const EVENT: u32 = number(WRITE, 5, size_of::<EventOn>());
const DETACH: u32 = number(0, 6, 0);
const PROBE: u32 = number(READ | WRITE, 7, size_of::<ProbeAbout>());
const RINGS: u32 = number(READ, 8, size_of::<RingsAbout>());
const FORGET: u32 = number(0, 9, 0);

/// The device, which nobody else has open.
pub struct Device(File);

impl Device {
    pub fn open() -> io::Result<Device> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(PATH).map(Device)
    }

    pub fn about(&self) -> io::Result<About> {
        let mut about = About::default();
        request(self.as_fd(), ABOUT, &mut about).map(|()| about)
    }

    /// All schemata that are in the kernel now.
    pub fn schemata(&self) -> io::Result<Vec<SchemaAbout>> {
        let mut all = Vec::new();
        for index in 0..self.about()?.schemata {
            let mut about = SchemaAbout {
                index,
                events: 0,
                probes: 0,
                text_length: 0,
                text_digest: 0,
                name: [0; NAME_MAX],
            };
            match request(self.as_fd(), SCHEMA, &mut about) {
                Ok(()) => all.push(about),
                // A gap: it has gone.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    pub fn use_schema(&self, mut used: Use) -> io::Result<()> {
        request(self.as_fd(), USE, &mut used)
    }

    pub fn start(&self, start: &mut Start) -> io::Result<()> {
        request(self.as_fd(), START, start)
    }

    pub fn rings(&self) -> io::Result<RingsAbout> {
        let mut about = RingsAbout::default();
        request(self.as_fd(), RINGS, &mut about).map(|()| about)
    }

    pub fn attach(&self) -> io::Result<()> {
        command(self.as_fd(), ATTACH)
    }

    pub fn detach(&self) -> io::Result<()> {
        command(self.as_fd(), DETACH)
    }

    pub fn forget(&self) -> io::Result<()> {
        command(self.as_fd(), FORGET)
    }

    pub fn event(&self, id: u16, on: bool) -> io::Result<()> {
        request(self.as_fd(), EVENT, &mut EventOn { id: id.into(), on: on.into() })
    }

    pub fn place(&self, index: u32, place: u32) -> io::Result<ProbeAbout> {
        let mut about = ProbeAbout {
            index,
            place,
            probe: 0,
            target: 0,
            error: 0,
            attached: 0,
            missed: 0,
            name: [0; NAME_MAX],
        };
        request(self.as_fd(), PROBE, &mut about).map(|()| about)
    }

    pub fn map(&self, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::part(self.as_fd(), offset, length)
    }

    /// The calls that have come, if any: numbers of CPUs, or CALL_RESIZED.
    pub fn calls(&self) -> io::Result<Vec<u32>> {
        let mut bytes = [0; 4 * CALLS_MAX];
        match (&self.0).read(&mut bytes) {
            Ok(length) => {
                Ok(bytes[..length].as_chunks().0.iter().map(|b| u32::from_ne_bytes(*b)).collect())
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Vec::new())
            }
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The header's own numbers, by a C compiler.
    #[test]
    fn numbers_are_those_of_the_header() {
        let program = r#"
            #include <stdio.h>
            #include <klogger/device.h>
            int main(void)
            {
                unsigned long long numbers[] = {
                    KLOGGER_IOC_ABOUT, KLOGGER_IOC_SCHEMA, KLOGGER_IOC_USE, KLOGGER_IOC_START,
                    KLOGGER_IOC_ATTACH,
                    KLOGGER_IOC_EVENT, KLOGGER_IOC_DETACH, KLOGGER_IOC_PROBE, KLOGGER_IOC_RINGS,
                    KLOGGER_IOC_FORGET,
                    KLOGGER_DEVICE_VERSION, KLOGGER_CALL_RESIZED, KLOGGER_KERNEL_CLOCK_COUNTER,
                    KLOGGER_MAP_RINGS, KLOGGER_MAP_SCOPE, KLOGGER_MAP_RINGLESS, KLOGGER_SCOPE_BYTES,
                    __builtin_offsetof(struct klogger_schema_about, text_digest),
                    __builtin_offsetof(struct klogger_schema_about, name),
                    __builtin_offsetof(struct klogger_use, text_digest),
                    __builtin_offsetof(struct klogger_start, overwrite),
                    __builtin_offsetof(struct klogger_probe_about, error),
                    __builtin_offsetof(struct klogger_probe_about, missed),
                    __builtin_offsetof(struct klogger_ring, mask),
                    __builtin_offsetof(struct klogger_ring, mark),
                    sizeof(struct klogger_ring), KLOGGER_MAP_STACKS, sizeof(struct klogger_stacks),
                    __builtin_offsetof(struct klogger_stacks, slot[1].frame[1]),
                    __builtin_offsetof(struct klogger_start, stacks),
                    KLOGGER_MAP_ANCHOR, __builtin_offsetof(struct klogger_ring, stamp),
                };
                for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                    printf("%llu ", numbers[i]);
                return 0;
            }"#;
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("numbers.c"), folder.path().join("numbers"));
        std::fs::write(&source, program).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/include");
        let made = Command::new("cc")
            .args(["-I", include, "-o"])
            .arg(&binary)
            .arg(&source)
            .status()
            .unwrap();
        assert!(made.success());
        let said = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
        let ours: Vec<u64> =
            [ABOUT, SCHEMA, USE, START, ATTACH, EVENT, DETACH, PROBE, RINGS, FORGET]
                .into_iter()
                .chain([VERSION, CALL_RESIZED, CLOCK_COUNTER])
                .map(u64::from)
                .chain([MAP_RINGS, MAP_SCOPE, MAP_RINGLESS, crate::scope::SCOPE_BYTES as u64])
                .chain(
                    [
                        std::mem::offset_of!(SchemaAbout, text_digest),
                        std::mem::offset_of!(SchemaAbout, name),
                        std::mem::offset_of!(Use, text_digest),
                        std::mem::offset_of!(Start, overwrite),
                        std::mem::offset_of!(ProbeAbout, error),
                        std::mem::offset_of!(ProbeAbout, missed),
                        RING_MASK,
                        klogger_ring::MARK,
                        klogger_ring::CONTROL,
                        MAP_STACKS as usize,
                        STACKS_HEAD + STACK_SLOTS * STACK_SLOT,
                        STACKS_HEAD + STACK_SLOT + 8 + 8,
                        std::mem::offset_of!(Start, stacks),
                        MAP_ANCHOR as usize,
                        klogger_ring::STAMP,
                    ]
                    .map(|n| n as u64),
                )
                .collect();
        let theirs: Vec<u64> = said.split_whitespace().map(|w| w.parse().unwrap()).collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn names_end_at_the_first_nul() {
        assert_eq!(text(b"scheduler\0\0junk"), "scheduler");
        assert_eq!(text(b"full"), "full");
    }
}
