// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--segment` and `--keep`

use super::values::{bytes, duration};
use crate::failure::Failure;
use klogger_recorder::segments::{Keep, Plan};
use std::path::Path;
use std::time::Duration;

/// An age or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Count(u32),
    Bytes(u64),
    Age(Duration),
}

/// The smallest segment: each has a preamble, and a block has 1 MiB.
const SIZE_MIN: u64 = 2 << 20;
const AGE_MIN: Duration = Duration::from_millis(100);

/// `60s`, `5m`: an age; `256M`: a size.
pub fn segment(text: &str) -> Result<Bound, String> {
    let help = || "write an age of 100ms or more, or a size of 2M or more: 60s, 5m, 256M, 1G";
    match bound(text) {
        Some(Bound::Bytes(size)) if size >= SIZE_MIN => Ok(Bound::Bytes(size)),
        Some(Bound::Age(age)) if age >= AGE_MIN => Ok(Bound::Age(age)),
        Some(Bound::Count(_) | Bound::Bytes(_) | Bound::Age(_)) | None => Err(help().into()),
    }
}

/// `10`: so many segments; `2G`: so many bytes; `1h`: those that ended since.
pub fn keep(text: &str) -> Result<Bound, String> {
    let help = "write how many segments to keep (1 or more), their size, or their age: 10, 2G, 1h";
    bound(text).filter(|bound| *bound != Bound::Count(0)).ok_or_else(|| help.into())
}

fn bound(text: &str) -> Option<Bound> {
    if let Ok(count) = text.parse() {
        return Some(Bound::Count(count));
    }
    // 5m are five minutes, and 5M a size.
    match text.ends_with(['K', 'M', 'G', 'B']) {
        true => bytes(text).ok().map(Bound::Bytes),
        false => duration(text).ok().map(Bound::Age),
    }
}

/// What the options ask for; `None` without `--segment`.
pub fn plan(
    segment: &[Bound],
    keep: &[Bound],
    dir: Option<&Path>,
    output: Option<&Path>,
    overwrite: bool,
) -> Result<Option<Plan>, Failure> {
    if segment.is_empty() {
        let (option, what) = match (keep, dir) {
            ([], None) => return Ok(None),
            ([], Some(_)) => ("--dir", "it names the folder of the segments"),
            _ => ("--keep", "it says how many segments to keep"),
        };
        return Err(Failure::new(format!("{option} needs --segment: {what}"))
            .help("add --segment AGE or --segment SIZE: --segment 60s"));
    }
    if let Some(output) = output {
        let what = "-o names a file, and segments are files in a folder";
        return Err(Failure::new(what).help(format!(
            "name the folder: --dir {}",
            output.with_extension("segments").display()
        )));
    }
    if overwrite {
        return Err(Failure::new("--segment and --overwrite exclude each other").help(
            "--segment 60s --keep 10 keeps the newest events on disk, --overwrite in memory",
        ));
    }
    bounds(segment, keep).map(Some)
}

fn bounds(segment: &[Bound], keep: &[Bound]) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    for bound in segment {
        match bound {
            Bound::Age(age) => once(&mut plan.age, *age, "--segment", "ages")?,
            Bound::Bytes(size) => once(&mut plan.size, *size, "--segment", "sizes")?,
            Bound::Count(_) => {}
        }
    }
    let Keep { segments, bytes, age } = &mut plan.keep;
    for bound in keep {
        match bound {
            Bound::Count(most) => once(segments, *most, "--keep", "numbers")?,
            Bound::Bytes(most) => once(bytes, *most, "--keep", "sizes")?,
            Bound::Age(most) => once(age, *most, "--keep", "ages")?,
        }
    }
    Ok(plan)
}

fn once<T>(to: &mut Option<T>, value: T, option: &str, what: &str) -> Result<(), Failure> {
    match to.replace(value) {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("{option} was given two {what}"))
            .help("give one; an age and a size can be given together")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_not_megabytes() {
        assert_eq!(segment("5m"), Ok(Bound::Age(Duration::from_secs(300))));
        assert_eq!(segment("5M"), Ok(Bound::Bytes(5 << 20)));
        assert_eq!(keep("10"), Ok(Bound::Count(10)));
        for wrong in ["0", "7", "0s", "0M", "1M", "1ms", "x", ""] {
            assert!(segment(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "0s", "0M", "-1", ""] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_bound_once() {
        let age = Bound::Age(Duration::from_secs(1));
        let of = |segment: &[Bound], keep: &[Bound], overwrite| {
            plan(segment, keep, None, None, overwrite)
        };
        assert!(of(&[age, Bound::Bytes(SIZE_MIN)], &[], false).unwrap().is_some());
        assert!(of(&[age, age], &[], false).is_err());
        assert!(of(&[], &[age], false).is_err());
        assert!(of(&[age], &[], true).is_err());
        assert!(of(&[], &[], true).unwrap().is_none());
        let path = Some(Path::new("x.klog"));
        let said = |result: Result<Option<Plan>, Failure>| result.unwrap_err().to_string();
        assert!(said(plan(&[], &[], path, None, false)).starts_with("--dir needs --segment"));
        assert!(said(plan(&[age], &[], None, path, false)).starts_with("-o names a file"));
    }
}
