// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The events of a small server; also a shared library, for programs that open it.

#![deny(warnings)]

use klogger_user::klogger;

klogger_user::schema!("example");

/// Serves one request.
pub fn serve(id: u64, path: &str) {
    klogger!(REQUEST, id, path.len() as u32);
    let cached = id.is_multiple_of(2);
    klogger!(REPLY, id, 0, cached, path);
}

/// Two integers: what an event costs.
#[inline(never)]
pub fn request(id: u64, length: u32) {
    klogger!(REQUEST, id, length);
}

/// For C: serves this many requests.
#[unsafe(no_mangle)]
pub extern "C" fn example_serve(requests: u64) {
    (0..requests).for_each(|id| serve(id, "/index.html"));
}
