// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The segments of a recording: logs in one folder, numbered from 1.

use std::io;
use std::path::Path;

/// The name of a segment's file.
pub fn file_name(number: u32) -> String {
    format!("segment-{number:06}.klog")
}

/// The number in the name of a segment's file.
pub fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".klog")?;
    let number = digits.parse().ok()?;
    // Not segment-1.klog or segment-+00001.klog.
    (number > 0 && file_name(number) == name).then_some(number)
}

/// The numbers of the segments in a folder, in order.
pub fn numbers(folder: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in folder.read_dir()? {
        numbers.extend(entry?.file_name().to_str().and_then(number_of));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        assert_eq!(file_name(7), "segment-000007.klog");
        for number in [1, 999_999, 1_000_000, u32::MAX] {
            assert_eq!(number_of(&file_name(number)), Some(number));
        }
        let not = ["segment-000000.klog", "segment-7.klog", "segment-+00007.klog", "7.klog"];
        for name in not.iter().chain(&["segment-0000007.klog", "segment-4294967296.klog"]) {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_has_numbers_in_order() {
        let folder = tempfile::tempdir().unwrap();
        assert!(numbers(folder.path()).unwrap().is_empty());
        for name in ["segment-1000000.klog", "segment-000010.klog", "segment-000009.klog", "other"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(numbers(folder.path()).unwrap(), [9, 10, 1_000_000]);
        assert!(numbers(&folder.path().join("none")).is_err());
    }
}
