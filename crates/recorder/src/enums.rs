// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `as enum NAME`: the texts of the kernel's enums, as this kernel has them, for the log.

use klogger_engines::request::Request;
use klogger_toolchain::host_kernel;

/// Fills in the values of the kernel's enums. Returns which of them this kernel does not have.
pub fn fill(request: &mut Request) -> Vec<String> {
    if request.units.iter().all(|unit| unit.schema.kernel_enums.is_empty()) {
        return Vec::new();
    }
    let types = match host_kernel::types() {
        Ok(types) => types,
        Err(e) => {
            return vec![format!("values of the kernel's enums have no names: {}", e.message)];
        }
    };
    let mut notes = Vec::new();
    for schema in request.units.iter_mut().map(|unit| &mut unit.schema) {
        for name in &schema.kernel_enums {
            let table = schema.decodings.iter_mut().find(|table| table.name == *name);
            match (types.enum_values(name), table) {
                (Ok(Some(values)), Some(table)) => table.values = values,
                _ => notes.push(format!(
                    "this kernel has no enum '{name}': its values in the log are numbers"
                )),
            }
        }
    }
    notes
}
