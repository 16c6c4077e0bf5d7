// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Declarations of numbers and pointers, and their C type names.

use super::super::Result;
use btf_rs::Type;

/// A C declaration, and the natural alignment of its type.
pub struct Declared {
    pub text: String,
    pub align: usize,
    /// It has no name, but bit fields.
    pub bits: bool,
}

pub fn declared(text: String, align: usize) -> Result<Declared> {
    Ok(Declared { text, align, bits: false })
}

pub fn keyword(ty: &Type) -> &'static str {
    if matches!(ty, Type::Union(_)) { "union" } else { "struct" }
}

/// Whether a field of `bits` crosses units of its type, which happens only in packed structures.
pub fn crosses(at: usize, bits: u32, align: usize) -> bool {
    at / (8 * align) != (at + bits as usize - 1) / (8 * align)
}

/// BPF has no integers of 16 bytes.
pub fn number(size: usize, signed: bool, name: &str) -> Result<Declared> {
    let name = if size > 8 { format!("{name}[{}]", size / 8) } else { name.to_string() };
    declared(format!("{} {name}", int_type(size, signed)), size.clamp(1, 8))
}

fn int_type(size: usize, signed: bool) -> &'static str {
    match (size, signed) {
        (1, true) => "signed char",
        (1, false) => "unsigned char",
        (2, true) => "short",
        (2, false) => "unsigned short",
        (4, true) => "int",
        (4, false) => "unsigned int",
        (_, true) => "long long",
        (_, false) => "unsigned long long",
    }
}
