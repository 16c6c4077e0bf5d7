// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! "Did you mean": the known names nearest to an unknown one.

/// Names are at most this long. A longer word is no misspelling of one, and would take quadratic
/// time.
const LONGEST: usize = 128;
const OFFERED: usize = 3;

/// Up to three candidates that `word` may be a misspelling of, the nearest first. Case is ignored.
/// A candidate is near if it takes at most one edit for every three letters, or if it contains the
/// word.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if word.is_empty() || word.len() > LONGEST {
        return Vec::new();
    }
    let word = word.to_lowercase();
    let mut found: Vec<(usize, &str)> =
        candidates.into_iter().filter_map(|c| distance(&word, c).map(|d| (d, c))).collect();
    found.sort_unstable();
    found.dedup();
    // If one is much nearer than the others, only that one.
    let best = found.first().map_or(0, |(d, _)| *d);
    found.retain(|(d, _)| *d <= best + 1 || best >= LONGEST);
    found.into_iter().take(OFFERED).map(|(_, c)| c).collect()
}

/// "did you mean `a`, `b` or `c`?", if any is near.
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let near = nearest(word, candidates);
    (!near.is_empty()).then(|| format!("did you mean {}?", alternatives(&near, "or")))
}

/// "`a`, `b` or `c`", with `join` before the last one.
pub fn alternatives(names: &[&str], join: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {join} {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

/// The distance of two names; `None` if they are not similar. `word` is in lower case.
fn distance(word: &str, candidate: &str) -> Option<usize> {
    if candidate.len() > LONGEST {
        return None;
    }
    let candidate = candidate.to_lowercase();
    let allowed = (word.len().min(candidate.len()) / 3).max(1);
    if word.len().abs_diff(candidate.len()) <= allowed {
        let edits = strsim::osa_distance(word, &candidate);
        // A name of one letter is never near by edits: nothing of it would be left.
        if edits <= allowed && edits < word.len().min(candidate.len()) {
            return Some(edits);
        }
    }
    // After all misspellings: names that contain the word, the shortest first.
    (word.len() >= 4 && candidate.contains(word)).then(|| LONGEST + candidate.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] =
        ["sched_switch", "sched_waking", "sched_wakeup", "sys_enter", "irq_handler_entry", "us"];

    #[test]
    fn misspelt() {
        assert_eq!(nearest("sched_swich", NAMES), ["sched_switch"]);
        assert_eq!(nearest("SCHED_WAKEPU", NAMES), ["sched_wakeup"]);
        assert_eq!(nearest("shced_waking", NAMES), ["sched_waking"]);
    }

    #[test]
    fn parts_come_after_misspellings() {
        assert_eq!(nearest("switch", NAMES), ["sched_switch"]);
        assert_eq!(nearest("sched", NAMES), ["sched_switch", "sched_wakeup", "sched_waking"]);
    }

    #[test]
    fn nothing_is_near() {
        assert!(nearest("tcp_probe", NAMES).is_empty());
        assert!(nearest("", NAMES).is_empty());
        assert!(nearest(&"x".repeat(1 << 20), NAMES).is_empty());
    }

    #[test]
    fn the_sentence() {
        assert_eq!(
            did_you_mean("sched", NAMES).unwrap(),
            "did you mean `sched_switch`, `sched_wakeup` or `sched_waking`?"
        );
        assert_eq!(did_you_mean("sus", NAMES), Some("did you mean `us`?".into()));
        assert_eq!(did_you_mean("zzz", NAMES), None);
    }
}
