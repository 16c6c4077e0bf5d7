// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Judges repeated measurements of an event's cost.

use klogger_log::preamble::Cost;

/// If the quartiles are further apart than this share of the median, and than [`LEAST_NS`], no cost
/// is reported.
const WIDE: f64 = 0.25;
const LEAST_NS: f64 = 4.0;

/// Why no cost is reported.
pub const SPREAD: &str = "measurements of the same were too far apart: the machine is busy";

/// The cost, or `None` if the values spread too far.
pub fn judge(values: &[f64]) -> Option<Cost> {
    let cost = Cost {
        ns: quantile(values, 0.5),
        low: quantile(values, 0.25),
        high: quantile(values, 0.75),
    };
    (cost.high - cost.low <= (WIDE * cost.ns).max(LEAST_NS)).then_some(cost)
}

/// The quantile, interpolated between the two nearest values.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * (sorted.len().max(1) - 1) as f64;
    let value = |n: usize| sorted.get(n).copied().unwrap_or_default();
    let (low, high) = (value(at as usize), value(at.ceil() as usize));
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[7.0], 0.25), 7.0);
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.5), 2.5);
        assert_eq!(quantile(&[5.0, 1.0, 2.0, 3.0, 4.0], 0.25), 2.0);
    }

    #[test]
    fn values_that_spread_give_no_cost() {
        assert_eq!(
            judge(&[50.0, 51.0, 52.0]).map(|c| (c.low, c.ns, c.high)),
            Some((50.5, 51.0, 51.5))
        );
        assert_eq!(judge(&[50.0, 30.0, 80.0, 20.0]), None);
        // Small values may differ by up to LEAST_NS.
        assert!(judge(&[2.0, 4.0, 6.0]).is_some());
    }
}
