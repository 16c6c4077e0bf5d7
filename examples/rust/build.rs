// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
fn main() {
    klogger_user_build::schema("example.klogger");
    // For the tests: every type.
    klogger_user_build::schema("../../tests/golden/rust/words.klogger");
}
