// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--device`, `--netns` and `--path`: only events about certain objects. These are conditions of
//! the events that say which object they are about.

use super::conditions::Changes;
use crate::failure::Failure;
use crate::messages;
use klogger_os::answers;
use klogger_schema::model::{Decode, Event, Field, Scalar, Shape};
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::condition::{PATH_MAX, under};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The values of the three options.
#[derive(Default)]
pub struct Objects<'a> {
    /// `dev_t` of the kernel.
    pub devices: &'a [Device],
    pub namespaces: &'a [Namespace],
    pub paths: &'a [Prefix],
}

/// A value of `--device`: the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(u32);

/// A value of `--netns`: the number of its inode, which is the namespace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace(u64);

/// A value of `--path`, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

/// `8:0`, or the file of a block or character device.
pub fn device(text: &str) -> Result<Device, String> {
    let of = |major: u32, minor: u32| Device(major << 20 | minor & 0xfffff);
    if let Some((major, minor)) = text.split_once(':').filter(|_| !text.starts_with('/')) {
        return match (major.parse(), minor.parse()) {
            (Ok(major @ 0..=0xfff), Ok(minor @ 0..=0xfffff)) => Ok(of(major, minor)),
            _ => Err("write MAJOR:MINOR, as in 8:0, or the device's file, as in /dev/vda".into()),
        };
    }
    let about = answers::metadata(text.as_ref())
        .map_err(|e| format!("{e}; write MAJOR:MINOR, or the device's file: /dev/vda"))?;
    let kind = about.file_type();
    if !kind.is_block_device() && !kind.is_char_device() {
        return Err("not a device; --path is for files and folders".into());
    }
    Ok(of(libc::major(about.rdev()), libc::minor(about.rdev())))
}

/// A process, a name of `ip netns`, or a file of a namespace.
pub fn namespace(text: &str) -> Result<Namespace, String> {
    let file = match text {
        _ if text.contains('/') => text.into(),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => format!("/proc/{text}/ns/net"),
        _ => format!("/run/netns/{text}"),
    };
    let about = answers::metadata(file.as_ref()).map_err(|e| {
        format!("{file}: {e}; name a process, a name of 'ip netns', or a file as /proc/PID/ns/net")
    })?;
    // Namespaces are files of nsfs, which has no device.
    let own = fs::metadata("/proc/self/ns/net").map_err(|e| format!("/proc/self/ns/net: {e}"))?;
    match about.dev() == own.dev() {
        true => Ok(Namespace(about.ino())),
        false => Err(format!("{file} is no namespace; 'ip netns' lists those with names")),
    }
}

pub fn prefix(text: &str) -> Result<Prefix, String> {
    let cut = text.trim_end_matches('/');
    match cut.len() {
        _ if text.is_empty() || text.bytes().any(|b| b.is_ascii_control()) => {
            Err("write the beginning of a path, as in /var/log".into())
        }
        0..=PATH_MAX => Ok(Prefix(cut.into())),
        n => Err(format!("it has {n} bytes, and {PATH_MAX} are possible; name a folder above it")),
    }
}

/// One option: what it is called, how an event tells its object, and for such an event the
/// condition in C and as a filter of `klogger cat`.
struct Kind<'a> {
    option: &'static str,
    tells: &'static str,
    conditions: Conditions<'a>,
}

type Conditions<'a> = Box<dyn Fn(&Event) -> Option<(String, String)> + 'a>;

impl Objects<'_> {
    /// Which of the options are given.
    pub fn options(&self) -> Vec<&'static str> {
        self.kinds().iter().map(|kind| kind.option).collect()
    }

    /// Those that are given.
    fn kinds(&self) -> Vec<Kind<'_>> {
        let mut kinds = Vec::new();
        if !self.devices.is_empty() {
            let numbers: Vec<u64> = self.devices.iter().map(|d| d.0.into()).collect();
            kinds.push(Kind {
                option: "--device",
                tells: "a field 'as device'",
                conditions: Box::new(move |e| any_of(e, &numbers, |f| f.decode == Decode::Device)),
            });
        }
        if !self.namespaces.is_empty() {
            let numbers: Vec<u64> = self.namespaces.iter().map(|n| n.0).collect();
            kinds.push(Kind {
                option: "--netns",
                tells: "an integer field 'netns'",
                conditions: Box::new(move |e| any_of(e, &numbers, |f| f.name == "netns")),
            });
        }
        if !self.paths.is_empty() {
            kinds.push(Kind {
                option: "--path",
                tells: "a text 'as path'",
                conditions: Box::new(|e| below(e, self.paths)),
            });
        }
        kinds
    }

    /// Adds the conditions to the events of all schemata.
    pub fn set(&self, units: &mut [CompiledSchema], changes: &mut Changes) -> Result<(), Failure> {
        for kind in self.kinds() {
            let (mut some, mut others) = (false, Vec::new());
            for (at, unit) in units.iter_mut().enumerate() {
                let calls: Vec<_> = unit.schema.probes.iter().flat_map(|p| &p.calls).collect();
                let logged: Vec<String> = calls.into_iter().map(|c| c.event.clone()).collect();
                for event in unit.schema.events.iter_mut().filter(|e| logged.contains(&e.name)) {
                    match (kind.conditions)(event) {
                        None => others.push(event.name.clone()),
                        Some((c, filter)) => {
                            some = true;
                            changes.join(at, event, c, filter);
                        }
                    }
                }
            }
            let (option, tells) = (kind.option, kind.tells);
            if !some {
                return Err(Failure::new(format!(
                    "{option}: no event of this recording has {tells}"
                ))
                .help(format!("record a schema with such events, or without {option}")));
            }
            if !others.is_empty() {
                let names = others.join(", ");
                messages::note(&format!("{option} does not apply to {names}: without {tells}"));
            }
        }
        Ok(())
    }
}

/// Whether one of an event's fields of a kind is one of these numbers.
fn any_of(
    event: &Event,
    numbers: &[u64],
    is_one: impl Fn(&Field) -> bool,
) -> Option<(String, String)> {
    let single = |f: &&Field| f.shape == Shape::One && f.scalar != Scalar::Bool;
    let fields: Vec<&Field> = event.fields.iter().filter(single).filter(|f| is_one(f)).collect();
    let each = |join: &dyn Fn(&Field, u64) -> String| {
        let terms: Vec<String> =
            fields.iter().flat_map(|f| numbers.iter().map(|n| join(f, *n))).collect();
        terms.join(" || ")
    };
    let value = |f: &Field| match f.context {
        Some(context) => format!("klogger_context_{}()", context.word()),
        None => f.name.clone(),
    };
    (!fields.is_empty()).then(|| {
        (
            each(&|f, n| format!("(unsigned long long)({}) == {n}ull", value(f))),
            each(&|f, n| format!("{} == {n}", f.name)),
        )
    })
}

/// Whether one of an event's paths is one of these, or below it.
fn below(event: &Event, paths: &[Prefix]) -> Option<(String, String)> {
    let fields: Vec<&Field> = event.fields.iter().filter(|f| f.decode == Decode::Path).collect();
    let (mut c, mut filters) = (Vec::new(), Vec::new());
    for field in &fields {
        for Prefix(path) in paths {
            c.push(under(field, path));
            filters.push(format!("{} =~ '^{}(/|$)'", field.name, literally(path)));
        }
    }
    (!fields.is_empty()).then(|| (c.join(" || "), filters.join(" || ")))
}

/// For a regular expression in quotes.
fn literally(path: &str) -> String {
    let one = |c: char| match c {
        '.' => "[.]".to_string(),
        '/' | '_' | '-' | ' ' => c.to_string(),
        c if c.is_alphanumeric() => c.to_string(),
        // Any character: quotes and brackets cannot be written everywhere.
        _ => ".".to_string(),
    };
    path.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        let text = format!("schema s\n{text}");
        klogger_schema::parse("s.klogger", &text, &Default::default()).unwrap().schema.events[0]
            .clone()
    }

    #[test]
    fn devices_are_numbers_of_the_kernel() {
        assert_eq!(device("8:1").unwrap(), Device(8 << 20 | 1));
        assert_eq!(device("/dev/null").unwrap(), Device(1 << 20 | 3));
        for bad in ["8", "8:", "x:1", "4096:0", "/dev/none", "/etc"] {
            assert!(device(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespaces_are_inodes() {
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert_eq!(namespace(&std::process::id().to_string()).unwrap(), Namespace(own));
        assert_eq!(namespace("/proc/self/ns/net").unwrap(), Namespace(own));
        for bad in ["nothing", "/etc/passwd", "0"] {
            assert!(namespace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_event_is_about_its_fields() {
        let e = event("event E { uint dev as device  int x  string name as path }\n");
        let (c, filter) = any_of(&e, &[8, 9], |f| f.decode == Decode::Device).unwrap();
        assert_eq!(filter, "dev == 8 || dev == 9");
        assert_eq!(c, "(unsigned long long)(dev) == 8ull || (unsigned long long)(dev) == 9ull");
        assert!(any_of(&e, &[8], |f| f.name == "netns").is_none());
        let (_, filter) = below(&e, &[prefix("/var/l.g/").unwrap()]).unwrap();
        assert_eq!(filter, "name =~ '^/var/l[.]g(/|$)'");
        assert_eq!(prefix("/").unwrap(), Prefix(String::new()));
        assert!(prefix("").is_err() && prefix(&"x".repeat(PATH_MAX + 1)).is_err());
    }
}
