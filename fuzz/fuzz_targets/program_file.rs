// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A program's shared file in which anything may be written at any time: no panic, no hang, and
//! what reaches the log is whole records.

#![no_main]

use klogger_engines::user::trial::record_hostile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|deeds: &[u8]| record_hostile(deeds));
