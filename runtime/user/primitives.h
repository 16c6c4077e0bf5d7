/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The primitives of klogger/writer.h in a program. */
#ifndef KLOGGER_USER_PRIMITIVES_H
#define KLOGGER_USER_PRIMITIVES_H

#include "event.h"

KLOGGER_C_BEGIN

/* The recorder's drain thread waits with this futex. */
KLOGGER_SLOW void klogger_wake_recorder(void)
{
	__u32 *call = &klogger_module.control->call;

	__atomic_add_fetch(call, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, call, KLOGGER_FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * Called after an event was lost. If the recorder is dead, the ring will not be drained: all events
 * are switched off, so that they cost nothing more, and the next recorder switches them on again.
 * Pairs with the next recorder's exchange of `abandoned`.
 */
KLOGGER_SLOW void klogger_give_up(struct klogger_control *control, __u64 time)
{
	__u32 died = KLOGGER_KEEPER_DIED;

	if (!__atomic_compare_exchange_n(&control->keeper, &died, 0, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return;
	memset(control->on, 0, sizeof(control->on));
	__atomic_store_n(&control->abandoned, time, __ATOMIC_RELEASE);
}

/* Size of the ring - 1. */
typedef __u64 klogger_geometry;

/* Called by a few functions that exist once for each module, and inlined into them. */
#define KLOGGER_WRITER static inline __attribute__((unused))
#define KLOGGER_CLAIM_TRIES (~0u)
#define klogger_at(ring, mask, position) (&(ring)->data[(position) & (mask)])
#define klogger_part_shift(mask) (63 - __builtin_clzll((mask) + 1) - KLOGGER_GRID_SHIFT)
/*
 * A flight recorder prepares the parts of the grid before it fills them: klogger_overwrite() in
 * reserve.h.
 */
#define klogger_overwrites() 0
#define klogger_load(x) KLOGGER_VOLATILE(x)
#define klogger_set(x, value) (KLOGGER_VOLATILE(x) = (value))
#define klogger_load_hard(ring) __atomic_load_n(&(ring)->hard, __ATOMIC_ACQUIRE)
#define klogger_swap(p, old, new) __sync_val_compare_and_swap(p, old, new)
#define klogger_swap_shared(p, old, new) __sync_val_compare_and_swap(p, old, new)
#define klogger_exchange(p, new) __atomic_exchange_n(p, new, __ATOMIC_RELAXED)
#define klogger_add(p, n) ((void)__atomic_add_fetch(p, n, __ATOMIC_RELAXED))
#define klogger_wake_reader(ring) klogger_wake_recorder()
#define klogger_on_loss(time)                                                                   \
	do {                                                                                    \
		if (klogger_unlikely(klogger_load(klogger_module.control->keeper) &             \
				     KLOGGER_KEEPER_DIED))                                      \
			klogger_give_up(klogger_module.control, time);                          \
	} while (0)

KLOGGER_C_END

#endif
