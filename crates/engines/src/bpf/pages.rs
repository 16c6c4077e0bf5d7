// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where the kernel has the structures of its pages, for `klogger_page_pfn()`: the variable
//! `vmemmap_base` says it. Where the kernel hides the addresses of variables (without
//! CONFIG_KALLSYMS_ALL), the place is still known if all structures fit into one GiB, because they
//! begin at a multiple of that (`kernel_randomize_memory()`).

use klogger_codegen::KernelTypes;
use klogger_codegen::bpf::names;
use klogger_os::{Error, machine};
use klogger_ring::layout::bpf as layout;
use klogger_schema::model::Schema;
use std::fs;

const ASKED: &str = "klogger_page_pfn";

/// `vmemmap` of the configuration; 0 if no schema asks for it.
pub fn vmemmap<'a>(
    mut schemata: impl Iterator<Item = &'a Schema>,
    types: &KernelTypes,
) -> Result<u64, Error> {
    let Some(schema) = schemata.find(|schema| names(schema, ASKED)) else { return Ok(0) };
    let refused = |why: &str| {
        let what = format!("schema {}: {ASKED}() does not know where pages begin", schema.name);
        Err(Error::new(format!("{what}: {why}")).help("log the address of the page, as ulong"))
    };
    if cfg!(not(target_arch = "x86_64")) {
        return refused("on this architecture it is a constant of the kernel's configuration");
    }
    let symbols = machine::all_symbols();
    let mut known = machine::symbols_in(&symbols);
    let known = known.find(|(at, name)| *at != 0 && *name == "vmemmap_base");
    if let Some((address, _)) = known {
        return Ok(address);
    }
    let path = "/proc/zoneinfo";
    let zones = match fs::read_to_string(path) {
        Ok(zones) => zones,
        Err(e) => return refused(&format!("cannot read {path}: {e}")),
    };
    match (pages_in(&zones), types.size_of_struct("page")) {
        (Some(pages), Some(size)) if fits(pages, size) => Ok(layout::VMEMMAP_ALIGNED),
        _ => refused("the kernel hides the address of 'vmemmap_base', and has too many pages"),
    }
}

/// Whether the structures of so many pages, each of `size` bytes, are within their first GiB.
fn fits(pages: u64, size: u32) -> bool {
    pages.checked_mul(u64::from(size)).is_some_and(|bytes| bytes <= layout::VMEMMAP_ALIGNMENT)
}

/// The number after that of the last page, in the text of /proc/zoneinfo.
fn pages_in(zoneinfo: &str) -> Option<u64> {
    let (mut spanned, mut most) = (0, None);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        let (word, number) = (words.next(), words.next().and_then(|n| n.parse::<u64>().ok()));
        match (word, number) {
            (Some("spanned"), Some(n)) => spanned = n,
            (Some("start_pfn:"), Some(n)) => most = most.max(n.checked_add(spanned)),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_is_that_of_the_highest_zone() {
        let text = "Node 0, zone    DMA\n        spanned  4095\n        present  3998\n  \
                    start_pfn:           1\nNode 0, zone  Normal\n        spanned  5505024\n  \
                    start_pfn:           1048576\nNode 0, zone Device\n        spanned  0\n  \
                    start_pfn:           0\n";
        assert_eq!(pages_in(text), Some(6_553_600));
        assert_eq!(pages_in(""), None);
    }

    #[test]
    fn a_gib_has_the_structures_of_64_gib() {
        assert!(fits(16 << 20, 64) && !fits((16 << 20) + 1, 64) && !fits(u64::MAX, 64));
    }
}
