// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The modules of the running kernel: their types, and loading those that a schema needs.

use klogger_codegen::kernel_types::Modules;
use klogger_os::{Error, machine, missed};
use klogger_schema::model::{Module, Schema};
use std::fs;
use std::process::{Command, Stdio};

const TYPES: &str = "/sys/kernel/btf";
/// The kernel's own, in the same folder.
const KERNEL: &str = "vmlinux";
const LOADED: &str = "/sys/module";
const MODPROBE: &str = "/sbin/modprobe";
/// Why a module cannot be loaded on a kernel without modules.
const NEVER: &str = "this kernel has none of this name, and cannot load modules";

pub struct LoadedModules;

impl Modules for LoadedModules {
    fn names(&self) -> Vec<String> {
        let all = missed::noting_unless_gone(TYPES, fs::read_dir(TYPES)).into_iter().flatten();
        let all = all.filter_map(|entry| missed::noting(TYPES, entry));
        let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name != KERNEL).collect();
        names.sort();
        names
    }

    fn types(&self, name: &str) -> Option<Vec<u8>> {
        let path = format!("{TYPES}/{name}");
        missed::noting_unless_gone(&path, fs::read(&path))
    }

    fn why_missing(&self, name: &str) -> Option<String> {
        match super::check_takes_modules() {
            _ if has(name) => None,
            Ok(()) => Some("it is not loaded".into()),
            Err(_) => Some(NEVER.into()),
        }
    }
}

/// Loads the modules that a schema needs and the kernel does not have. Returns what was done, and
/// which optional ones are missing, one line each.
pub fn load_needed(schema: &Schema) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    for module in schema.modules.iter().filter(|module| !has(&module.name)) {
        let name = &module.name;
        match load(name) {
            // Where it is a part of the kernel, nothing was loaded.
            Ok(()) if is_listed(name) => notes.push(format!("loaded the kernel module '{name}'")),
            Ok(()) => {}
            Err(why) if module.optional => {
                notes.push(format!("without the kernel module '{name}': {why}"));
            }
            Err(why) => return Err(missing(schema, module, &why)),
        }
    }
    Ok(notes)
}

/// Whether it is loaded, or a part of the kernel.
fn has(name: &str) -> bool {
    if is_listed(name) {
        return true;
    }
    // modprobe knows which modules are a part of a kernel. Kernels without modules come without its
    // list, and `/sys/module` has only those with parameters.
    super::check_takes_modules().is_err() && has_functions_of(name, &machine::all_symbols())
}

fn is_listed(name: &str) -> bool {
    let path = format!("{LOADED}/{name}");
    missed::noting(&path, fs::exists(&path)).unwrap_or(false)
}

/// Whether the kernel has functions whose names begin with that of a module.
fn has_functions_of(name: &str, kallsyms: &str) -> bool {
    let begin = format!("{name}_");
    let mut symbols = kallsyms.lines().filter_map(|line| line.split_whitespace().nth(2));
    symbols.any(|symbol| symbol.starts_with(&begin))
}

/// By modprobe, which knows where modules are, and which others one needs. There is no shell, and
/// the name cannot be an option: the schema's parser takes only names of modules.
fn load(name: &str) -> Result<(), String> {
    if super::check_takes_modules().is_err() {
        return Err(NEVER.into());
    }
    if super::check_module_privilege().is_err() {
        return Err("it is not loaded, and only root can load modules".into());
    }
    let mut modprobe = Command::new(MODPROBE);
    modprobe.args(["--use-blacklist", "--", name]).env_clear().stdin(Stdio::null());
    let done = modprobe.output().map_err(|e| format!("cannot run {MODPROBE}: {e}"))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.lines().next().map(|line| line.trim_start_matches("modprobe: "));
            Err(said.map_or_else(|| "modprobe does not say why".into(), str::to_string))
        }
    }
}

/// At the place of its declaration.
fn missing(schema: &Schema, module: &Module, why: &str) -> Error {
    let ((file, line), name) = (schema.place(module.span), &module.name);
    let error = Error::new(format!("{file}:{line}: cannot load the kernel module '{name}': {why}"));
    error.help(format!(
        "record on a kernel that has it: 'klogger guest --help'; 'module {name} optional' records \
         without it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::{Options, parse};

    const TEXT: &str =
        "schema m\nmodule no_such_module\nevent A { }\nprobe timer 9Hz() { klogger(A); }\n";

    fn schema(text: &str) -> Schema {
        parse("m.klogger", text, &Options::default()).unwrap().schema
    }

    #[test]
    fn a_module_that_is_missing_is_named_with_its_place() {
        let schema = schema(TEXT);
        let error = missing(&schema, &schema.modules[0], "FATAL: it is not there");
        assert_eq!(
            error.message,
            "m.klogger:2: cannot load the kernel module 'no_such_module': FATAL: it is not \
             there"
        );
    }

    #[test]
    fn the_place_is_that_in_the_file_itself() {
        let find = |_: &str| Ok(("long.shared".into(), "enum a {\n 1 \"one\"\n}\n".into()));
        let text = TEXT.replace("schema m\n", "schema m\ninclude \"long\"\n");
        let whole = klogger_schema::include::whole("m.klogger", &text, &find);
        let options = Options { includes: whole.includes, ..Options::default() };
        let schema = parse("m.klogger", &whole.text, &options).unwrap().schema;
        let error = missing(&schema, &schema.modules[0], "it is not there");
        assert!(error.message.starts_with("m.klogger:3: cannot load "), "{}", error.message);
    }

    #[test]
    fn an_optional_one_is_left_out() {
        let text = TEXT.replace("such_module", "such_module optional");
        let notes = load_needed(&schema(&text)).unwrap();
        assert!(notes[0].starts_with("without the kernel module 'no_such_module': "), "{notes:?}");
        assert!(load_needed(&schema(TEXT)).is_err());
    }

    #[test]
    fn a_part_of_the_kernel_has_functions_with_its_name() {
        let text = "0 T ext4_sync_file\n0 t xfs\n";
        assert!(has_functions_of("ext4", text));
        assert!(!has_functions_of("xfs", text) && !has_functions_of("ext", text));
    }
}
