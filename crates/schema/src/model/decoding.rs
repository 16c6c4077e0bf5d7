// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tables of texts for values.

use super::Schema;
use serde::{Deserialize, Serialize};

/// `enum NAME { ... }` or `flags NAME { ... }`: texts for values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decoding {
    pub name: String,
    /// Bits that can be combined, rather than alternatives.
    pub flags: bool,
    pub values: Vec<(u64, String)>,
}

impl Decoding {
    /// Whether one of both would have wrong texts if they were in one log. Case does not count: in
    /// SQL they are one function.
    pub fn clashes_with(&self, other: &Decoding) -> bool {
        self.name.eq_ignore_ascii_case(&other.name)
            && (self.flags, &self.values) != (other.flags, &other.values)
    }
}

impl Schema {
    /// Why `self` cannot be recorded together with a schema `other` that has these `decodings`.
    pub fn decoding_clash(&self, other: &str, decodings: &[Decoding]) -> Option<String> {
        let clashes = |new: &&Decoding| decodings.iter().any(|old| new.clashes_with(old));
        let Decoding { name, .. } = self.decodings.iter().find(clashes)?;
        Some(format!(
            "the schemata '{other}' and '{}' both declare '{name}', with other texts",
            self.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_with_other_texts_clashes_whatever_its_case() {
        let table = |name: &str, flags, text: &str| Decoding {
            name: name.into(),
            flags,
            values: vec![(1, text.into())],
        };
        let kind = table("kind", false, "a");
        for other in [table("Kind", false, "b"), table("KIND", true, "a"), table("kind", true, "a")]
        {
            assert!(kind.clashes_with(&other) && other.clashes_with(&kind), "{other:?}");
        }
        for other in [table("Kind", false, "a"), kind.clone(), table("kinds", false, "b")] {
            assert!(!kind.clashes_with(&other) && !other.clashes_with(&kind), "{other:?}");
        }
    }
}
