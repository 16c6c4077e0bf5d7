/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The runtime of klogger.user.h for Rust programs: the very same, which the crate klogger-user
 * calls for all that is not on an event's fast path. Here is only what it assumes of C's layouts.
 */
#include "klogger.user.h"

#define AT(type, member, offset)                                  \
	_Static_assert(offsetof(struct type, member) == (offset), \
		       "crates/user/src: " #type "." #member)

AT(klogger_ring, head, 0);
AT(klogger_ring, limit, 8);
AT(klogger_ring, missed, 16);
AT(klogger_ring, hard, 32);
AT(klogger_ring, nest, 40);
AT(klogger_ring, data, 4096 + 2 * 8 * 1024);

AT(klogger_module, mask, 0);
AT(klogger_module, pid, 12);

AT(klogger_thread, ring, 0);
AT(klogger_thread, tid, 20);

AT(klogger_hit, ring, 0);
AT(klogger_hit, time, 8);
AT(klogger_hit, nest, 16);
_Static_assert(sizeof(struct klogger_hit) == 40, "crates/user/src: klogger_hit");

AT(klogger_unit, on, 0);
AT(klogger_unit, base, 8);
AT(klogger_unit, events, 12);
AT(klogger_unit, name, 16);
AT(klogger_unit, text, 24);
AT(klogger_unit, length, 32);
AT(klogger_unit, linked, 36);
AT(klogger_unit, names, 40);
AT(klogger_unit, next, 48);
AT(klogger_unit, runtime, 56);
_Static_assert(sizeof(struct klogger_unit) == 64, "crates/user/src: klogger_unit");

_Static_assert(KLOGGER_EVENTS_MAX == 1024 && KLOGGER_RECORD_MAX == 1024, "crates/user/src: limits");

/* Where Rust cannot read a thread-local variable of C. */
__attribute__((visibility("hidden"))) __u32 klogger_rust_tid(void)
{
	return klogger_context_tid();
}
