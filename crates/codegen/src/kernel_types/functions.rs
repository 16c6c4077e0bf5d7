// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The functions of a kernel: their prototypes from BTF, and what the kernel that runs says of
//! probes in them.

use super::{KernelTypes, Result, is_modifier};
use btf_rs::{BtfType, Type};
use klogger_schema::model::Param;
use std::collections::{BTreeMap, BTreeSet};

/// What a prototype of BTF says of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prototype {
    /// `None`: it returns nothing.
    pub result: Option<String>,
    pub params: Vec<Param>,
    pub variadic: bool,
    /// The number of the first parameter that is a structure, if there is one.
    pub by_value: Option<usize>,
    /// It returns a structure.
    pub returns_structure: bool,
}

/// What the kernel that runs says of probes in functions. Errors are reasons, in a few words.
pub trait Functions: Send + Sync {
    /// Whether it takes programs at the entry and the exit of functions (fentry, fexit).
    fn fentry(&self) -> std::result::Result<(), String>;

    /// Whether it has kprobes.
    fn kprobes(&self) -> std::result::Result<(), String>;

    /// Its functions, and how many there are of each name; empty if this is not known.
    fn symbols(&self) -> &BTreeMap<String, u32>;

    /// Those that it can trace; `None` if this is not known.
    fn traceable(&self) -> Option<&BTreeSet<String>>;
}

impl KernelTypes {
    /// The same, of the kernel that runs.
    pub fn with_functions(self, functions: impl Functions + 'static) -> KernelTypes {
        KernelTypes { functions: Some(Box::new(functions)), ..self }
    }

    /// What the kernel that runs says; `None` if these are the types of another one.
    pub fn running(&self) -> Option<&dyn Functions> {
        self.functions.as_deref()
    }

    /// The prototype of a function, or `None` if the types have none of that name.
    pub fn function(&self, name: &str) -> Result<Option<Prototype>> {
        let Some(found) = self.named(name, |t| matches!(t, Type::Func(_)))? else {
            return self.in_modules(|types| types.function(name));
        };
        let Type::FuncProto(proto) = self.target_of(&found)? else { return Ok(None) };
        let mut of = Prototype::default();
        let result = self.by_id(Some(proto.return_type_id()))?;
        if !matches!(result, Type::Void) {
            of.returns_structure = self.is_structure(&result)?;
            of.result = Some(self.spell(Some(proto.return_type_id()))?);
        }
        for (i, parameter) in proto.parameters.iter().enumerate() {
            if parameter.is_variadic() {
                of.variadic = true;
                continue;
            }
            let id = parameter.get_type_id();
            if self.is_structure(&self.by_id(id)?)? {
                of.by_value = of.by_value.or(Some(i));
            }
            let name = self.btf.resolve_name(parameter).unwrap_or_default();
            let name = if name.is_empty() { format!("arg{i}") } else { name };
            of.params.push(Param { ty: self.spell(id)?, name });
        }
        Ok(Some(of))
    }

    /// The names of all functions that the types have.
    pub fn functions(&self) -> Vec<String> {
        let is_function = |ty: &Type| matches!(ty, Type::Func(_)).then(|| self.name(ty));
        let names: BTreeSet<String> = self.all().filter_map(|ty| is_function(&ty)).collect();
        self.and_of_modules(names.into_iter().collect(), KernelTypes::functions)
    }

    /// `struct NAME`, if a parameter's type is a pointer to that.
    pub(crate) fn structure_behind(&self, ty: &str) -> Option<String> {
        let words = ty.strip_suffix('*')?;
        let named = self.unqualified(words);
        let is_one = named.starts_with("struct ") || named.starts_with("union ");
        let tag = named.split(' ').nth(1).unwrap_or_default();
        let known = self.named(tag, |t| matches!(t, Type::Struct(_) | Type::Union(_)));
        (is_one && !named.contains('*') && known.is_ok_and(|t| t.is_some())).then_some(named)
    }

    fn is_structure(&self, ty: &Type) -> Result<bool> {
        let through =
            |t: &Type| is_modifier(t) || matches!(t, Type::Typedef(_) | Type::Volatile(_));
        let ty = self.skip(ty.clone(), through)?;
        Ok(matches!(ty, Type::Struct(_) | Type::Union(_)))
    }
}
