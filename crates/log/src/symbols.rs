// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names for addresses in code.

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
}
