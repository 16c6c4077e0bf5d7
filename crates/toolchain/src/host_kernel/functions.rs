// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the running kernel says of probes in its functions. Each question is asked once, when a
//! schema has such a probe.

use klogger_codegen::KernelTypes;
use klogger_codegen::kernel_types::Functions;
use klogger_os::programs::try_fentry;
use klogger_os::tracefs::TraceFs;
use klogger_os::{machine, missed};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::OnceLock;

/// A function of the kernel that only its own tests call.
const UNUSED: &str = "bpf_fentry_test1";
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

#[derive(Default)]
pub struct RunningFunctions {
    /// The type of a function to try a program at.
    unused: Option<u32>,
    /// It was built with what fentry needs.
    has_trampolines: bool,
    symbols: OnceLock<BTreeMap<String, u32>>,
    traceable: OnceLock<Option<BTreeSet<String>>>,
}

impl RunningFunctions {
    /// `types`: of the running kernel.
    pub fn new(types: &KernelTypes) -> RunningFunctions {
        RunningFunctions {
            unused: types.type_of_function(UNUSED).ok().map(|ty| ty.id),
            has_trampolines: types.has_function("bpf_trampoline_link_prog"),
            ..RunningFunctions::default()
        }
    }

    /// Users who may not load programs cannot find out.
    fn try_fentry(&self) -> Result<(), String> {
        if !self.has_trampolines {
            return Err("it has no fentry (CONFIG_BPF_JIT)".into());
        }
        let Some(unused) = self.unused.filter(|_| super::check_privilege().is_ok()) else {
            return Ok(());
        };
        try_fentry(unused).map_err(|e| format!("it refuses fentry ({})", reason(&e)))
    }
}

/// Without the number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// Whether the kernel takes fentry: asked once, because a program is loaded for it.
static FENTRY: OnceLock<Result<(), String>> = OnceLock::new();

impl Functions for RunningFunctions {
    fn fentry(&self) -> Result<(), String> {
        FENTRY.get_or_init(|| self.try_fentry()).clone()
    }

    fn kprobes(&self) -> Result<(), String> {
        match fs::exists(KPROBES) {
            Ok(false) => Err("it has no kprobes (CONFIG_KPROBES)".into()),
            Ok(true) | Err(_) => Ok(()),
        }
    }

    fn symbols(&self) -> &BTreeMap<String, u32> {
        self.symbols.get_or_init(|| counted(&machine::all_symbols()))
    }

    fn traceable(&self) -> Option<&BTreeSet<String>> {
        let read = || {
            let list = "available_filter_functions";
            let text = TraceFs::find().and_then(|t| fs::read_to_string(t.root().join(list)));
            let text = missed::noting_unless_gone(&format!("{list} of tracefs"), text)?;
            let names = text.lines().filter_map(|line| line.split_whitespace().next());
            let names: BTreeSet<String> = names.map(str::to_string).collect();
            (!names.is_empty()).then_some(names)
        };
        self.traceable.get_or_init(read).as_ref()
    }
}

/// The functions in the text of kallsyms, and how many there are of each name.
fn counted(kallsyms: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for line in kallsyms.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some("t" | "T" | "w" | "W"), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        // Programs of BPF are not functions of the kernel.
        if words.next() != Some("[bpf]") {
            *found.entry(name.to_string()).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_kernel_and_of_modules_are_counted() {
        let text = "0 T vfs_read\n0 t one\n0 t one\n0 d data\n0 t of_module\t[xfs]\n\
                    0 t bpf_prog_1234_x\t[bpf]\n0 t\n\n";
        let found = counted(text);
        let expected = [("of_module", 1), ("one", 2), ("vfs_read", 1)];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected.map(|(n, c)| (n.into(), c)));
    }
}
