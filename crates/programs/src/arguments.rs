// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the arguments of a static probe are: `-4@%edi 8@16(%rbp,%rax,8) -8@$-1` on x86, and
//! `-4@w0 8@[sp, 16]` on ARM: the size, negative if signed, and an operand of the assembler.

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub from: From,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    pub signed: bool,
}

/// Registers are words of `struct pt_regs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Constant(i64),
    /// The bits of a register from this one on.
    Register {
        word: u16,
        shift: u8,
    },
    /// Memory at the sum of: a register, another one times 2 to the power of `scale`, a number.
    Memory {
        base: Option<u16>,
        index: Option<u16>,
        scale: u8,
        plus: i64,
    },
}

/// What an operand may refer to.
pub struct Place<'a> {
    /// The probe's.
    pub address: u64,
    /// Variables are named in operands relative to the instruction: `8@counter(%rip)`.
    pub address_of: &'a dyn Fn(&str) -> Option<u64>,
}

/// The arguments of a probe; `Err`: the one that cannot be read, and why.
pub fn arguments(text: &str, place: &Place) -> Vec<Result<Argument, String>> {
    split(text).into_iter().map(|one| argument(one, place)).collect()
}

/// At blanks, but not within brackets: `[sp, 16]`.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ' ' if depth <= 0 => {
                all.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[start..]);
    all.retain(|one| !one.is_empty());
    all
}

fn argument(text: &str, place: &Place) -> Result<Argument, String> {
    let unknown = || format!("its operand '{text}' is of an unknown form");
    let (size, operand) = text.split_once('@').ok_or_else(unknown)?;
    if size.ends_with('f') {
        return Err("it is a floating-point number".into());
    }
    let size: i8 = size.parse().map_err(|_| unknown())?;
    let from = operand_of(operand, place).ok_or_else(unknown)?;
    match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => Ok(Argument { from, size: bytes, signed: size < 0 }),
        _ => Err(unknown()),
    }
}

/// Decimal, octal after `0`, or hexadecimal after `0x`, as assemblers read numbers.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    let value = value as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(target_arch = "aarch64")]
use arm::operand_of;
#[cfg(not(target_arch = "aarch64"))]
use x86::operand_of;

#[cfg(any(test, not(target_arch = "aarch64")))]
mod x86 {
    use super::{From, Place, number};

    /// Words of `struct pt_regs`, with the names of their parts.
    const REGISTERS: [(u16, [&str; 4]); 17] = [
        (0, ["r15", "r15d", "r15w", "r15b"]),
        (1, ["r14", "r14d", "r14w", "r14b"]),
        (2, ["r13", "r13d", "r13w", "r13b"]),
        (3, ["r12", "r12d", "r12w", "r12b"]),
        (4, ["rbp", "ebp", "bp", "bpl"]),
        (5, ["rbx", "ebx", "bx", "bl"]),
        (6, ["r11", "r11d", "r11w", "r11b"]),
        (7, ["r10", "r10d", "r10w", "r10b"]),
        (8, ["r9", "r9d", "r9w", "r9b"]),
        (9, ["r8", "r8d", "r8w", "r8b"]),
        (10, ["rax", "eax", "ax", "al"]),
        (11, ["rcx", "ecx", "cx", "cl"]),
        (12, ["rdx", "edx", "dx", "dl"]),
        (13, ["rsi", "esi", "si", "sil"]),
        (14, ["rdi", "edi", "di", "dil"]),
        (16, ["rip", "eip", "ip", ""]),
        (19, ["rsp", "esp", "sp", "spl"]),
    ];
    /// The second bytes of registers.
    const SECOND: [(u16, &str); 4] = [(10, "ah"), (5, "bh"), (11, "ch"), (12, "dh")];

    fn register(text: &str) -> Option<(u16, u8)> {
        let name = text.strip_prefix('%')?;
        if let Some((word, _)) = SECOND.iter().find(|(_, second)| *second == name) {
            return Some((*word, 8));
        }
        let has = |(_, names): &&(u16, [&str; 4])| !name.is_empty() && names.contains(&name);
        REGISTERS.iter().find(has).map(|(word, _)| (*word, 0))
    }

    /// `$5`, `%rdi`, `-8(%rbp,%rax,4)`, `variable+4(%rip)`.
    pub fn operand_of(text: &str, place: &Place) -> Option<From> {
        if let Some(constant) = text.strip_prefix('$') {
            return number(constant).map(From::Constant);
        }
        if let Some((word, shift)) = register(text) {
            return Some(From::Register { word, shift });
        }
        let (plus, inner) = text.strip_suffix(')')?.split_once('(')?;
        let mut parts = inner.split(',').map(str::trim);
        let of = |part: Option<&str>| match part {
            None | Some("") => Some(None),
            Some(name) => Some(Some(register(name)?.0)),
        };
        let (base, index) = (of(parts.next())?, of(parts.next())?);
        let scale = match parts.next() {
            None | Some("" | "1") => 0,
            Some("2") => 1,
            Some("4") => 2,
            Some("8") => 3,
            Some(_) => return None,
        };
        const RIP: u16 = 16;
        let plus = match (plus, base) {
            ("", _) => 0,
            (plus, Some(RIP)) if number(plus).is_none() => relative(plus, place)?,
            (plus, _) => number(plus)?,
        };
        Some(From::Memory { base, index, scale, plus })
    }

    /// How far a variable is from the probe.
    fn relative(text: &str, place: &Place) -> Option<i64> {
        let at = text.rfind(['+', '-']).filter(|at| *at > 0 && number(&text[*at..]).is_some());
        let (name, plus) = match at {
            Some(at) => (&text[..at], number(&text[at..])?),
            None => (text, 0),
        };
        let address = (place.address_of)(name)?.wrapping_add_signed(plus);
        Some(address.wrapping_sub(place.address) as i64)
    }
}

#[cfg(any(test, target_arch = "aarch64"))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
mod arm {
    use super::{From, Place, number};

    const SP: u16 = 31;

    /// `x5` and `w5`; `sp`.
    fn register(text: &str) -> Option<u16> {
        match text {
            "sp" | "wsp" => Some(SP),
            "fp" => Some(29),
            "lr" => Some(30),
            name => {
                let n: u16 = name.strip_prefix(['x', 'w'])?.parse().ok()?;
                (n <= 30).then_some(n)
            }
        }
    }

    /// `5`, `x0`, `[sp, 16]`, `[x0, x1, lsl 3]`.
    pub fn operand_of(text: &str, _: &Place) -> Option<From> {
        if let Some(constant) = number(text.strip_prefix('#').unwrap_or(text)) {
            return Some(From::Constant(constant));
        }
        if let Some(word) = register(text) {
            return Some(From::Register { word, shift: 0 });
        }
        let mut parts = text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::trim);
        let base = Some(register(parts.next()?)?);
        let (mut index, mut scale, mut plus) = (None, 0, 0);
        if let Some(second) = parts.next() {
            match register(second) {
                Some(word) => index = Some(word),
                None => plus = number(second.strip_prefix('#').unwrap_or(second))?,
            }
        }
        if let Some(third) = parts.next() {
            scale = third.strip_prefix("lsl")?.trim().trim_start_matches('#').parse().ok()?;
        }
        (scale <= 3 && parts.next().is_none()).then_some(From::Memory { base, index, scale, plus })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place<'static> {
        Place { address: 0x1000, address_of: &|name| (name == "counter").then_some(0x4000) }
    }

    fn x86(text: &str) -> Option<From> {
        super::x86::operand_of(text, &place())
    }

    #[test]
    fn operands_of_x86() {
        assert_eq!(x86("$-5"), Some(From::Constant(-5)));
        assert_eq!(x86("$0x10"), Some(From::Constant(16)));
        assert_eq!(x86("%edi"), Some(From::Register { word: 14, shift: 0 }));
        assert_eq!(x86("%ah"), Some(From::Register { word: 10, shift: 8 }));
        let memory = |base, index, scale, plus| Some(From::Memory { base, index, scale, plus });
        assert_eq!(x86("-8(%rbp)"), memory(Some(4), None, 0, -8));
        assert_eq!(x86("(%rax,%rdx,8)"), memory(Some(10), Some(12), 3, 0));
        assert_eq!(x86("16(,%r12,4)"), memory(None, Some(3), 2, 16));
        assert_eq!(x86("counter(%rip)"), memory(Some(16), None, 0, 0x3000));
        assert_eq!(x86("counter+4(%rip)"), memory(Some(16), None, 0, 0x3004));
        for bad in ["", "%", "%xmm0", "$x", "8(%rbp", "(%rax,%rdx,3)", "other(%rip)", "x(%rax)"] {
            assert_eq!(x86(bad), None, "{bad}");
        }
    }

    #[test]
    fn operands_of_arm() {
        let of = |text| super::arm::operand_of(text, &place());
        assert_eq!(of("42"), Some(From::Constant(42)));
        assert_eq!(of("w3"), Some(From::Register { word: 3, shift: 0 }));
        let memory = |base, index, scale, plus| Some(From::Memory { base, index, scale, plus });
        assert_eq!(of("[sp, 16]"), memory(Some(31), None, 0, 16));
        assert_eq!(of("[x0, x1, lsl 3]"), memory(Some(0), Some(1), 3, 0));
        assert_eq!(of("[x29, -8]"), memory(Some(29), None, 0, -8));
        for bad in ["x31", "[x0", "[x0, x1, lsl 4]", "d0", "[]"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[cfg(not(target_arch = "aarch64"))]
    #[test]
    fn lists_of_arguments() {
        let all = arguments("-4@%edi 8@$7 1@%al 4f@%xmm0 3@%rax @ 8@(%rax, %rdx, 8)", &place());
        let ok = |from, size, signed| Ok(Argument { from, size, signed });
        assert_eq!(all[0], ok(From::Register { word: 14, shift: 0 }, 4, true));
        assert_eq!(all[1], ok(From::Constant(7), 8, false));
        assert_eq!(all[2], ok(From::Register { word: 10, shift: 0 }, 1, false));
        assert_eq!(all[3], Err("it is a floating-point number".into()));
        assert_eq!(all[4], Err("its operand '3@%rax' is of an unknown form".into()));
        assert_eq!(all[5], Err("its operand '@' is of an unknown form".into()));
        let from = From::Memory { base: Some(10), index: Some(12), scale: 3, plus: 0 };
        assert_eq!(all[6], ok(from, 8, false));
        assert!(arguments("", &place()).is_empty());
    }
}
