// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Static probes (USDT): notes of type stapsdt, as the macros of sys/sdt.h make them.

use crate::Wrong;
use crate::elf::{Elf, damaged};

/// One place of a static probe. A probe that is inlined, or written several times, has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    pub provider: String,
    pub name: String,
    /// Of the NOP that the kernel replaces.
    pub address: u64,
    /// Of the counter that is not 0 while somebody looks; 0: there is none.
    pub semaphore: u64,
    /// Where its arguments are, as the compiler has written it.
    pub arguments: String,
}

const NOTE: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// All places of all static probes.
pub fn static_probes(elf: &Elf) -> Result<Vec<StaticProbe>, Wrong> {
    let Some((_, notes)) = elf.section(".note.stapsdt")? else { return Ok(Vec::new()) };
    // The addresses in notes are those of the linker. A tool that moves the program afterwards
    // leaves them, and moves this section.
    let base = elf.section(".stapsdt.base")?.map(|(address, _)| address);
    let mut rest = notes.as_slice();
    let mut all = Vec::new();
    while let Some(head) = rest.first_chunk::<12>() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (owner, size, kind) = (word(0) as usize, word(4) as usize, word(8));
        let text_at = 12 + owner.next_multiple_of(4);
        let end = text_at.checked_add(size).ok_or_else(damaged)?;
        let text = rest.get(text_at..end).ok_or_else(damaged)?;
        if kind == NOTE && rest.get(12..12 + owner) == Some(OWNER) {
            all.push(static_probe(text, base).ok_or_else(damaged)?);
        }
        rest = rest.get(end.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

/// Three addresses, and three texts.
fn static_probe(note: &[u8], base: Option<u64>) -> Option<StaticProbe> {
    let word = |n: usize| Some(u64::from_le_bytes(*note.get(8 * n..)?.first_chunk()?));
    let (address, linked_base, semaphore) = (word(0)?, word(1)?, word(2)?);
    let moved = base.map_or(0, |base| base.wrapping_sub(linked_base));
    let mut texts = note[24..].split(|b| *b == 0).map(|t| String::from_utf8_lossy(t).into_owned());
    Some(StaticProbe {
        provider: texts.next()?,
        name: texts.next()?,
        address: address.wrapping_add(moved),
        semaphore: if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) },
        arguments: texts.next()?,
    })
}
