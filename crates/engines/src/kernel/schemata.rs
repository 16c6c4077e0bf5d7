// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The schemata that modules have brought into the kernel, and those that a recording still needs.

use super::device::{self, Device, SchemaAbout, Use};
use super::load::{self, Modules, cannot_open, module_of};
use klogger_codegen::kernel::text_of;
use klogger_os::Error;
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::io::{self, ErrorKind};

/// The digest that distinguishes two texts of one schema.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// The schemata among `wanted` that the kernel has already, with the same text.
pub fn resident(wanted: &[&Schema]) -> Result<Vec<String>, Error> {
    let device = match Device::open() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(cannot_open)?,
    };
    check_version(&device)?;
    let there = device.schemata().map_err(failed("list its schemata"))?;
    let mut names = Vec::new();
    for schema in wanted {
        if find(&there, schema)?.is_some() {
            names.push(schema.name.clone());
        }
    }
    Ok(names)
}

fn find<'a>(there: &'a [SchemaAbout], schema: &Schema) -> Result<Option<&'a SchemaAbout>, Error> {
    let Some(found) = there.iter().find(|s| s.name() == schema.name) else { return Ok(None) };
    let text = text_of(schema);
    let same = found.text_digest == digest(&text) && found.text_length as usize == text.len();
    match (same, schema.name == load::CORE) {
        (true, _) => Ok(Some(found)),
        (false, true) => Err(other_version()),
        (false, false) if text.len() > schema.text.len() => {
            let name = &schema.name;
            Err(Error::new(format!(
                "the module of schema '{name}' has not the triggers of this recording"
            ))
            .help(format!(
                "unload it if it is loaded: rmmod {}; record without --modules, or make it with \
                 'klogger build --trigger ...', with the same triggers",
                module_of(name)
            )))
        }
        (false, false) => {
            Err(Error::new(format!("the kernel has another text of schema '{}'", schema.name))
                .help(format!(
                    "unload it: rmmod {}; or record with its own text",
                    module_of(&schema.name)
                )))
        }
    }
}

fn other_version() -> Error {
    Error::new("the module klogger that is loaded belongs to another version of klogger")
        .help("unload it: rmmod klogger (after those that use it: lsmod | grep klogger)")
}

pub fn check_version(device: &Device) -> Result<device::DeviceInfo, Error> {
    // The numbers of ioctl requests contain the sizes of structures, so another version may not
    // know them.
    match device.about() {
        Ok(about) if about.version == device::VERSION => Ok(about),
        Ok(_) => Err(other_version()),
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => Err(other_version()),
        Err(e) => Err(failed("report its version")(e)),
    }
}

/// The error of a failed request.
pub fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |e| {
        Error::new(format!("the kernel engine could not {what}: {e}"))
            .help("the end of 'dmesg' may say why")
    }
}

/// Loads the schemata that the kernel does not have, and claims all of them for this recording.
pub fn use_schemata(
    device: &Device,
    modules: &mut Modules,
    units: &[(&CompiledSchema, u16)],
) -> Result<(Vec<SchemaAbout>, Vec<bool>), Error> {
    let there = || device.schemata().map_err(failed("list its schemata"));
    let before = there()?;
    let mut ours = Vec::new();
    for (unit, _) in units {
        let missing = find(&before, &unit.schema)?.is_none();
        if missing {
            modules.load(&module_of(&unit.schema.name))?;
        }
        ours.push(missing || unit.schema.name == load::CORE);
    }
    let (now, mut schemata) = (there()?, Vec::new());
    for (unit, base) in units {
        let name = &unit.schema.name;
        let found = *find(&now, &unit.schema)?.ok_or_else(|| {
            Error::new(format!("the module {} does not bring the schema '{name}'", module_of(name)))
                .help("make it again with 'klogger build'")
        })?;
        let claim =
            Use { index: found.index, base: (*base).into(), text_digest: found.text_digest };
        device.use_schema(claim).map_err(failed(&format!("use schema '{name}'")))?;
        schemata.push(found);
    }
    Ok((schemata, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_fnv_1a() {
        assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
