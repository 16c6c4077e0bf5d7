// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Addresses of data in events, and what was there.

use super::{File, LINES_MAX, base, clean};
use std::collections::HashMap;
use std::fmt::{self, Write};

/// What an address of data is, from a time on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datum {
    /// The process; 0: the kernel.
    pub pid: u32,
    pub address: u64,
    /// In ns: it is this from here on, until the next one of the same address.
    pub from: u64,
    pub at: DataPlace,
    /// Unknown if the file has no name for it, or was not looked at.
    pub name: Option<Variable>,
}

/// Where data are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPlace {
    /// In memory that belongs to no file; or in the kernel.
    #[default]
    Nowhere,
    /// In a program or library, loaded so that its code from `segment` of the file on is
    /// `distance` bytes before.
    Image { file: u32, segment: u64, distance: u64 },
    /// In a file that a process shares with others, so far from its beginning.
    Shared { file: u32, offset: u64 },
}

/// A variable; or a file, if it has no name for its variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    /// How far behind its beginning; in a file the address that the file has for it.
    pub offset: u64,
}

impl Datum {
    pub(super) fn line(&self, text: &mut String) {
        let Datum { pid, address, from, at, name } = self;
        let _ = write!(text, "d {pid} {address:x} {from} {at}");
        if let Some(Variable { name, offset }) = name {
            let _ = write!(text, "\t{offset:x}\t{}", clean(name));
        }
        text.push('\n');
    }

    /// Such a line, without its first word.
    pub(super) fn read(line: &str) -> Option<Datum> {
        let mut parts = line.split('\t');
        let mut words = parts.next()?.split(' ');
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let datum = Datum {
            pid: words.next()?.parse().ok()?,
            address: hex(words.next()?)?,
            from: words.next()?.parse().ok()?,
            at: place(words.next()?)?,
            name: None,
        };
        let name = match (parts.next(), parts.next()) {
            (Some(offset), Some(name)) => {
                Some(Variable { name: name.into(), offset: hex(offset)? })
            }
            _ => None,
        };
        Some(Datum { name, ..datum })
    }

    /// The number of the file that it is in.
    pub fn file_mut(&mut self) -> Option<&mut u32> {
        match &mut self.at {
            DataPlace::Nowhere => None,
            DataPlace::Image { file, .. } | DataPlace::Shared { file, .. } => Some(file),
        }
    }

    /// As it is shown: `lock`, `table+0x40`, `queue.shm+0x0`.
    fn text(&self, files: &[File]) -> Option<String> {
        match (&self.name, self.at) {
            (Some(Variable { name, offset: 0 }), _) => Some(name.clone()),
            (Some(Variable { name, offset }), _) => Some(format!("{name}+{offset:#x}")),
            (None, DataPlace::Shared { file, offset }) => {
                let path = &files.get(file as usize)?.path;
                Some(format!("{}+{offset:#x}", base(path)))
            }
            (None, DataPlace::Nowhere | DataPlace::Image { .. }) => None,
        }
    }
}

impl fmt::Display for DataPlace {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            DataPlace::Nowhere => write!(to, "-"),
            DataPlace::Image { file, segment, distance } => {
                write!(to, "{file}@{segment:x}+{distance:x}")
            }
            DataPlace::Shared { file, offset } => write!(to, "{file}+{offset:x}"),
        }
    }
}

fn place(word: &str) -> Option<DataPlace> {
    if word == "-" {
        return Some(DataPlace::Nowhere);
    }
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (file, far) = word.split_once('+')?;
    Some(match file.split_once('@') {
        Some((file, segment)) => DataPlace::Image {
            file: file.parse().ok()?,
            segment: hex(segment)?,
            distance: hex(far)?,
        },
        None => DataPlace::Shared { file: file.parse().ok()?, offset: hex(far)? },
    })
}

/// From when on an address is what.
type Meanings = Vec<(u64, Option<String>)>;

/// The names of the data of a log, by process (0: the kernel) and address.
#[derive(Clone, Debug, Default)]
pub struct Data(HashMap<(u32, u64), Meanings>);

/// An address of data and its name from a time on.
pub struct Named<'a> {
    pub pid: u32,
    pub address: u64,
    pub from: u64,
    /// `None`: from here on it has no name.
    pub name: Option<&'a str>,
}

impl Data {
    pub fn new(code: &super::Code) -> Data {
        let mut data: HashMap<_, Vec<_>> = HashMap::new();
        for datum in code.data.iter().take(LINES_MAX) {
            let known = data.entry((datum.pid, datum.address)).or_default();
            known.push((datum.from, datum.text(&code.files)));
        }
        data.values_mut().for_each(|known| known.sort());
        Data(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was there at this time. `pid`: whose address it is, if it is one of a program.
    pub fn find(&self, pid: Option<u32>, address: u64, time: u64) -> Option<&str> {
        let known = self.0.get(&(owner(pid, address)?, address))?;
        let after = known.partition_point(|(from, _)| *from <= time);
        known.get(after.checked_sub(1)?)?.1.as_deref()
    }

    /// In the order of processes, addresses and times.
    pub fn iter(&self) -> impl Iterator<Item = Named<'_>> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(key, _)| **key);
        all.into_iter().flat_map(|((pid, address), known)| {
            known.iter().map(|(from, name)| Named {
                pid: *pid,
                address: *address,
                from: *from,
                name: name.as_deref(),
            })
        })
    }
}

/// Whose address it is: addresses of the kernel are the upper half.
pub fn owner(pid: Option<u32>, address: u64) -> Option<u32> {
    if address >> 63 == 1 { Some(0) } else { pid.filter(|pid| *pid > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    #[test]
    fn what_is_written_is_read() {
        let image = DataPlace::Image { file: 0, segment: 0x1000, distance: 0x3060 };
        let name = Some(Variable { name: "ns::table<int, 2>".into(), offset: 0x40 });
        let all = [
            Datum { pid: 7, address: 0x5560, from: 9, at: image, name },
            Datum { pid: 7, address: 0x5560, from: 99, ..Datum::default() },
            Datum { pid: 8, at: DataPlace::Shared { file: 1, offset: 8 }, ..Datum::default() },
        ];
        let code = Code { data: all.into(), ..Code::default() };
        assert_eq!(Code::new(code.lines().as_bytes()), code);
        let forged =
            b"d\nd 1\nd x 1 1 -\nd 1 1 1 0@\nd 1 1 1 0@+\nd 1 1 1 +1\nd 1 1 1\nd 1 1 1 -\tz\ta";
        assert_eq!(Code::new(forged), Code::default());
    }

    #[test]
    fn an_address_is_what_it_was_at_the_time() {
        let code = Code::new(
            b"f 0 - - /dev/shm/queue\nd 7 60 0 0@0+60\t0\tlock\nd 7 60 20 -\nd 7 60 30 0+40\n\
              d 0 ffffffff82000000 0 -\t8\ttasks\n",
        );
        let data = Data::new(&code);
        let at = |pid, time| data.find(pid, 0x60, time);
        assert_eq!(at(Some(7), 19), Some("lock"));
        assert_eq!(at(Some(7), 20), None);
        assert_eq!(at(Some(7), 30), Some("queue+0x40"));
        assert_eq!((at(Some(8), 30), at(None, 30), at(Some(0), 30)), (None, None, None));
        assert_eq!(data.find(None, 0xffff_ffff_8200_0000, 0), Some("tasks+0x8"));
    }
}
