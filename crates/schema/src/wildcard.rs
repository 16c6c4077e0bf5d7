// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Wildcards: `*` for any characters, `?` for one.

/// Any characters, and any character.
pub(crate) const WILDCARDS: [char; 2] = ['*', '?'];

/// Whether a name has wildcards.
pub fn is_pattern(name: &str) -> bool {
    name.contains(WILDCARDS)
}

/// Whether a name matches a pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The last `*`, and what it has matched up to.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            Some(_) | None => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let fits = ["FLOOD", "F*", "*", "*D", "FL??D", "F*O*D", "FLOOD*", "**", "F*D*D"];
        let fits: Vec<bool> = fits.iter().map(|p| matches(p, "FLOOD")).collect();
        assert_eq!(fits, [true, true, true, true, true, true, true, true, false]);
        let others = ["", "FLOO", "FLOODS", "?", "F*X", "flood", "*?FLOOD"];
        assert!(!others.iter().any(|p| matches(p, "FLOOD")));
        assert!(matches("*", "") && matches("", "") && !matches("?", ""));
        assert!(matches("*_exit", "a_exit_exit") && !matches("*_exit", "exit_"));
    }

    /// Each `*` is tried from where the one before it has ended, and never again.
    #[test]
    fn many_wildcards_take_no_time() {
        assert!(!matches(&"a*".repeat(200), &format!("{}b", "a".repeat(199))));
    }
}
