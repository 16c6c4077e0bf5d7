// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a kernel can list by BPF iterators. The arguments of an iterator's program are the members
//! of `struct bpf_iter__NAME`, each in 8 bytes.

use super::{KernelTypes, Result};
use btf_rs::{BtfType, Type};
use klogger_schema::model::Param;

const PREFIX: &str = "bpf_iter__";

impl KernelTypes {
    /// The arguments of an iterator's programs after the first one, which is the iterator's own;
    /// `None` if the kernel has no such iterator.
    pub fn iterator(&self, name: &str) -> Result<Option<Vec<Param>>> {
        let found = self.named(&format!("{PREFIX}{name}"), |t| matches!(t, Type::Struct(_)))?;
        let Some(Type::Struct(arguments)) = found else { return Ok(None) };
        let mut params = Vec::new();
        for member in arguments.members.iter().skip(1) {
            // A pointer is in a union, which makes it 8 bytes on all machines.
            let param = match self.by_id(member.get_type_id())? {
                Type::Union(union) => union.members.first().cloned(),
                _ => Some(member.clone()),
            };
            let Some(param) = param else { continue };
            let ty = self.spell(param.get_type_id())?;
            params.push(Param { ty, name: self.btf.resolve_name(&param).unwrap_or_default() });
        }
        Ok(Some(params))
    }
}
