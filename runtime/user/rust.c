/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The runtime of klogger.user.h for Rust programs: the very same, which the crate klogger-user
 * calls for all that is not on an event's fast path. Here is only what Rust cannot do.
 */
#include "klogger.user.h"

/* Where Rust cannot read a thread-local variable of C. */
__attribute__((visibility("hidden"))) __u32 klogger_rust_tid(void)
{
	return klogger_context_tid();
}
