// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the place of a probe: offsets in a file, and where arguments are.

use crate::arguments::{self, Argument, arguments};
use crate::elf::Elf;
use crate::instructions::{self, Hit, Unfit};
use crate::returns::Returns;
use crate::several;
use crate::static_probes::{StaticProbe, static_probes};
use crate::symbols::{self, Function, demangled, functions};
use crate::which::{Opened, Programs};
use klogger_codegen::Refusal;
use klogger_codegen::kernel_types::{self, InPrograms};
use klogger_os::uprobes;
use klogger_schema::attach_points::program::{InProgram, Place, split};
use klogger_schema::model::{ProbeKind, Target};
use klogger_schema::nearest::nearest;
use std::fs::File;

/// A probe's places in one file.
#[derive(Debug)]
pub struct Found {
    /// For messages.
    pub path: String,
    /// Open, so that it is this one even if its name leads to another one later.
    pub file: File,
    pub locations: Vec<Location>,
    /// Of a probe at the return of functions: the locations are their return instructions, where
    /// the result is in its register. Otherwise they are their beginnings, and the kernel is to
    /// replace the address that each call returns to.
    pub at_returns: bool,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Of a target that names several places: this one, as a schema would name it.
    pub place: String,
    pub offset: u64,
    /// Where in the file the counter of a static probe is; 0: it has none.
    pub semaphore: u64,
    /// Of a static probe.
    pub arguments: Vec<Argument>,
}

impl Location {
    pub(crate) fn bare(offset: u64) -> Location {
        Location { place: String::new(), offset, semaphore: 0, arguments: Vec::new() }
    }
}

impl kernel_types::Programs for Programs {
    fn refuse(&self, target: &Target) -> Option<Refusal> {
        let name = in_program(target)?;
        if self.is_later(name.program) {
            return None;
        }
        self.find(target).err()
    }

    fn places(&self, target: &Target) -> Result<Option<InPrograms>, Refusal> {
        let mut programs = target.patterns().filter_map(split).map(|(program, _)| program);
        match programs.any(|program| self.is_later(program)) {
            true => Ok(None),
            false => several::find(self, target).map(|several| Some(several.named)),
        }
    }
}

fn in_program(target: &Target) -> Option<InProgram<'_>> {
    match target.kind {
        ProbeKind::Usdt => InProgram::of_static(&target.name),
        _ => InProgram::of_function(&target.name),
    }
}

impl Programs {
    /// All files of a probe, each with its places.
    ///
    /// # Errors
    ///
    /// If one is missing.
    pub fn find(&self, target: &Target) -> Result<Vec<Found>, Refusal> {
        if target.is_many() {
            return several::find(self, target).map(|several| several.found);
        }
        let Some(InProgram { program, place }) = in_program(target) else {
            let what = format!("'{}' is not a place in a program", target.name);
            return Err(Refusal::of_this_kernel(what, None));
        };
        let opened = self.open(program)?.into_iter();
        opened.map(|opened| find_in(opened, place, target)).collect()
    }
}

fn find_in(opened: Opened, place: Place, target: &Target) -> Result<Found, Refusal> {
    let Opened { path, elf } = opened;
    let returns = Returns::of(&elf, target.kind);
    let locations = place_in(&elf, &path, place, target.params.len(), returns)?;
    Ok(Found { path, file: elf.file, locations, at_returns: returns.are_probed() })
}

pub(crate) fn place_in(
    elf: &Elf,
    path: &str,
    place: Place,
    parameters: usize,
    returns: Returns,
) -> Result<Vec<Location>, Refusal> {
    match place {
        Place::Function { name, plus } => of_function(elf, path, name, plus, returns),
        Place::Address(address) => Ok(vec![of_address(elf, path, address)?]),
        Place::Static { provider, name } => of_static(elf, path, provider, name, parameters),
    }
}

/// The place of an address of a file, unless it has no code there that the kernel can probe; `what`
/// is there, for messages; `of`: the function that it is in, if that is known.
pub(crate) fn location(
    elf: &Elf,
    path: &str,
    what: &str,
    address: u64,
    of: Option<&Function>,
) -> Result<Location, Refusal> {
    let offset = elf.offset_of(address, true).ok_or_else(|| no_code(path, what))?;
    let code = elf.code(address, BEGINNING).map_err(|_| no_code(path, what))?;
    let next = || instructions::next_fit(&code).map(|plus| address + plus);
    if let Some(Unfit { what: is, why }) = instructions::unfit(&code) {
        return Err(Refusal::of_this_kernel(
            format!("at {what} of {path} is {is}, which the kernel cannot probe"),
            Some(match next() {
                Some(next) => format!("{why}; 'user {path}:{next:#x}' is next"),
                None => why.into(),
            }),
        ));
    }
    let optimised = instructions::hit(&code, offset, uprobes::optimises()) == Some(Hit::Optimised);
    if optimised && !is_at_entry(elf, address, of) {
        return Err(would_overwrite(path, what, next()));
    }
    Ok(Location::bare(offset))
}

/// Whether the function at this address has not yet used its stack.
fn is_at_entry(elf: &Elf, address: u64, of: Option<&Function>) -> bool {
    let found: Vec<Function>;
    let function = match of {
        Some(function) => Some(function),
        None => {
            found = functions(elf).unwrap_or_default();
            found.iter().find(|f| f.has(address))
        }
    };
    // A part that the compiler has put elsewhere is jumped to.
    let function = function.filter(|f| !f.name.contains(".cold"));
    let before = function.and_then(|f| elf.code(f.address, address - f.address).ok());
    before.is_some_and(|code| instructions::is_at_entry(&code))
}

fn would_overwrite(path: &str, what: &str, next: Option<u64>) -> Refusal {
    let next = match next {
        Some(next) => format!("'user {path}:{next:#x}' is next"),
        None => "probe another instruction".into(),
    };
    Refusal::of_this_kernel(
        format!("at {what} of {path} is a no-op of five bytes, amid a function"),
        Some(format!(
            "this kernel would put a call there, which overwrites what the function keeps below \
             its stack pointer; {next}"
        )),
    )
}

/// Long enough for what cannot be probed at the beginning of a function.
const BEGINNING: u64 = 64;

fn no_code(path: &str, what: &str) -> Refusal {
    Refusal::of_this_kernel(format!("{path} has no code at {what}"), None)
}

fn of_function(
    elf: &Elf,
    path: &str,
    name: &str,
    plus: u64,
    returns: Returns,
) -> Result<Vec<Location>, Refusal> {
    let all = functions(elf).map_err(|wrong| wrong.of(path))?;
    let found = symbols::find(name, &all)?;
    if found.is_empty() {
        return Err(no_function(elf, path, name, &all));
    }
    let place = |f: &Function| {
        if f.chooses {
            return Err(chosen(path, name, &all));
        }
        if returns.are_probed() {
            return returns.locations(elf, path, name, f);
        }
        if plus > 0 {
            check_instruction(elf, path, f, plus)?;
        }
        let what = match plus {
            0 => format!("'{name}'"),
            _ => format!("'{name}+{plus:#x}'"),
        };
        let at = f.address.wrapping_add(plus);
        location(elf, path, &what, at, Some(f)).map(|found| vec![found])
    };
    let places: Vec<Vec<Location>> = found.into_iter().map(place).collect::<Result<_, _>>()?;
    Ok(places.into_iter().flatten().collect())
}

fn no_function(elf: &Elf, path: &str, name: &str, all: &[Function]) -> Refusal {
    let parts = format!("{name}.");
    let split: Vec<&str> =
        all.iter().map(|f| f.name.as_str()).filter(|n| n.starts_with(&parts)).take(4).collect();
    let mut near = nearest(name, all.iter().map(|f| f.name.as_str()));
    let written: Vec<String>;
    if name.contains("::") {
        written = all.iter().filter_map(|f| demangled(&f.name)).collect();
        near = nearest(name, written.iter().map(String::as_str));
    }
    let stripped = !elf.has_symbols();
    let help = match (split.is_empty(), near.is_empty(), stripped) {
        (false, ..) => format!("the compiler has made of it: {}", split.join(", ")),
        (_, false, _) => format!("did you mean {}?", near.join(", ")),
        (_, _, true) => "it is stripped: only functions that other files call have names; install \
                         its debug symbols, or build it without stripping"
            .into(),
        (_, _, false) => format!(
            "a function that was inlined everywhere is not in the program; 'klogger places \
             {path}' lists those that are"
        ),
    };
    Refusal::of_this_kernel(format!("{path} has no function '{name}'"), Some(help))
}

/// An IFUNC: at its address is the function that chooses, which the loader calls once.
fn chosen(path: &str, name: &str, all: &[Function]) -> Refusal {
    let begin = format!("__{name}_");
    let mut names: Vec<&str> =
        all.iter().map(|f| f.name.as_str()).filter(|n| n.starts_with(&begin)).collect();
    names.truncate(6);
    let help = match names.is_empty() {
        false => format!("probe the one that this machine uses: {}", names.join(", ")),
        true => format!(
            "its implementations (such as {begin}avx2) have no names in a stripped library: \
             install its debug symbols"
        ),
    };
    Refusal::of_this_kernel(
        format!("'{name}' of {path} is one of several implementations, chosen at the start"),
        Some(help),
    )
}

fn of_address(elf: &Elf, path: &str, address: u64) -> Result<Location, Refusal> {
    let place = |f| location(elf, path, &format!("{address:#x}"), address, f);
    let all = functions(elf).map_err(|wrong| wrong.of(path))?;
    let Some(function) = all.iter().find(|f| f.has(address)) else {
        // If there is no code either, that is the better message.
        place(None)?;
        return Err(Refusal::of_this_kernel(
            format!("cannot check whether an instruction begins at {address:#x} of {path}"),
            Some("no symbol says which function this is in; install its debug symbols".into()),
        ));
    };
    if function.address != address {
        check_instruction(elf, path, function, address - function.address)?;
    }
    place(Some(function))
}

/// The kernel does not check it, and a probe in the middle of an instruction changes what the
/// program does.
fn check_instruction(elf: &Elf, path: &str, f: &Function, plus: u64) -> Result<(), Refusal> {
    let name = &f.name;
    if f.size == 0 {
        return Err(Refusal::of_this_kernel(
            format!("cannot check whether an instruction begins at '{name}+{plus:#x}' of {path}"),
            Some("the size of the function is not known; probe its beginning".into()),
        ));
    }
    if plus >= f.size {
        return Err(Refusal::of_this_kernel(
            format!("'{name}+{plus:#x}' of {path} is not in the function"),
            Some(format!("it has {:#x} bytes", f.size)),
        ));
    }
    let code = elf.code(f.address, f.size).map_err(|wrong| wrong.of(path))?;
    match instructions::begins(&code, plus) {
        true => Ok(()),
        false => Err(Refusal::of_this_kernel(
            format!("'{name}+{plus:#x}' of {path} is in the middle of an instruction"),
            Some(format!("'objdump -d {path}' shows where each one begins")),
        )),
    }
}

fn of_static(
    elf: &Elf,
    path: &str,
    provider: &str,
    name: &str,
    parameters: usize,
) -> Result<Vec<Location>, Refusal> {
    let all = static_probes(elf).map_err(|wrong| wrong.of(path))?;
    let is_it = |p: &&StaticProbe| p.provider == provider && p.name == name;
    let locations: Result<Vec<Location>, Refusal> = all
        .iter()
        .filter(is_it)
        .map(|probe| of_static_place(elf, path, probe, parameters))
        .collect();
    match locations {
        Ok(found) if found.is_empty() => Err(no_static_probe(path, provider, name, &all)),
        other => other,
    }
}

fn no_static_probe(path: &str, provider: &str, name: &str, all: &[StaticProbe]) -> Refusal {
    let mut names: Vec<String> = all.iter().map(|p| format!("{}:{}", p.provider, p.name)).collect();
    names.sort();
    names.dedup();
    let wanted = format!("{provider}:{name}");
    let near = nearest(&wanted, names.iter().map(String::as_str));
    let help = match (names.is_empty(), near.is_empty()) {
        (true, _) => "it has no static probes at all".into(),
        (false, false) => format!("did you mean {}?", near.join(", ")),
        (false, true) => format!("'klogger places {path}' lists those that it has"),
    };
    Refusal::of_this_kernel(format!("{path} has no static probe '{wanted}'"), Some(help))
}

pub(crate) fn of_static_place(
    elf: &Elf,
    path: &str,
    probe: &StaticProbe,
    parameters: usize,
) -> Result<Location, Refusal> {
    let StaticProbe { provider, name, address, semaphore, .. } = probe;
    let what = format!("'{provider}:{name}'");
    let found = location(elf, path, &what, *address, None)?;
    let semaphore = match semaphore {
        0 => 0,
        counter => elf.offset_of(*counter, false).ok_or_else(|| no_code(path, &what))?,
    };
    let address_of = |variable: &str| symbols::variable(elf, variable);
    let place = arguments::Place { address: *address, address_of: &address_of };
    let all = arguments(&probe.arguments, &place);
    if parameters > all.len() {
        return Err(Refusal::of_the_schema(
            format!("static probe {what} of {path} has {} arguments, not {parameters}", all.len()),
            "a probe has at most as many parameters, from the first argument on".into(),
        ));
    }
    let wanted = all.into_iter().take(parameters).enumerate();
    let arguments = wanted.map(|(n, argument)| {
        argument.map_err(|why| {
            Refusal::of_this_kernel(
                format!("argument {} of static probe {what} of {path} cannot be read", n + 1),
                Some(why),
            )
        })
    });
    let arguments = arguments.collect::<Result<_, _>>()?;
    Ok(Location { semaphore, arguments, ..found })
}
