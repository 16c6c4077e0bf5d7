// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Loads the programs of a schema without attaching them, to find those that the kernel refuses.

use super::load::{Config, Part, choose_programs, keep_messages, load_opened, open_object};
use super::pages;
use super::refused::Refused;
use crate::request::BUFFER_MIN;
use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::{Program, programs};
use klogger_os::{Error, uname};
use klogger_ring::layout::bpf as layout;
use klogger_toolchain::compiled_schema::{CompiledSchema, plan};
use klogger_toolchain::host_kernel;

/// Loads each planned program of a schema alone, as for a recording of some threads, and attaches
/// none. Returns those that the kernel refuses.
pub fn try_load(unit: &CompiledSchema, types: &KernelTypes) -> Result<Vec<Refused>, Error> {
    keep_messages();
    let (release, version, ..) = uname();
    let config = Config {
        rings: 1,
        ring_size: BUFFER_MIN as usize,
        larger: 0,
        larger_memory: 0,
        scoped: true,
        overwrite: false,
        lowwater: 10,
        preempt: host_kernel::preempts_programs(types, &release, &version),
        preemption: host_kernel::preemption(types, &version),
        preempt_count: types.preempt_count(),
        calls_32: klogger_codegen::system_calls::has_32_bit(types),
        vmemmap: pages::vmemmap(std::iter::once(&unit.schema), types)?,
        uprobe_multi: host_kernel::has_uprobe_multi(types),
        cpus: [0; layout::CPUS_MAX / 64],
        choice: None,
    };
    let plan = plan(&unit.schema, types)?;
    let mut refused = Vec::new();
    let planned = |one: &&Program| plan[one.probe].places_of(one).next().is_some();
    for one in programs(&unit.schema).iter().filter(planned) {
        let mut open = open_object(unit, Part::default(), &config, None, None)?;
        choose_programs(&mut open, &unit.schema, &plan, &config, |p| p.name == one.name)?;
        refused.extend(load_opened(open, &unit.schema).err().map(|refused| *refused));
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_codegen::kernel_types::Functions;
    use klogger_os::files::effective_uid;
    use klogger_schema::{Options, parse};
    use klogger_toolchain::clang;
    use std::collections::{BTreeMap, BTreeSet};

    /// A kernel that has kprobes, and refuses fentry.
    struct OnlyKprobes(BTreeMap<String, u32>);

    impl Functions for OnlyKprobes {
        fn fentry(&self) -> Result<(), String> {
            Err("it refuses fentry".into())
        }

        fn kprobes(&self) -> Result<(), String> {
            Ok(())
        }

        fn symbols(&self) -> &BTreeMap<String, u32> {
            &self.0
        }

        fn traceable(&self) -> Option<&BTreeSet<String>> {
            None
        }
    }

    const SCHEMA: &str = "schema s\nevent E { uint flags  ulong count  long result }\n\
        probe function vfs_read(struct file *file, char *buf, size_t count) {\n\
        klogger(E, file->f_inode->i_flags, count, 0);\n}\n\
        probe return vfs_read(ssize_t result) { klogger(E, 0, 0, result); }\n";

    /// Since Linux 6.2 a register can be given a type; the verifier must take that.
    #[test]
    fn without_fentry_a_kprobe_has_the_same_parameters() {
        let types = host_kernel::types().unwrap();
        let kernel = OnlyKprobes(BTreeMap::from([("vfs_read".into(), 1)]));
        let types = types.with_functions(kernel);
        if !types.has_function("bpf_rdonly_cast") {
            return;
        }
        let schema = parse("s.klogger", SCHEMA, &Options::default()).unwrap().schema;
        for plan in plan(&schema, &types).unwrap() {
            assert_eq!(plan.refusals, []);
            // Of fentry, kprobe with types, and kprobe without.
            assert_eq!(plan.places.iter().map(|place| place.way).collect::<Vec<_>>(), [1]);
        }
        if effective_uid() == 0 {
            let object = Some(clang::compile(&schema, &types).unwrap().0);
            let refused = try_load(&CompiledSchema { schema, object }, &types).unwrap();
            let verdicts: Vec<String> = refused.iter().map(|r| r.diagnostic().message).collect();
            assert_eq!(verdicts, [""; 0]);
        }
        // What a kprobe at the end of a function does not know.
        let text = SCHEMA.replace("(ssize_t result)", "(ssize_t result, struct file *file)");
        let schema = parse("s.klogger", &text, &Options::default()).unwrap().schema;
        let plan = plan(&schema, &types).unwrap().remove(1);
        assert_eq!(
            plan.refusals[0].1.message,
            "on this kernel the arguments of function 'vfs_read' are not known when it returns: \
             it refuses fentry"
        );
    }
}
