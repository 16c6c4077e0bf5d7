// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Parameters of a schema in C: constants that the recorder sets before the code runs.

use crate::events::c_type;
use crate::states;
use crate::text::Text;
use klogger_schema::model::{Parameter, Scalar, Schema};

/// The section of an ELF object with the parameters, in the order of their declaration, then the
/// sizes of states, each in [`SLOT`] bytes. To the verifier they are constants, so that it removes
/// what they switch off.
pub const SECTION: &str = ".rodata.klog_p";
pub const SLOT: usize = 8;

/// For the bpf engine.
pub(crate) fn constants(out: &mut Text, schema: &Schema) {
    for p in &schema.parameters {
        let declared = format!("const volatile {} {}", c_type(p.scalar), p.name);
        // Lines of the schema have no attributes.
        out.push_at(schema, p.span, &format!("extern {declared};"));
        out.push(format_args!(
            "{declared} SEC(\"{SECTION}\") __attribute__((aligned({SLOT}))) = {};\n",
            literal(p)
        ));
    }
}

/// The bytes of the section, with the values of a recording. `sized`: whether its states are as
/// large as the schema says.
pub fn bytes(schema: &Schema, sized: bool) -> Vec<u8> {
    let values = schema.parameters.iter().map(|p| p.value as u64);
    // The low bytes of a number are its first.
    values.chain(states::constants(schema, sized)).flat_map(u64::to_le_bytes).collect()
}

/// For the kernel engine: parameters of the module, which the recorder writes.
pub(crate) fn of_module(out: &mut Text, schema: &Schema) {
    for p in &schema.parameters {
        let (c, word) = of_kernel(p.scalar);
        let line = format!(
            "static {c} {0} __read_mostly = {1}; module_param({0}, {word}, 0644);",
            p.name,
            literal(p)
        );
        out.push_at(schema, p.span, &line);
    }
}

/// The C type, and the kernel's word for it; there is none for a signed byte.
fn of_kernel(scalar: Scalar) -> (&'static str, &'static str) {
    match scalar {
        Scalar::Bool => ("bool", "bool"),
        Scalar::U8 => ("unsigned char", "byte"),
        Scalar::I8 | Scalar::I16 => ("short", "short"),
        Scalar::U16 => ("unsigned short", "ushort"),
        Scalar::I32 => ("int", "int"),
        Scalar::U32 => ("unsigned int", "uint"),
        Scalar::I64 => ("long", "long"),
        Scalar::U64 => ("unsigned long long", "ullong"),
    }
}

fn literal(p: &Parameter) -> String {
    const LEAST: i128 = i64::MIN as i128;
    match p.default {
        LEAST => "-9223372036854775807ll - 1".into(),
        n if n > i64::MAX.into() => format!("{n}ull"),
        n => format!("{n}ll"),
    }
}
