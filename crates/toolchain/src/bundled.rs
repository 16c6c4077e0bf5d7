// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The schemata that come with klogger, compiled when it was built.

use crate::compiled_schema::CompiledSchema;
use klogger_os::Error;
use klogger_schema::{Options, parse};

/// A schema folder as it was when klogger was built.
pub struct Bundled {
    pub name: &'static str,
    /// `schemata/NAME/NAME.klogger`
    pub file: &'static str,
    pub text: &'static str,
    object: &'static [u8],
    /// The probes and targets that were not compiled, and what the kernel lacks on which klogger
    /// was built.
    lacks: &'static [(usize, usize, &'static str)],
}

include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// All bundled schemata, by name.
pub fn all() -> &'static [Bundled] {
    BUNDLED
}

pub fn find(name: &str) -> Option<&'static Bundled> {
    BUNDLED.iter().find(|b| b.name == name)
}

/// The built-in schema: events of every log, and the probes that maintain scope and process table.
pub fn builtin() -> Result<CompiledSchema, Error> {
    BUILTIN.unit(true)
}

impl Bundled {
    /// Parses the text; the object was compiled at build time.
    fn unit(&self, builtin: bool) -> Result<CompiledSchema, Error> {
        let options = Options { builtin, ..Options::default() };
        let parsed = parse(self.file, self.text, &options).map_err(|_| {
            Error::new(format!("the bundled schema '{}' does not parse", self.name))
        })?;
        let mut schema = parsed.schema;
        for (probe, target, what) in self.lacks {
            let what = what.replacen("this kernel", "that kernel", 1);
            let targets = schema.probes.get_mut(*probe).map(|probe| &mut probe.targets);
            if let Some(target) = targets.and_then(|targets| targets.get_mut(*target)) {
                target.lacks = Some(format!("klogger was built on another kernel, and {what}"));
            }
        }
        Ok(CompiledSchema { schema, object: Some(self.object.to_vec()) })
    }

    pub fn load(&self) -> Result<CompiledSchema, Error> {
        self.unit(false)
    }
}
