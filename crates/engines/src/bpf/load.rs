// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads a compiled schema: from its ELF object to programs and maps in the kernel.

use super::attach;
pub use super::config::{Config, Part};
use super::refused::Refused;
use super::states;
use klogger_codegen::bpf::attach_points::syscall::way;
use klogger_codegen::bpf::{Program, counters_max, programs};
use klogger_codegen::parameters;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_ring::Rings;
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::{ProbeKind, Schema};
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan};
use libbpf_rs::{
    MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut, OpenObject, OpenProgramMut,
    PrintLevel, ProgramType,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

pub const RINGS: &str = "klogger_rings";
pub const LARGER: &str = "klogger_larger";
pub const NESTED_RINGS: &str = "klogger_nested";
pub const SCOPE: &str = ".bss.klogger_s";
pub const OTHER_SCOPE: &str = ".bss.klogger_o";
pub const LEFT_NAMES: &str = ".bss.klogger_g";
pub const ENABLED: &str = ".data.klogger_e";
pub const RINGLESS: &str = ".bss.klogger_r";
pub const UNREAD: &str = ".bss.klogger_u";
pub const CONFIG: &str = ".rodata.klogger";
pub const CALLS: &str = "klogger_calls";
/// The counters of CPUs; in objects of schemata with `arch` blocks.
pub const COUNTERS: &str = "klogger_counters";
/// Rate limits of events, and what was left out because of them.
pub const RATES: &str = ".bss.klogger_l";
pub const LEFT: &str = "klogger_left";
/// Hits of triggers; in objects of schemata with events that have some.
pub const FIRED: &str = "klogger_fired";
/// How many programs each probe has, what the copies have logged, and marks of recent hits: see
/// `copies.h` of the BPF runtime.
pub const COPIES: &str = ".bss.klogger_n";
pub const CAUGHT: &str = ".bss.klogger_a";
pub const MARKS: &str = "klogger_marks";
/// The last two are in objects of schemata that ask for stacks.
pub const STACKS: &str = "klogger_stacks";
pub const STACKLESS: &str = ".bss.klogger_k";

/// In objects of schemata that ask for user stacks.
pub const USER_STACKS: &str = ".bss.klogger_w";
const USER_SCRATCH: &str = "klogger_user_scratch";
/// In objects of schemata with `context otel`: see `otel.h`.
pub const OTEL_PLACES: &str = "klogger_otel_places";
pub const OTEL_UNREAD: &str = ".bss.klogger_t";
/// In objects of schemata with probes of system calls: see `calls.h`.
pub const CALL_TABLE: &str = ".bss.klogger_y";
pub const ON_ENTRY: &str = "klogger_on_entry";
pub const ON_EXIT: &str = "klogger_on_exit";
/// In objects of schemata with a probe at several system calls.
pub const CALL_LISTS: &str = ".bss.klogger_x";

/// The maps that the first object makes and all others reuse.
pub struct Shared {
    pub rings: OwnedFd,
    pub larger: OwnedFd,
    pub nested: OwnedFd,
    pub scope: OwnedFd,
    pub other_scope: OwnedFd,
    pub left_names: OwnedFd,
    pub ringless: OwnedFd,
    pub unread: OwnedFd,
    pub rates: OwnedFd,
    pub left: OwnedFd,
    pub calls: OwnedFd,
    pub copies: OwnedFd,
    pub caught: OwnedFd,
    pub marks: OwnedFd,
    /// From the first object that has it.
    pub fired: Option<OwnedFd>,
    /// From the first object that has them: the table of stacks, and the counts of stacks without a
    /// slot.
    pub stacks: Option<(OwnedFd, OwnedFd)>,
    /// From the first object that has it.
    pub user_stacks: Option<OwnedFd>,
    /// The same for requests: where processes have them, and what could not be read.
    pub otel: Option<[OwnedFd; 2]>,
    /// The same for system calls: the tables, and the programs of entries and of exits.
    pub system_calls: Option<[OwnedFd; 3]>,
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
            left_names: map_fd(object, LEFT_NAMES)?,
            ringless: map_fd(object, RINGLESS)?,
            unread: map_fd(object, UNREAD)?,
            rates: map_fd(object, RATES)?,
            left: map_fd(object, LEFT)?,
            calls: map_fd(object, CALLS)?,
            copies: map_fd(object, COPIES)?,
            caught: map_fd(object, CAUGHT)?,
            marks: map_fd(object, MARKS)?,
            fired: None,
            stacks: None,
            user_stacks: None,
            otel: None,
            system_calls: None,
        })
    }

    /// Whether it is a map that the first object makes, whatever the others are.
    pub fn is_always(name: &str) -> bool {
        let all = [
            RINGS,
            LARGER,
            NESTED_RINGS,
            SCOPE,
            OTHER_SCOPE,
            LEFT_NAMES,
            RINGLESS,
            UNREAD,
            RATES,
            LEFT,
            CALLS,
            COPIES,
            CAUGHT,
            MARKS,
        ];
        all.contains(&name)
    }

    /// Whether it is a map of which a recording has one, in whichever objects it is.
    pub fn is_one(name: &str) -> bool {
        let some = [
            STACKS,
            STACKLESS,
            USER_STACKS,
            OTEL_PLACES,
            OTEL_UNREAD,
            CALL_TABLE,
            ON_ENTRY,
            ON_EXIT,
        ];
        Shared::is_always(name) || some.contains(&name)
    }

    fn map(&self, name: &str) -> Option<&OwnedFd> {
        match name {
            RINGS => Some(&self.rings),
            LARGER => Some(&self.larger),
            NESTED_RINGS => Some(&self.nested),
            SCOPE => Some(&self.scope),
            OTHER_SCOPE => Some(&self.other_scope),
            LEFT_NAMES => Some(&self.left_names),
            RINGLESS => Some(&self.ringless),
            UNREAD => Some(&self.unread),
            RATES => Some(&self.rates),
            LEFT => Some(&self.left),
            CALLS => Some(&self.calls),
            COPIES => Some(&self.copies),
            CAUGHT => Some(&self.caught),
            MARKS => Some(&self.marks),
            FIRED => self.fired.as_ref(),
            STACKS => self.stacks.as_ref().map(|(stacks, _)| stacks),
            STACKLESS => self.stacks.as_ref().map(|(_, stackless)| stackless),
            USER_STACKS => self.user_stacks.as_ref(),
            OTEL_PLACES => self.otel.as_ref().map(|[places, _]| places),
            OTEL_UNREAD => self.otel.as_ref().map(|[_, unread]| unread),
            CALL_TABLE => self.system_calls.as_ref().map(|[table, ..]| table),
            ON_ENTRY => self.system_calls.as_ref().map(|[_, entry, _]| entry),
            ON_EXIT => self.system_calls.as_ref().map(|[.., exit]| exit),
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
) -> Result<Result<Object, Box<Refused>>, Error> {
    let mut open = open_object(unit, part, config, shared, example)?;
    states::set_sizes(&mut open, &unit.schema)?;
    choose_programs(&mut open, &unit.schema, plan, config, |_| true)?;
    if shared.is_none_or(|s| s.system_calls.is_none()) {
        let ways = [ProbeKind::Syscall, ProbeKind::ReturnSyscall].into_iter().filter_map(way);
        let names: Vec<&str> = ways.map(|(_, program)| program).collect();
        let ours = |p: &OpenProgramMut| names.iter().any(|name| p.name() == *name);
        open.progs_mut().filter(ours).for_each(|mut program| program.set_autoload(true));
    }
    Ok(load_opened(open, &unit.schema))
}

/// Loads those programs that the plan attaches, and are `wanted`. One that is for several places is
/// loaded for the first of them.
pub(super) fn choose_programs(
    open: &mut OpenObject,
    schema: &Schema,
    plan: &[Plan],
    config: &Config,
    wanted: impl Fn(&Program) -> bool,
) -> Result<(), Error> {
    let programs = programs(schema);
    for mut loaded in open.progs_mut() {
        let program = programs.iter().find(|p| loaded.name() == p.name.as_str() && wanted(p));
        let place = program.and_then(|p| plan[p.probe].places_of(p).next());
        loaded.set_autoload(place.is_some());
        let (Some(program), Some(place)) = (program, place) else { continue };
        let target = &schema.probes[program.probe].targets[program.target];
        attach::prepare(&mut loaded, target.kind, config.uprobe_multi);
        let is_placed = target.is_many() && !target.kind.finds_place();
        if is_placed && loaded.prog_type() == ProgramType::Tracing {
            let cannot = |e| Error::new(format!("cannot load a program for {}: {e}", place.name));
            loaded.set_attach_target(0, Some(place.name.clone())).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Sets the values of a section, whose last one may be shorter than the others.
pub(super) fn set_constants(map: &mut OpenMapMut, bytes: &[u8]) {
    if let Some(section) = map.initial_value_mut() {
        section.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
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
            parameters::SECTION => {
                set_constants(&mut map, &parameters::bytes(&unit.schema, true));
                Ok(())
            }
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
            parameters::SECTION => {
                set_constants(&mut map, &parameters::bytes(&unit.schema, false));
            }
            ENABLED => {
                if let Some(bytes) = map.initial_value_mut() {
                    bytes[..unit.schema.events.len()].fill(1);
                }
            }
            MARKS if config.preempt => map.set_max_entries(layout::MARKS)?,
            COUNTERS => map.set_max_entries(config.rings as u32 * counters_max(&unit.schema))?,
            NESTED_RINGS | LEFT | FIRED | USER_SCRATCH => {
                map.set_max_entries(config.rings as u32)?
            }
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
