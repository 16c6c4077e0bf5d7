/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path of an event: a ring past its low-water mark, full, or missing; and signal handlers.
 */
#ifndef KLOGGER_USER_RESERVE_H
#define KLOGGER_USER_RESERVE_H

#include "primitives.h"
#include "klogger/writer.h"
#include "slot.h"

KLOGGER_C_BEGIN

/*
 * Flight recorder: `limit` is the end of the current part of the grid. The next part is zeroed, so
 * that a record which is never committed has no header word, and its first record is stored
 * (ring.h). A large record may reach over several parts. If the program is killed here, `mark`
 * tells the reader which part may be half zeroed: being_zeroed() in
 * crates/ring/src/reader/round.rs.
 */
KLOGGER_SLOW void *klogger_overwrite(struct klogger_ring *ring, __u32 size)
{
	__u64 part = (klogger_module.mask + 1) >> KLOGGER_GRID_SHIFT;
	__u64 head = KLOGGER_VOLATILE(ring->head), limit = KLOGGER_VOLATILE(ring->limit);
	__u64 first;

	for (; head + size > limit; limit += part) {
		KLOGGER_VOLATILE(ring->mark) = limit;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		memset(&ring->data[limit & klogger_module.mask], 0, part);
		first = head == limit ? head : head + size;
		__atomic_store_n(&ring->first[limit / part & (KLOGGER_GRID - 1)], first,
				 __ATOMIC_RELEASE);
		__atomic_store_n(&ring->limit, limit + part, __ATOMIC_RELEASE);
	}
	KLOGGER_VOLATILE(ring->head) = head + size;
	KLOGGER_VOLATILE(ring->mark) = 0;
	return &ring->data[head & klogger_module.mask];
}

KLOGGER_SLOW void *klogger_reserve_in_ring(struct klogger_ring *ring, __u64 mask, __u64 time,
					   __u32 id, __u32 size)
{
	__s64 at = klogger_reserve_slow_in(ring, mask, time, id, size);

	return at < 0 ? NULL : klogger_at(ring, mask, at);
}

KLOGGER_SLOW void *klogger_reserve_main(struct klogger_ring *ring, __u64 time, __u32 id, __u32 size)
{
	if (klogger_module.control->flight)
		return klogger_overwrite(ring, size);
	return klogger_reserve_in_ring(ring, klogger_module.mask, time, id, size);
}

KLOGGER_SLOW void *klogger_reserve_nested(struct klogger_ring *ring, __u64 time, __u32 id,
					  __u32 size)
{
	struct klogger_ring *nested =
		(struct klogger_ring *)((char *)ring + KLOGGER_RING_BYTES(klogger_module.mask + 1));

	if (!klogger_thread.nested_ready) {
		if (klogger_populate(nested, KLOGGER_RING_BYTES(KLOGGER_NESTED))) {
			klogger_count_lost(ring, time, id);
			return NULL;
		}
		klogger_open_ring(nested, KLOGGER_NESTED, KLOGGER_NESTED / 2);
		klogger_thread.nested_ready = 1;
	}
	return klogger_reserve_in_ring(nested, KLOGGER_NESTED - 1, time, id, size);
}

KLOGGER_SLOW void klogger_lose_ringless(__u32 id)
{
	__u64 *lost;

	if (!klogger_module.control)
		return;
	lost = &klogger_module.rest->lost[id & (KLOGGER_EVENTS_MAX - 1)];
	if (!klogger_populate(lost, sizeof(*lost)))
		__atomic_add_fetch(lost, 1, __ATOMIC_RELAXED);
}

/* Reserves in the thread's main ring, or in its nested one; without a ring the event is lost. */
KLOGGER_SLOW void *klogger_reserve_slow_hit(struct klogger_hit *hit, __u32 id, __u32 size)
{
	struct klogger_ring *ring = *klogger_thread.slow;

	if (!ring)
		ring = klogger_find_ring();
	if (!ring) {
		klogger_lose_ringless(id);
		return NULL;
	}
	hit->nest = KLOGGER_VOLATILE(ring->nest);
	KLOGGER_VOLATILE(ring->nest) = hit->nest + 1;
	klogger_barrier();
	hit->ring = ring;
	hit->time = klogger_module.tsc ? klogger_tsc() : klogger_monotonic();
	if (hit->nest)
		return klogger_reserve_nested(ring, hit->time, id, size);
	return klogger_reserve_main(ring, hit->time, id, size);
}

/* Like klogger_reserve_in(), in any state of the thread. */
KLOGGER_SLOW void *klogger_reserve_slow(struct klogger_hit *hit, __u32 id, __u32 size)
{
	int error = errno;
	void *record = klogger_reserve_slow_hit(hit, id, size);

	errno = error;
	return record;
}

KLOGGER_C_END

#endif
