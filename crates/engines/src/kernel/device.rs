// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! /dev/klogger: the structures and numbers of `runtime/include/klogger/device.h`.

use klogger_os::Mapping;
use klogger_os::modules::{Plain, command, request};
pub use klogger_ring::layout::device::*;
use klogger_ring::layout::device::{passed, request as number};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

pub const PATH: &str = "/dev/klogger";
/// Wake-ups that are read at a time.
const CALLS_MAX: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceInfo {
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
    /// Set by the kernel: some schema asks for stacks.
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

// SAFETY: all are repr(C) and without padding, as the offsets below show.
unsafe impl Plain for DeviceInfo {}
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

/// Fails to compile if a structure or one of its members is not where the header has it.
macro_rules! as_in_c {
    ($type:ident = $size:ident { $($member:ident = $offset:ident),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == passed::$size);
            $(assert!(std::mem::offset_of!($type, $member) == passed::$offset);)*
        };
    };
}

as_in_c!(DeviceInfo = ABOUT {
    version = ABOUT_VERSION,
    clock = ABOUT_CLOCK,
    cpus = ABOUT_CPUS,
    schemata = ABOUT_SCHEMATA,
});
as_in_c!(SchemaAbout = SCHEMA_ABOUT {
    index = SCHEMA_ABOUT_INDEX,
    events = SCHEMA_ABOUT_EVENTS,
    probes = SCHEMA_ABOUT_PROBES,
    text_length = SCHEMA_ABOUT_TEXT_LENGTH,
    text_digest = SCHEMA_ABOUT_TEXT_DIGEST,
    name = SCHEMA_ABOUT_NAME,
});
as_in_c!(Use = USE {
    index = USE_INDEX,
    base = USE_BASE,
    text_digest = USE_TEXT_DIGEST,
});
as_in_c!(Start = START {
    ring_size = START_RING_SIZE,
    stride = START_STRIDE,
    lowwater = START_LOWWATER,
    scoped = START_SCOPED,
    overwrite = START_OVERWRITE,
    stacks = START_STACKS,
});
as_in_c!(RingsAbout = RINGS_ABOUT {
    ring_size = RINGS_ABOUT_RING_SIZE,
    stride = RINGS_ABOUT_STRIDE,
});
as_in_c!(EventOn = EVENT_ON {
    id = EVENT_ON_ID,
    on = EVENT_ON_ON,
});
as_in_c!(ProbeAbout = PROBE_ABOUT {
    index = PROBE_ABOUT_INDEX,
    place = PROBE_ABOUT_PLACE,
    probe = PROBE_ABOUT_PROBE,
    target = PROBE_ABOUT_TARGET,
    error = PROBE_ABOUT_ERROR,
    attached = PROBE_ABOUT_ATTACHED,
    missed = PROBE_ABOUT_MISSED,
    name = PROBE_ABOUT_NAME,
});

/// The device, open. Only one process at a time can open it.
pub struct Device(File);

impl Device {
    pub fn open() -> io::Result<Device> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(PATH).map(Device)
    }

    pub fn about(&self) -> io::Result<DeviceInfo> {
        let mut about = DeviceInfo::default();
        request(self.as_fd(), number::ABOUT, &mut about).map(|()| about)
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
            match request(self.as_fd(), number::SCHEMA, &mut about) {
                Ok(()) => all.push(about),
                // An unused number: the schema was removed.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    pub fn use_schema(&self, mut used: Use) -> io::Result<()> {
        request(self.as_fd(), number::USE, &mut used)
    }

    pub fn start(&self, start: &mut Start) -> io::Result<()> {
        request(self.as_fd(), number::START, start)
    }

    pub fn rings(&self) -> io::Result<RingsAbout> {
        let mut about = RingsAbout::default();
        request(self.as_fd(), number::RINGS, &mut about).map(|()| about)
    }

    pub fn attach(&self) -> io::Result<()> {
        command(self.as_fd(), number::ATTACH)
    }

    pub fn detach(&self) -> io::Result<()> {
        command(self.as_fd(), number::DETACH)
    }

    pub fn forget(&self) -> io::Result<()> {
        command(self.as_fd(), number::FORGET)
    }

    pub fn event(&self, id: u16, on: bool) -> io::Result<()> {
        request(self.as_fd(), number::EVENT, &mut EventOn { id: id.into(), on: on.into() })
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
        request(self.as_fd(), number::PROBE, &mut about).map(|()| about)
    }

    pub fn map(&self, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::part(self.as_fd(), offset, length)
    }

    /// The wake-ups that have arrived: numbers of CPUs, or CALL_RESIZED.
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

    #[test]
    fn names_end_at_the_first_nul() {
        assert_eq!(text(b"scheduler\0\0junk"), "scheduler");
        assert_eq!(text(b"full"), "full");
    }
}
