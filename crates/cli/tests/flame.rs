// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger export --to folded` is read by inferno, which reads what flamegraph.pl does.

use inferno::flamegraph::{self, Options};
use std::collections::BTreeMap;
use std::process::Command;

/// A log with frames of the kernel and of programs, inlined and missing ones, and spaces in names.
const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/logs/stacks.klog");

fn folded() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_klogger"))
        .args(["export", LOG, "--to", "folded", "-o", "-"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The sum of the weights of each path, from the outermost frame on, by the name of its last one:
/// how a flame graph has its boxes.
fn boxes(folded: &str) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for line in folded.lines() {
        let (path, weight) = line.rsplit_once(' ').unwrap();
        let weight: u64 = weight.parse().unwrap();
        let frames: Vec<&str> = path.split(';').collect();
        for depth in 0..=frames.len() {
            *sums.entry(frames[..depth].to_vec()).or_default() += weight;
        }
    }
    let plain = |name: &str| name.trim_end_matches("_[k]").trim_end_matches("_[i]").to_string();
    let name = |path: &[&str]| path.last().map_or("all".into(), |name| plain(name));
    let mut boxes: Vec<_> = sums.iter().map(|(path, sum)| (name(path), *sum)).collect();
    boxes.sort();
    boxes
}

/// Those that inferno has drawn: `<title>NAME (SUM samples, SHARE%)</title>`.
fn drawn(svg: &str) -> Vec<(String, u64)> {
    let of = |title: &str| {
        let (name, rest) = title.rsplit_once(" (")?;
        let name = name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        Some((name, rest.split_once(" samples, ")?.0.replace(',', "").parse().ok()?))
    };
    let titles = svg.split("<title>").skip(1).filter_map(|rest| rest.split_once("</title>"));
    let mut drawn: Vec<_> = titles.filter_map(|(title, _)| of(title)).collect();
    drawn.sort();
    drawn
}

#[test]
fn inferno_draws_each_frame_with_its_sum() {
    let folded = folded();
    let mut options = Options::default();
    options.min_width = 0.0;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg).unwrap();
    let drawn = drawn(std::str::from_utf8(&svg).unwrap());
    assert_eq!(drawn, boxes(&folded));
    assert!(drawn.contains(&("all".into(), 3)), "{drawn:?}");
    for name in ["[unknown]", "[not kept]", "vfs_write", "put", "main"] {
        assert!(drawn.iter().any(|(found, _)| found == name), "{name}: {drawn:?}");
    }
}
