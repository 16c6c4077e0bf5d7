// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Takes the offsets and numbers that recorders and writers share from the C headers.

use klogger_c_layout::Headers;

fn main() {
    Headers {
        headers: &["klogger/ring.h", "klogger/program_shm.h", "klogger/device.h", "bpf/config.h"],
        folders: &["../../runtime/include", "../../runtime"],
        defines: &[],
    }
    .fill("src/layout.rs.in");
}
