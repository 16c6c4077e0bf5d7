/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The runtime of klogger.user.h for Rust programs: the same code, called by the crate klogger-user
 * for the slow path. This file adds only what Rust cannot do.
 */
#include "klogger.user.h"

/* For architectures on which Rust cannot read a thread-local variable of C. */
__attribute__((visibility("hidden"))) __u32 klogger_rust_tid(void)
{
	return klogger_context_tid();
}
