// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Texts for values, from the enums of a kernel.

use super::{KernelTypes, Result};
use btf_rs::Type;

impl KernelTypes {
    /// The values of an enum and their names; `None` if the kernel has no such enum. Negative
    /// values are extended to 64 bits.
    pub fn enum_values(&self, name: &str) -> Result<Option<Vec<(u64, String)>>> {
        let found = self.named(name, |t| matches!(t, Type::Enum(_) | Type::Enum64(_)))?;
        let mut values = Vec::new();
        match found {
            Some(Type::Enum(e)) => {
                for member in &e.members {
                    let value = match e.is_signed() {
                        true => i64::from(member.val() as i32) as u64,
                        false => member.val().into(),
                    };
                    values.push((value, self.btf.resolve_name(member)?));
                }
            }
            Some(Type::Enum64(e)) => {
                for member in &e.members {
                    values.push((member.val(), self.btf.resolve_name(member)?));
                }
            }
            _ => return self.in_modules(|types| types.enum_values(name)),
        }
        // Of several names for a value, such as that of the first one of a range, the first.
        let mut seen = std::collections::BTreeSet::new();
        values.retain(|(value, _)| seen.insert(*value));
        Ok(Some(values))
    }
}
