// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The types of a kernel's modules. A module has those of its own and uses the kernel's: its type
//! information continues the kernel's.

use super::{Error, KernelTypes, Result};
use btf_rs::{Btf, Type};
use klogger_schema::model::{
    Module as DeclaredModule, ProbeKind, ProbeKind::Tracepoint, Schema, Target,
};
use klogger_schema::wildcard::{is_pattern, matches};
use std::sync::OnceLock;

/// The modules that the kernel that runs has loaded.
pub trait Modules: Send + Sync {
    /// Those with type information.
    fn names(&self) -> Vec<String>;

    /// The type information of one, as in `/sys/kernel/btf/NAME`.
    fn types(&self, name: &str) -> Option<Vec<u8>>;

    /// Why a module is missing; `None` if it is loaded, or a part of the kernel.
    fn why_missing(&self, name: &str) -> Option<String>;
}

/// Modules whose types are read when they are first needed: most schemata need those of none.
pub(super) struct Loaded {
    from: Box<dyn Modules>,
    modules: OnceLock<Vec<Module>>,
}

struct Module {
    name: String,
    /// `None` if it was unloaded meanwhile, or is damaged: then it has none.
    types: OnceLock<Option<KernelTypes>>,
}

/// What something is attached by: a type of the kernel, or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachType {
    pub id: u32,
    pub module: Option<String>,
}

impl KernelTypes {
    /// The same, of a kernel whose modules are known.
    pub fn with_modules(self, from: impl Modules + 'static) -> KernelTypes {
        let loaded = Loaded { from: Box::new(from), modules: OnceLock::new() };
        KernelTypes { modules: Some(loaded), ..self }
    }

    /// Those of the modules that a schema declares which the kernel does not have now, and why not.
    pub fn missing_modules<'a>(
        &'a self,
        schema: &'a Schema,
    ) -> impl Iterator<Item = (&'a DeclaredModule, String)> {
        let known = self.modules.iter();
        known.flat_map(|loaded| {
            let declared = schema.modules.iter();
            declared.filter_map(|m| Some((m, loaded.from.why_missing(&m.name)?)))
        })
    }

    /// The types of each module.
    fn of_modules(&self) -> impl Iterator<Item = (&str, &KernelTypes)> {
        let all = self.modules.iter().flat_map(|loaded| {
            let named = |name| Module { name, types: OnceLock::new() };
            let read = || loaded.from.names().into_iter().map(named).collect();
            loaded.modules.get_or_init(read).iter().map(move |module| (loaded, module))
        });
        all.filter_map(|(loaded, module)| {
            let read = || self.of_module(&loaded.from.types(&module.name)?).ok();
            let types = module.types.get_or_init(read).as_ref()?;
            Some((module.name.as_str(), types))
        })
    }

    /// `bytes`: a module's type information.
    fn of_module(&self, bytes: &[u8]) -> Result<KernelTypes> {
        Ok(KernelTypes::of(Btf::from_split_bytes(bytes, &self.btf)?.into()))
    }

    /// What the first of the modules has that has it.
    pub(super) fn in_modules<T>(
        &self,
        look: impl Fn(&KernelTypes) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.of_modules().find_map(|(_, types)| look(types).transpose()).transpose()
    }

    /// Names that the modules have, in addition to `own`; sorted, each once.
    pub(super) fn and_of_modules(
        &self,
        own: Vec<String>,
        theirs: impl Fn(&KernelTypes) -> Vec<String>,
    ) -> Vec<String> {
        let mut all = own;
        self.of_modules().for_each(|(_, types)| all.extend(theirs(types)));
        all.sort();
        all.dedup();
        all
    }

    /// The types that a schema's C can name: the kernel's, then those of the modules that it
    /// declares, or has attach points in.
    pub(super) fn nameable(&self, schema: &Schema) -> Vec<&KernelTypes> {
        let mut all = vec![self];
        let of_kernel =
            |t: &&Target| matches!(t.kind, Tracepoint | ProbeKind::Function | ProbeKind::Return);
        let targets = schema.probes.iter().flat_map(|p| &p.targets).filter(of_kernel);
        let elsewhere: Vec<&str> = targets
            .flat_map(Target::patterns)
            .filter(|name| self.attach_type(name).is_none())
            .collect();
        if schema.modules.is_empty() && elsewhere.is_empty() {
            return all;
        }
        let is_declared = |name: &str| schema.modules.iter().any(|m| m.name == name);
        let has = |types: &KernelTypes| elsewhere.iter().any(|pattern| types.matches(pattern));
        let needed = self.of_modules().filter(|(name, types)| is_declared(name) || has(types));
        all.extend(needed.map(|(_, types)| types));
        all
    }

    /// Whether these types alone have such a tracepoint or function.
    fn matches(&self, pattern: &str) -> bool {
        let is_one = |name: &String| matches(pattern, name);
        match is_pattern(pattern) {
            true => self.tracepoints().iter().chain(&self.functions()).any(is_one),
            false => self.attach_type(pattern).is_some(),
        }
    }

    /// The type of a tracepoint or a function of this name in these types alone.
    fn attach_type(&self, name: &str) -> Option<u32> {
        self.own_id(name, is_function).or_else(|| self.own_id(&typedef_of(name), is_typedef))
    }

    /// The type that programs are attached to a function by.
    pub fn type_of_function(&self, name: &str) -> Result<AttachType> {
        self.type_of(name, is_function)
    }

    /// The same of a tracepoint.
    pub fn type_of_tracepoint(&self, name: &str) -> Result<AttachType> {
        self.type_of(&typedef_of(name), is_typedef)
    }

    fn type_of(&self, name: &str, wanted: fn(&Type) -> bool) -> Result<AttachType> {
        if let Some(id) = self.own_id(name, wanted) {
            return Ok(AttachType { id, module: None });
        }
        let mut of_modules = self.of_modules();
        let found = of_modules.find_map(|(module, types)| {
            Some(AttachType { id: types.own_id(name, wanted)?, module: Some(module.into()) })
        });
        found.ok_or_else(|| Error(format!("the kernel's type information (BTF) has no '{name}'")))
    }

    fn own_id(&self, name: &str, wanted: fn(&Type) -> bool) -> Option<u32> {
        let ids = self.btf.resolve_ids_by_name(name).ok()?;
        let is_wanted = |id: &u32| self.btf.resolve_type_by_id(*id).is_ok_and(|t| wanted(&t));
        ids.into_iter().find(is_wanted)
    }
}

fn is_function(ty: &Type) -> bool {
    matches!(ty, Type::Func(_))
}

fn is_typedef(ty: &Type) -> bool {
    matches!(ty, Type::Typedef(_))
}

/// The type that a tracepoint has.
fn typedef_of(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}
