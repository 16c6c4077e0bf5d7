// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any text as a filter, and as a trigger: no panic, no hang, and what is accepted is read again
//! from what a log has of it.

#![no_main]

use klogger_log::filter::parse::parse;
use klogger_log::{filter, trigger};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(at) = parse(text) {
        assert!(text.get(at..).is_some(), "{at}");
        assert!(!filter::parsed(text).unwrap_err().message.is_empty());
    }
    match trigger::parse(text) {
        Ok(found) => assert_eq!(trigger::parse(&found.text).as_ref(), Ok(&found)),
        Err(error) => assert!(!error.message.is_empty() && !error.help.is_empty()),
    }
});
