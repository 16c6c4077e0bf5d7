// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the samples of a log do not have, in words.

/// Slices that wait for their ends at most: a log may have any number of begins.
pub const OPEN_MAX: usize = 1 << 20;

/// What is not among the samples, or not as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Slices that were open when events were lost, so that their ends are not known.
    pub uncertain: u64,
    /// Slices that were open at the end of the log.
    pub open: u64,
    /// Slices that were not followed, because too many were open.
    pub too_many: u64,
    /// Events of the log that were lost.
    pub lost: u64,
    /// Weight of the samples with missing frames.
    pub partial: u64,
    /// Weight of all samples.
    pub all: u64,
    /// Number of samples that there are.
    pub samples: u64,
}

impl Omitted {
    /// One for each that is not 0, besides what was lost. `what`: the name of the slices.
    pub fn sentences(&self, what: &str) -> Vec<String> {
        let Omitted { uncertain, open, too_many, partial, all, .. } = *self;
        let notes = [
            (
                uncertain,
                format!(
                    "{uncertain} of '{what}' are not counted: events were lost before they ended"
                ),
            ),
            (open, format!("{open} of '{what}' are not counted: they had not ended with the log")),
            (
                too_many,
                format!(
                    "{too_many} of '{what}' are not counted: more than {OPEN_MAX} were open at once"
                ),
            ),
            (
                partial,
                format!(
                    "{} have frames in brackets, in the place of some that are not known",
                    share(partial, all)
                ),
            ),
        ];
        notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect()
    }
}

/// A part of a whole that is not 0.
fn share(part: u64, whole: u64) -> String {
    match 100.0 * part as f64 / whole.max(1) as f64 {
        percent if percent < 0.05 => "less than 0.1 %".into(),
        percent => format!("{percent:.1} %"),
    }
}
