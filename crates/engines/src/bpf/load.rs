// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads a compiled schema: from its ELF object to programs and maps in the kernel.

use super::choice::Choice;
use super::refused::Refused;
use crate::request::FIRST_ID;
use klogger_codegen::bpf::programs;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_ring::layout::bpf as layout;
use klogger_ring::{GRID, Rings};
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan};
use libbpf_rs::{MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

pub const RINGS: &str = "klogger_rings";
pub const LARGER: &str = "klogger_larger";
pub const NESTED_RINGS: &str = "klogger_nested";
pub const SCOPE: &str = ".bss.klogger_s";
pub const OTHER_SCOPE: &str = ".bss.klogger_o";
pub const ENABLED: &str = ".data.klogger_e";
pub const RINGLESS: &str = ".bss.klogger_r";
pub const UNREAD: &str = ".bss.klogger_u";
pub const CONFIG: &str = ".rodata.klogger";
pub const CALLS: &str = "klogger_calls";
/// Rate limits of events, and what was left out because of them.
pub const RATES: &str = ".bss.klogger_l";
pub const LEFT: &str = "klogger_left";
/// How many programs each probe has, what the copies have logged, and marks of recent hits: see
/// `copies.h` of the BPF runtime.
pub const COPIES: &str = ".bss.klogger_n";
pub const CAUGHT: &str = ".bss.klogger_a";
pub const MARKS: &str = "klogger_marks";
/// The last two are in objects of schemata that ask for stacks.
pub const STACKS: &str = "klogger_stacks";
pub const STACKLESS: &str = ".bss.klogger_k";

/// What the recorder fixes before loading; `struct klogger_config` of the BPF runtime.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// CPUs that get a ring: numbers below this.
    pub rings: usize,
    /// Bytes of a ring, a power of two.
    pub ring_size: usize,
    /// Bytes of a larger ring, which replaces one that is too small, a power of two; 0: rings do
    /// not grow.
    pub larger: usize,
    /// Bytes that all larger rings together may use.
    pub larger_memory: u64,
    /// Only threads whose bit is set are logged.
    pub scoped: bool,
    /// Of the threads that are followed, only some are recorded.
    pub choice: Option<Choice>,
    pub overwrite: bool,
    /// Percent of a ring: the low-water mark. When less is free, the writer wakes its drain thread.
    pub lowwater: u32,
    /// This kernel's programs can be preempted.
    pub preempt: bool,
    /// A bit for each CPU on which events are logged, if not on all.
    pub cpus: [u64; layout::CPUS_MAX / 64],
}

/// Which programs of a schema to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// The id of the schema's first event, and the number of its first probe.
    pub base: u16,
    pub probes: u32,
    /// 0: the first programs; above: copies.
    pub copy: u8,
}

impl Part {
    fn is_builtin(self) -> bool {
        self.base == FIRST_ID
    }
}

impl Config {
    fn bytes(&self, part: Part) -> Vec<u8> {
        let words = [
            (layout::CONFIG_RINGS, self.rings as u32),
            (layout::CONFIG_MASK, self.ring_size as u32 - 1),
            (layout::CONFIG_BASE, u32::from(part.base)),
            (layout::CONFIG_GRID_SHIFT, (self.ring_size / GRID).trailing_zeros()),
            (layout::CONFIG_LARGER_MASK, (self.larger as u32).saturating_sub(1)),
            (layout::CONFIG_PROBES, part.probes),
        ];
        let flags = [
            (layout::CONFIG_SCOPED, u8::from(self.is_scoped(part))),
            (layout::CONFIG_OVERWRITE, u8::from(self.overwrite)),
            (layout::CONFIG_PREEMPT, u8::from(self.preempt)),
            (layout::CONFIG_COPY, part.copy),
            (layout::CONFIG_BEGINNING, self.beginning()),
        ];
        let mut bytes = vec![0; layout::CONFIG];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in (layout::CONFIG_CPUS..).step_by(8).zip(self.cpus) {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, flag) in flags {
            bytes[at] = flag;
        }
        if let Some(choice) = self.choice {
            choice.put(part.is_builtin(), &mut bytes);
        }
        bytes
    }

    /// The built-in events name threads: also those that are not chosen.
    fn is_scoped(&self, part: Part) -> bool {
        self.scoped && !(part.is_builtin() && self.choice.is_some_and(|choice| choice.all))
    }

    /// An `enum klogger_beginning`.
    fn beginning(&self) -> u8 {
        let preempted = if self.preempt { layout::BEGINNING_PREEMPTED } else { 0 };
        preempted | if self.choice.is_some() { layout::BEGINNING_CHOOSES } else { 0 }
    }
}

/// The maps that the first object makes and all others reuse.
pub struct Shared {
    pub rings: OwnedFd,
    pub larger: OwnedFd,
    pub nested: OwnedFd,
    pub scope: OwnedFd,
    pub other_scope: OwnedFd,
    pub ringless: OwnedFd,
    pub unread: OwnedFd,
    pub rates: OwnedFd,
    pub left: OwnedFd,
    pub calls: OwnedFd,
    pub copies: OwnedFd,
    pub caught: OwnedFd,
    pub marks: OwnedFd,
    /// From the first object that has them: the table of stacks, and the counts of stacks without a
    /// slot.
    pub stacks: Option<(OwnedFd, OwnedFd)>,
}

impl Shared {
    /// Those of the object with the built-in events. If threads are chosen, its two scopes are
    /// those of the others exchanged.
    pub fn of(object: &Object, config: &Config) -> Result<Shared, Error> {
        let scopes = match config.choice {
            None => (SCOPE, OTHER_SCOPE),
            Some(_) => (OTHER_SCOPE, SCOPE),
        };
        Ok(Shared {
            rings: map_fd(object, RINGS)?,
            larger: map_fd(object, LARGER)?,
            nested: map_fd(object, NESTED_RINGS)?,
            scope: map_fd(object, scopes.0)?,
            other_scope: map_fd(object, scopes.1)?,
            ringless: map_fd(object, RINGLESS)?,
            unread: map_fd(object, UNREAD)?,
            rates: map_fd(object, RATES)?,
            left: map_fd(object, LEFT)?,
            calls: map_fd(object, CALLS)?,
            copies: map_fd(object, COPIES)?,
            caught: map_fd(object, CAUGHT)?,
            marks: map_fd(object, MARKS)?,
            stacks: None,
        })
    }

    fn map(&self, name: &str) -> Option<&OwnedFd> {
        match name {
            RINGS => Some(&self.rings),
            LARGER => Some(&self.larger),
            NESTED_RINGS => Some(&self.nested),
            SCOPE => Some(&self.scope),
            OTHER_SCOPE => Some(&self.other_scope),
            RINGLESS => Some(&self.ringless),
            UNREAD => Some(&self.unread),
            RATES => Some(&self.rates),
            LEFT => Some(&self.left),
            CALLS => Some(&self.calls),
            COPIES => Some(&self.copies),
            CAUGHT => Some(&self.caught),
            MARKS => Some(&self.marks),
            STACKS => self.stacks.as_ref().map(|(stacks, _)| stacks),
            STACKLESS => self.stacks.as_ref().map(|(_, stackless)| stackless),
            _ => None,
        }
    }
}

/// Messages of libbpf and the verifier, kept for when loading fails.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep_message(_: PrintLevel, text: String) {
    if let Ok(mut messages) = MESSAGES.lock() {
        messages.push(text.trim_end().to_string());
    }
}

/// Messages of libbpf and the verifier are kept from now on.
pub fn keep_messages() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_message)));
}

/// `example`: as [`example`] makes it.
pub fn load_object(
    unit: &CompiledSchema,
    plan: &[Plan],
    part: Part,
    config: &Config,
    shared: Option<&Shared>,
    example: Option<&MapHandle>,
) -> Result<Object, Error> {
    let mut open = open_object(unit, part, config, shared, example)?;
    let wanted: Vec<String> = programs(&unit.schema)
        .into_iter()
        .filter(|f| plan[f.probe].target == Some(f.target))
        .map(|f| f.name)
        .collect();
    for mut program in open.progs_mut() {
        let load = wanted.iter().any(|w| program.name() == w.as_str());
        program.set_autoload(load);
    }
    Ok(load_opened(open, &unit.schema)?)
}

/// Loads one program of a schema, compiled for any attach point, with maps of its own.
pub fn load_alone(
    unit: &CompiledSchema,
    program: &str,
    place: &str,
    config: &Config,
) -> Result<Object, Error> {
    let mut open =
        open_object(unit, Part::default(), &Config { larger: 0, ..*config }, None, None)?;
    for mut other in open.progs_mut() {
        let wanted = other.name() == program;
        other.set_autoload(wanted);
        if wanted {
            let cannot =
                |e| Error::new(format!("cannot load a program for tracepoint {place}: {e}"));
            other.set_attach_target(0, Some(place.into())).map_err(cannot)?;
        }
    }
    Ok(load_opened(open, &unit.schema)?)
}

/// Loads copies of a schema's programs, with all the maps of the `first` ones.
pub fn load_copies(
    unit: &CompiledSchema,
    programs: &[&str],
    part: Part,
    config: &Config,
    first: &Object,
) -> Result<Object, Error> {
    let name = &unit.schema.name;
    let mut open = open_object_alone(unit)?;
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        let set = match map_name.as_str() {
            CONFIG => map.set_initial_value(&config.bytes(part)),
            other => match first.maps().find(|m| m.name() == other) {
                Some(theirs) if !other.starts_with(".rodata") => map.reuse_fd(theirs.as_fd()),
                _ => Ok(()),
            },
        };
        set.map_err(|e| Error::new(format!("cannot set up the maps of schema '{name}': {e}")))?;
    }
    for mut other in open.progs_mut() {
        let wanted = programs.iter().any(|p| other.name() == *p);
        other.set_autoload(wanted);
    }
    Ok(load_opened(open, &unit.schema)?)
}

fn open_object_alone(unit: &CompiledSchema) -> Result<OpenObject, Error> {
    let mut builder = ObjectBuilder::default();
    let named = builder
        .name("klogger")
        .and_then(|b| b.open_memory(unit.object.as_deref().unwrap_or_default()));
    named.map_err(|e| {
        Error::new(format!("the compiled schema '{}' is damaged: {e}", unit.schema.name))
    })
}

pub(super) fn open_object(
    unit: &CompiledSchema,
    part: Part,
    config: &Config,
    shared: Option<&Shared>,
    example: Option<&MapHandle>,
) -> Result<OpenObject, Error> {
    let name = &unit.schema.name;
    let mut open = open_object_alone(unit)?;
    set_maps(&mut open, unit, part, config, shared, example)
        .map_err(|e| Error::new(format!("cannot set up the maps of schema '{name}': {e}")))?;
    Ok(open)
}

pub(super) fn load_opened(open: OpenObject, schema: &Schema) -> Result<Object, Box<Refused>> {
    if let Ok(mut messages) = MESSAGES.lock() {
        messages.clear();
    }
    open.load().map_err(|e| {
        let log = MESSAGES.lock().map(|m| m.join("\n")).unwrap_or_default();
        Box::new(Refused::new(schema, log, &e.to_string()))
    })
}

fn set_maps(
    open: &mut OpenObject,
    unit: &CompiledSchema,
    part: Part,
    config: &Config,
    shared: Option<&Shared>,
    example: Option<&MapHandle>,
) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(fd) = shared.and_then(|s| s.map(&name)) {
            map.reuse_fd(fd.as_fd())?;
            continue;
        }
        match name.as_str() {
            CONFIG => map.set_initial_value(&config.bytes(part))?,
            ENABLED => {
                if let Some(bytes) = map.initial_value_mut() {
                    bytes[..unit.schema.events.len()].fill(1);
                }
            }
            MARKS if config.preempt => map.set_max_entries(layout::MARKS)?,
            NESTED_RINGS | LEFT => map.set_max_entries(config.rings as u32)?,
            RINGS => {
                map.set_value_size(Rings::stride(config.ring_size) as u32)?;
                map.set_max_entries(config.rings as u32)?;
            }
            LARGER => {
                map.set_max_entries(config.rings as u32)?;
                if let Some(example) = example {
                    map.set_inner_map_fd(example.as_fd())?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A map of one element, the ring. `BPF_F_MMAPABLE` is 1024.
pub fn larger_ring(size: usize) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: 1024,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Array,
        Some("klogger_larger"),
        4,
        Rings::stride(size) as u32,
        1,
        &options,
    )
}

/// The kernel needs an example of a larger ring when it makes the map of them, and keeps only its
/// properties. To make one takes some hundredths of a second. `None` if rings do not grow.
pub fn example(config: &Config) -> Result<Option<MapHandle>, Error> {
    let cannot = |e| {
        Error::new(format!(
            "cannot make a ring of {} bytes, to replace one that is too small: {e}",
            config.larger
        ))
        .help("give rings less memory with --max-memory, or fix their size with --buffer-size")
    };
    (config.larger > 0).then(|| larger_ring(config.larger).map_err(cannot)).transpose()
}

pub fn map_fd(object: &Object, name: &str) -> Result<OwnedFd, Error> {
    let map = object.maps().find(|m| m.name() == name);
    let map = map.ok_or_else(|| Error::new(format!("the compiled schema has no map '{name}'")))?;
    map.as_fd()
        .try_clone_to_owned()
        .map_err(|e| Error::new(format!("cannot use the map '{name}': {e}")))
}

pub fn map_memory(fd: &OwnedFd, length: usize) -> Result<Mapping, Error> {
    let page = 4096;
    Mapping::new(fd.as_fd(), length.next_multiple_of(page))
        .map_err(|e| Error::new(format!("cannot map {length} bytes shared with the kernel: {e}")))
}
