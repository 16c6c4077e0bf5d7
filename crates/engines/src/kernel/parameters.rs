// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Sets the parameters of schemata, which are parameters of their modules.

use super::load::module_of;
use klogger_os::Error;
use klogger_os::files::is_there;
use klogger_schema::model::{Parameter, Scalar, Schema};
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::fs;
use std::path::{Path, PathBuf};

const MODULES: &str = "/sys/module";

/// Writes the values of a recording. A module that stays loaded keeps them, so those that are not
/// set are written as well. `units`: as the engine logs them.
pub fn set(units: &[(&CompiledSchema, u16)]) -> Result<(), Error> {
    units.iter().try_for_each(|(unit, _)| set_in(Path::new(MODULES), &unit.schema))
}

fn set_in(modules: &Path, schema: &Schema) -> Result<(), Error> {
    for p in schema.parameters.iter() {
        let file = file_of(modules, schema, p);
        match fs::write(&file, text(p)) {
            Err(e) if p.value != p.default || !matches!(is_there(&file), Ok(false)) => {
                return Err(Error::new(format!(
                    "cannot set {}.{} in the kernel: {}: {e}",
                    schema.name,
                    p.name,
                    file.display()
                ))
                .help("unload the schema's module, so that it is built and loaded anew"));
            }
            // A schema without a module of its own: its probes are elsewhere.
            Err(_) | Ok(()) => {}
        }
    }
    Ok(())
}

fn file_of(modules: &Path, schema: &Schema, p: &Parameter) -> PathBuf {
    modules.join(module_of(&schema.name)).join("parameters").join(&p.name)
}

fn text(p: &Parameter) -> String {
    match p.scalar {
        Scalar::Bool => if p.value == 0 { "N" } else { "Y" }.into(),
        _ => p.value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_a_missing_one_is_an_error_only_if_it_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let text = "schema s\nparameter ulong slow in ns = 10ms\nparameter bool deep = false\n";
        let mut schema =
            klogger_schema::parse("s.klogger", text, &Default::default()).unwrap().schema;
        set_in(folder.path(), &schema).unwrap();
        schema.parameters[1].value = 1;
        let error = set_in(folder.path(), &schema).unwrap_err();
        assert!(error.message.starts_with("cannot set s.deep in the kernel: "), "{error:?}");
        let parameters = folder.path().join("klogger_s/parameters");
        fs::create_dir_all(&parameters).unwrap();
        set_in(folder.path(), &schema).unwrap();
        assert_eq!(fs::read_to_string(parameters.join("slow")).unwrap(), "10000000");
        assert_eq!(fs::read_to_string(parameters.join("deep")).unwrap(), "Y");
    }
}
