// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Targets that name several places of programs, by a list and by wildcards.

use crate::find::{Found, Location, location, of_static_place, place_in};
use crate::returns::Returns;
use crate::static_probes::{StaticProbe, static_probes};
use crate::symbols::{Function, demangled, functions};
use crate::which::{Opened, Programs};
use klogger_codegen::Refusal;
use klogger_codegen::kernel_types::InPrograms;
use klogger_schema::attach_points::program::{InProgram, split};
use klogger_schema::model::{ProbeKind, Target};
use klogger_schema::wildcard::{is_pattern, matches};
use std::collections::{BTreeMap, BTreeSet};

/// The places of a target: their names, and where they are.
#[derive(Default)]
pub(crate) struct Several {
    pub named: InPrograms,
    pub found: Vec<Found>,
}

/// A file that a name means, read once for all patterns.
struct Source<'a> {
    program: &'a str,
    opened: Opened,
    functions: Vec<Function>,
    statics: Vec<StaticProbe>,
    locations: Vec<Location>,
    returns: Returns,
    /// Their offsets. A wildcard may match all functions of a large program.
    taken: BTreeSet<u64>,
}

/// All places that a target names.
pub(crate) fn find(programs: &Programs, target: &Target) -> Result<Several, Refusal> {
    let mut sources: Vec<Source> = Vec::new();
    let mut named = InPrograms::default();
    for pattern in target.patterns() {
        let Some((program, place)) = split(pattern) else {
            let what = format!("'{pattern}' is not a place in a program");
            return Err(Refusal::of_this_kernel(what, None));
        };
        if !sources.iter().any(|source| source.program == program) {
            for opened in programs.open(program)? {
                sources.push(Source::read(program, opened, target.kind)?);
            }
        }
        let own = sources.iter_mut().filter(|source| source.program == program);
        match is_pattern(place) {
            true => by_pattern(own.collect(), place, target, &mut named)?,
            false => {
                for source in own {
                    source.add_one(pattern, target, &mut named)?;
                }
            }
        }
    }
    // A name may be in several files, and match several patterns.
    let mut once = BTreeSet::new();
    named.names.retain(|name| once.insert(name.clone()));
    named.left_out.retain(|name| !once.contains(name));
    if named.names.is_empty() {
        return Err(none(target, &named.left_out));
    }
    let found = sources.into_iter().filter(|source| !source.locations.is_empty());
    let found = found.map(|s| Found {
        path: s.opened.path,
        file: s.opened.elf.file,
        locations: s.locations,
        at_returns: s.returns.are_probed(),
    });
    Ok(Several { named, found: found.collect() })
}

/// Nothing that matches can be probed.
fn none(target: &Target, left_out: &[String]) -> Refusal {
    let why = match target.kind {
        ProbeKind::Usdt => {
            "they have other arguments: a probe has at most as many parameters; or they are at \
             instructions that cannot be probed, such as vector instructions"
        }
        _ => {
            "the loader calls them to choose an implementation, which is what can be probed; or \
             they begin with instructions that cannot be probed, such as vector instructions"
        }
    };
    let shown: Vec<&str> = left_out.iter().take(SHOWN).map(String::as_str).collect();
    let message = format!(
        "none of the {} places that '{}' matches can be probed: {}{}",
        left_out.len(),
        target.label(),
        shown.join(", "),
        if left_out.len() > SHOWN { ", ..." } else { "" }
    );
    Refusal::of_the_schema(message, why.into())
}

/// How many of several a message names.
const SHOWN: usize = 4;

/// The places of a pattern in all files that a name means, of which one must have some.
fn by_pattern(
    sources: Vec<&mut Source>,
    pattern: &str,
    target: &Target,
    named: &mut InPrograms,
) -> Result<(), Refusal> {
    let mut path = String::new();
    let before = named.left_out.len();
    let mut any = false;
    for source in sources {
        path.clone_from(&source.opened.path);
        any |= match target.kind {
            ProbeKind::Usdt => source.add_statics(pattern, target, named),
            _ => source.add_functions(pattern, named),
        };
    }
    if any || named.left_out.len() > before {
        return Ok(());
    }
    let what = match target.kind {
        ProbeKind::Usdt => "static probe",
        _ => "function",
    };
    Err(Refusal::of_this_kernel(
        format!("{path} has no {what} that matches '{pattern}'"),
        Some(format!("'klogger places {path}' lists those that it has")),
    ))
}

impl<'a> Source<'a> {
    fn read(program: &'a str, opened: Opened, kind: ProbeKind) -> Result<Source<'a>, Refusal> {
        let path = &opened.path;
        let (functions, statics) = match kind {
            ProbeKind::Usdt => {
                (Vec::new(), static_probes(&opened.elf).map_err(|wrong| wrong.of(path))?)
            }
            _ => (functions(&opened.elf).map_err(|wrong| wrong.of(path))?, Vec::new()),
        };
        let returns = Returns::of(&opened.elf, kind);
        let (locations, taken) = Default::default();
        Ok(Source { program, opened, functions, statics, returns, locations, taken })
    }

    /// The place of a name without wildcards.
    fn add_one(
        &mut self,
        name: &str,
        target: &Target,
        named: &mut InPrograms,
    ) -> Result<(), Refusal> {
        let in_program = match target.kind {
            ProbeKind::Usdt => InProgram::of_static(name),
            _ => InProgram::of_function(name),
        };
        let place = in_program.map(|found| found.place).ok_or_else(|| {
            Refusal::of_this_kernel(format!("'{name}' is not a place in a program"), None)
        })?;
        let Opened { path, elf } = &self.opened;
        let locations = place_in(elf, path, place, target.params.len(), self.returns)?;
        self.add(name.into(), locations, named);
        Ok(())
    }

    /// Names a place, unless all of it is one of another name.
    fn add(&mut self, name: String, locations: Vec<Location>, named: &mut InPrograms) {
        let new = locations.into_iter().filter(|l| !self.taken.contains(&l.offset));
        let new: Vec<Location> = new.map(|l| Location { place: name.clone(), ..l }).collect();
        if !new.is_empty() {
            named.names.push(name);
        }
        self.taken.extend(new.iter().map(|l| l.offset));
        self.locations.extend(new);
    }

    /// Whether there are such functions.
    fn add_functions(&mut self, pattern: &str, named: &mut InPrograms) -> bool {
        let (matching, chosen) = matching(pattern, &self.functions);
        let any = !matching.is_empty();
        let full = |name: String| format!("{}:{name}", self.program);
        named.left_out.extend(chosen.into_iter().map(full));
        let matching: Vec<_> = matching
            .into_iter()
            .map(|(name, functions)| {
                let name = full(name);
                let Opened { path, elf } = &self.opened;
                let of = |f: &&Function| match self.returns.are_probed() {
                    true => self.returns.locations(elf, path, &name, f),
                    false => location(elf, path, &name, f.address, Some(f)).map(|one| vec![one]),
                };
                let found = functions.iter().map(of).collect::<Result<Vec<_>, Refusal>>();
                (name, found)
            })
            .collect();
        for (name, found) in matching {
            match found {
                Ok(found) => self.add(name, found.into_iter().flatten().collect(), named),
                Err(_) => named.left_out.push(name),
            }
        }
        any
    }

    /// Whether there are such static probes. Those with other arguments are left out.
    fn add_statics(&mut self, pattern: &str, target: &Target, named: &mut InPrograms) -> bool {
        let mut by_name: BTreeMap<String, Vec<&StaticProbe>> = BTreeMap::new();
        for probe in &self.statics {
            let name = format!("{}:{}", probe.provider, probe.name);
            if matches(pattern, &name) {
                by_name.entry(name).or_default().push(probe);
            }
        }
        let any = !by_name.is_empty();
        let Opened { path, elf } = &self.opened;
        let of = |probe: &&StaticProbe| of_static_place(elf, path, probe, target.params.len());
        let read = by_name.into_iter().map(|(name, probes)| {
            let locations = probes.iter().map(of).collect::<Result<Vec<Location>, Refusal>>();
            (format!("{}:{name}", self.program), locations)
        });
        let read: Vec<_> = read.collect();
        for (name, locations) in read {
            match locations {
                Ok(locations) => self.add(name, locations, named),
                Err(_) => named.left_out.push(name),
            }
        }
        any
    }
}

/// Functions by the name that a probe gives them.
type Matching<'a> = BTreeMap<String, Vec<&'a Function>>;

/// The functions that match, by name; and those that cannot be probed,
/// because the loader calls them to choose an implementation. A function with several names has
/// that which its callers use, as far as one can tell.
fn matching<'a>(pattern: &str, all: &'a [Function]) -> (Matching<'a>, Vec<String>) {
    type Name = (bool, usize, usize, String);
    let mut by_address: BTreeMap<u64, (&Function, Vec<Name>)> = BTreeMap::new();
    let mut chosen = Vec::new();
    for f in all {
        let Some(name) = name_that_matches(pattern, f) else { continue };
        if f.chooses {
            chosen.push(name);
            continue;
        }
        let inner = name.len() - name.trim_start_matches('_').len();
        let (_, names) = by_address.entry(f.address).or_insert((f, Vec::new()));
        names.push((!f.exported, inner, name.len(), name));
    }
    let mut by_name = Matching::new();
    for (function, names) in by_address.into_values() {
        if let Some((.., name)) = names.into_iter().min() {
            by_name.entry(name).or_default().push(function);
        }
    }
    (by_name, chosen)
}

/// The name of a function without its version; or, for patterns with `::`, as in its source.
fn name_that_matches(pattern: &str, f: &Function) -> Option<String> {
    let plain = f.name.split('@').next().unwrap_or_default();
    if matches(pattern, plain) {
        return Some(plain.into());
    }
    let written = if pattern.contains("::") { demangled(&f.name) } else { None };
    written.filter(|written| matches(pattern, written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::tests::function;

    fn names(pattern: &str, all: &[Function]) -> Vec<(String, Vec<u64>)> {
        let found = matching(pattern, all).0.into_iter();
        found.map(|(name, all)| (name, all.iter().map(|f| f.address).collect())).collect()
    }

    #[test]
    fn a_function_with_several_names_is_one_place() {
        let all = [
            function("__libc_malloc", 0x10, true),
            function("malloc", 0x10, true),
            function("malloc@@V2", 0x10, false),
            function("realloc", 0x20, true),
            function("free", 0x30, true),
        ];
        let found = names("*alloc", &all);
        assert_eq!(found, [("malloc".into(), vec![0x10]), ("realloc".into(), vec![0x20])]);
    }

    #[test]
    fn functions_of_one_name_are_one_place() {
        let all = [function("usage", 0x10, false), function("usage", 0x20, false)];
        assert_eq!(names("us?ge", &all), [("usage".into(), vec![0x10, 0x20])]);
    }

    #[test]
    fn names_as_in_the_source() {
        let all = [
            function("_ZN4Tree3addEi", 0x10, true),
            function("_ZN4Tree3addEl", 0x20, true),
            function("_ZN4Tree5clearEv", 0x30, false),
            function("_ZN4Leaf3addEi", 0x40, false),
        ];
        let found = names("Tree::*", &all);
        let add = ("Tree::add".into(), vec![0x10, 0x20]);
        assert_eq!(found, [add, ("Tree::clear".into(), vec![0x30])]);
        assert_eq!(names("_ZN4Leaf*", &all), [("_ZN4Leaf3addEi".into(), vec![0x40])]);
    }

    #[test]
    fn what_the_loader_calls_is_left_out() {
        let ifunc = Function { chooses: true, ..function("strlen", 0x10, true) };
        let all = [ifunc, function("strdup", 0x20, true)];
        let (found, chosen) = matching("str*", &all);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["strdup"]);
        assert_eq!(chosen, ["strlen"]);
    }
}
