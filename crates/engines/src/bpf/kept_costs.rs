// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What events cost, kept from one recording to the next: until the machine boots again, and for at
//! most a day, as its speed may change.
//!
//! They are in a folder of root that is gone after a boot. Where it cannot be written, or another
//! user could, each recording measures.

use klogger_os::outputs::{Folder, Old};
use klogger_os::{machine, monotonic_ns};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

pub const FOLDER: &str = "/run/klogger/costs";
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Schemata that are written, tried and changed would fill the folder: then it is emptied.
const FILES_MAX: usize = 200;
/// Of a file; more is not read. A hundred events have some 20 KiB.
const BYTES_MAX: u64 = 1 << 20;

/// What was measured for a schema, by pass: the empty probe, the one with a clock, and the events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub arms: Vec<Vec<f64>>,
    pub hits: u64,
    /// When, by the monotonic clock, in ns.
    pub at: u64,
}

impl Measured {
    /// Seconds since then.
    pub fn age(&self) -> u64 {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.at)).as_secs()
    }

    fn is_valid(&self, arms: usize) -> bool {
        let number = |value: &f64| value.is_finite();
        self.at <= monotonic_ns()
            && self.age() < AGE_MAX.as_secs()
            && self.arms.len() == arms
            && self.arms.iter().all(|values| !values.is_empty() && values.iter().all(number))
    }
}

/// Another one after each boot, if it can be read.
fn boot() -> Option<String> {
    Some(machine::line("/proc/sys/kernel/random/boot_id")).filter(|id| !id.is_empty())
}

/// The name for what is measured of this: everything on which the costs depend. None if it is not
/// known which boot this is: then nothing is kept.
pub fn name(of: impl Hash) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    boot()?.hash(&mut hasher);
    // Of this build, and of what changes the speed of programs in this kernel.
    let program = std::env::current_exe().and_then(std::fs::metadata).ok();
    program.map(|is| (is.len(), is.mtime(), is.mtime_nsec())).hash(&mut hasher);
    ["kernel/bpf_stats_enabled", "net/core/bpf_jit_harden"]
        .map(|name| machine::line(&format!("/proc/sys/{name}")))
        .hash(&mut hasher);
    of.hash(&mut hasher);
    Some(format!("{:016x}.json", hasher.finish()))
}

/// What was measured before, if it is of so many arms.
pub fn find(folder: &Path, name: &str, arms: usize) -> Option<Measured> {
    let folder = Folder::open(folder).ok()?;
    folder.check_ours().ok()?;
    if !folder.is_ours(name.as_ref()) {
        return None;
    }
    let mut bytes = Vec::new();
    folder.read(name.as_ref()).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let found: Measured = serde_json::from_slice(&bytes).ok()?;
    found.is_valid(arms).then_some(found)
}

/// That it cannot be kept is no fault of a recording: the next one measures again.
pub fn keep(folder: &Path, name: &str, measured: &Measured) -> io::Result<()> {
    let folder = Folder::make_with(folder, 0o755)?;
    folder.check_ours()?;
    if folder.names()?.len() >= FILES_MAX {
        for name in folder.names()? {
            folder.remove(&name)?;
        }
    }
    folder.write(name.as_ref(), 0o644, Old::Replace, &serde_json::to_vec(measured)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn measured(at: u64) -> Measured {
        Measured { arms: vec![vec![10.0, 11.5], vec![20.0]], hits: 7, at }
    }

    #[test]
    fn what_was_measured_is_found_again() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("costs");
        let now = measured(monotonic_ns());
        assert_eq!(find(&folder, "a", 2), None);
        keep(&folder, "a", &now).unwrap();
        assert_eq!(find(&folder, "a", 2), Some(now));
        assert_eq!(find(&folder, "a", 3), None);
        assert_eq!(find(&folder, "b", 2), None);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let base = tempfile::tempdir().unwrap();
        for number in 0..2 * FILES_MAX {
            keep(base.path(), &number.to_string(), &measured(1)).unwrap();
        }
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), FILES_MAX);
    }

    #[test]
    fn what_is_old_or_no_measurement_is_not() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path();
        // Before this boot: the clock has not been there yet.
        keep(folder, "later", &measured(u64::MAX)).unwrap();
        assert_eq!(find(folder, "later", 2), None);
        let day = AGE_MAX.as_nanos() as u64;
        assert!(
            !measured(monotonic_ns().saturating_sub(2 * day)).is_valid(2) || monotonic_ns() < day
        );
        for text in ["", "{}", r#"{"arms":[[1],[]],"hits":1,"at":0}"#] {
            fs::write(folder.join("x"), text).unwrap();
            assert_eq!(find(folder, "x", 2), None, "{text}");
        }
        std::os::unix::fs::symlink(folder.join("later"), folder.join("link")).unwrap();
        assert_eq!(find(folder, "link", 2), None);
    }

    #[test]
    fn another_schema_has_another_name() {
        assert_eq!(name(("a", 1)), name(("a", 1)));
        assert_ne!(name(("a", 1)), name(("a", 2)));
    }
}
