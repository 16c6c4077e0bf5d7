// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Declarations of the kernel's enums, and of their constants.

use super::super::{KernelTypes, Result};
use super::{Declarations, OWN};
use btf_rs::Type;
use std::collections::BTreeSet;
use std::fmt::Write;

impl Declarations<'_> {
    /// Only the type; constants are declared if the schema mentions them. The constants here give
    /// it the right width and signedness.
    pub(super) fn enum_type(&mut self, tag: &str) -> Result<()> {
        let (size, signed) =
            match self.find(tag, |t| matches!(t, Type::Enum(_) | Type::Enum64(_)))? {
                Some(Type::Enum(e)) => (e.size(), e.is_signed()),
                Some(Type::Enum64(e)) => (e.size(), e.is_signed()),
                _ => (4, false),
            };
        let least = if signed { "-1" } else { "0" };
        let most =
            if size > 4 { format!(", klogger_most_{tag} = 1ll << 40") } else { String::new() };
        let packed = if size < 4 { " __attribute__((packed))" } else { "" };
        let _ = writeln!(self.text, "enum{packed} {tag} {{ klogger_enum_{tag} = {least}{most} }};");
        Ok(())
    }

    /// Constants of the kernel's enums, with the values in the kernel where the object is loaded.
    pub(super) fn enumerators(&mut self) -> Result<()> {
        let looks =
            |w: &&String| w.chars().any(|c| c.is_ascii_uppercase()) && !OWN.contains(&w.as_str());
        let wanted: BTreeSet<String> = self.words.all.iter().filter(looks).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for types in self.all.clone() {
            for ty in types.all() {
                self.enumerators_of(types, &ty, &wanted);
            }
        }
        Ok(())
    }

    /// Those of one enum that are wanted, and not declared yet.
    fn enumerators_of(&mut self, types: &KernelTypes, ty: &Type, wanted: &BTreeSet<String>) {
        let Type::Enum(e) = ty else { return };
        let tag = types.name(ty);
        for member in &e.members {
            let Ok(name) = types.btf.resolve_name(member) else { continue };
            if !wanted.contains(&name) || !self.enumerators.insert(name.clone()) {
                continue;
            }
            let value = if e.is_signed() {
                (member.val() as i32).to_string()
            } else {
                member.val().to_string()
            };
            if tag.is_empty() {
                let _ = writeln!(self.text, "enum {{ {name} = {value} }};");
            } else {
                let _ = writeln!(
                    self.text,
                    "enum {tag}___{name} {{ {name} = {value} }};\n#define {name} \
                     __builtin_preserve_enum_value(*(enum {tag}___{name} *){name}, 1)"
                );
            }
        }
    }
}
