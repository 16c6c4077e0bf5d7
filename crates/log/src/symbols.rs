// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names for addresses in code.

use crate::seen::Seen;

/// A table of symbols, by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    text: Vec<u8>,
    /// (address, offsets of its name in `text`), ascending.
    entries: Vec<(u64, u32, u32)>,
}

/// An address farther than this from the symbol before it does not belong to it.
pub(crate) const SYMBOL_SIZE_MAX: u64 = 1 << 20;
/// The largest number of symbols, because a forged table may have lines of three bytes.
const SYMBOLS_MAX: usize = 4 << 20;

impl Symbols {
    /// Reads lines `ADDRESS NAME`; a line of another form is skipped.
    pub fn new(text: Vec<u8>) -> Symbols {
        let mut entries = Vec::new();
        let mut at = 0;
        for line in text.split(|b| *b == b'\n') {
            let end = at + line.len();
            let space = line.iter().position(|b| *b == b' ');
            let address = space
                .and_then(|s| u64::from_str_radix(std::str::from_utf8(&line[..s]).ok()?, 16).ok());
            if let (Some(space), Some(address)) = (space, address)
                && entries.len() < SYMBOLS_MAX
            {
                entries.push((address, (at + space + 1) as u32, end as u32));
            }
            at = end + 1;
        }
        entries.sort_by_key(|e| e.0);
        Symbols { text, entries }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// By ascending address; where several have the same, the one that [`Symbols::find`] gives.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let next = self.entries.iter().skip(1).map(|e| Some(e.0)).chain([None]);
        let last = self.entries.iter().zip(next).filter(|(e, next)| Some(e.0) != *next);
        last.map(|(e, _)| (e.0, &self.text[e.1 as usize..e.2 as usize]))
    }

    /// The symbol that `address` is in, and how far into it.
    pub fn find(&self, address: u64) -> Option<(&[u8], u64)> {
        let after = self.entries.partition_point(|e| e.0 <= address);
        let &(start, from, to) = self.entries.get(after.checked_sub(1)?)?;
        let offset = address - start;
        (offset < SYMBOL_SIZE_MAX).then(|| (&self.text[from as usize..to as usize], offset))
    }
}

/// Of lines `ADDRESS NAME` in ascending order, those whose symbols contain addresses that were
/// seen; all of them, if there were too many to note.
pub(crate) fn needed(symbols: &str, seen: &Seen) -> String {
    if seen.is_full() {
        return symbols.into();
    }
    let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let mut lines = symbols.lines().filter_map(|l| Some((address(l)?, l))).peekable();
    let mut needed = String::new();
    while let Some((start, line)) = lines.next() {
        let next = lines.peek().map_or(u64::MAX, |next| next.0);
        let end = next.min(start.saturating_add(SYMBOL_SIZE_MAX));
        if start < end && seen.has(start..end) {
            needed.push_str(line);
            needed.push('\n');
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_before_it() {
        let symbols = Symbols::new(b"1000 alpha\nnonsense\n2000 beta [module]\n".to_vec());
        assert_eq!(symbols.find(0xfff), None);
        assert_eq!(symbols.find(0x1000), Some((&b"alpha"[..], 0)));
        assert_eq!(symbols.find(0x1fff), Some((&b"alpha"[..], 0xfff)));
        assert_eq!(symbols.find(0x2010), Some((&b"beta [module]"[..], 0x10)));
        assert_eq!(symbols.find(u64::MAX), None);
    }

    #[test]
    fn of_two_symbols_at_an_address_both_give_the_same() {
        let symbols = Symbols::new(b"20 c\n10 a\n10 b\n".to_vec());
        assert_eq!(symbols.iter().collect::<Vec<_>>(), [(0x10, &b"b"[..]), (0x20, &b"c"[..])]);
        assert_eq!(symbols.find(0x10), Some((&b"b"[..], 0)));
    }

    #[test]
    fn symbols_that_no_address_needs_are_left_out() {
        let all =
            "1000 alpha\n1000 alias\n2000 beta\n2800 gamma [module]\n3000 delta\n900000 far\n";
        let addresses = [0xfff, 0x1000, 0x27ff, 0x2800, 0x27ff, 0x80_0000, 0x9f_ffff, 0xa0_0001];
        let needed = needed(all, &Seen::code().with(addresses.map(|address| (0, address))));
        assert_eq!(needed, "1000 alias\n2000 beta\n2800 gamma [module]\n900000 far\n");
        let (few, many) =
            (Symbols::new(needed.into_bytes()), Symbols::new(all.as_bytes().to_vec()));
        // Between the remaining symbols no address is looked up, because the log has none there.
        addresses.into_iter().for_each(|a| assert_eq!(few.find(a), many.find(a), "{a:x}"));
    }
}
