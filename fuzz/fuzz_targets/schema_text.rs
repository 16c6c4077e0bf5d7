// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any text as a schema: no panic, no hang, and each diagnostic points into the text.

#![no_main]

use klogger_schema::model::Span;
use klogger_schema::{Options, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let pointed = |span: Span| assert!(text.get(span.start..span.end).is_some(), "{span:?}");
    match parse("fuzz.klogger", text, &Options::default()) {
        Ok(parsed) => {
            parsed.warnings.iter().for_each(|d| pointed(d.span));
            for block in parsed.schema.probes.iter().map(|p| &p.body).chain(&parsed.schema.code) {
                pointed(block.span);
            }
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for d in &errors {
                pointed(d.span);
                d.related.iter().for_each(|(span, _)| pointed(*span));
            }
        }
    }
});
