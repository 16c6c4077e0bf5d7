/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Gives a thread a slot of the shared file, and takes it back. */
#ifndef KLOGGER_USER_SLOT_H
#define KLOGGER_USER_SLOT_H

#include "module.h"
#include "event.h"

KLOGGER_C_BEGIN

/*
 * Allocates memory in advance: a store to a page that a full /dev/shm cannot provide would raise
 * SIGBUS.
 */
KLOGGER_SLOW int klogger_populate(void *from, size_t length)
{
	size_t before = (size_t)from & (klogger_module.page - 1);

	return (int)syscall(SYS_madvise, (char *)from - before, length + before,
			    KLOGGER_MADV_POPULATE_WRITE);
}

static inline void klogger_open_ring(struct klogger_ring *ring, __u64 size, __u64 limit)
{
	if (ring->hard)
		return;		/* positions run on from the last use */
	KLOGGER_VOLATILE(ring->hard) = size;
	KLOGGER_VOLATILE(ring->limit) = limit;
}

/*
 * Whether the slot is free for a new thread. Pairs with the recorder's release store of `emptied`.
 */
KLOGGER_SLOW int klogger_slot_is_free(struct klogger_slot *slot, __u32 use, __u32 armed)
{
	if (use & 1)
		return 0;
	return !armed || __atomic_load_n(&slot->emptied, __ATOMIC_ACQUIRE) == use;
}

/* Unused slots are not accessible, because otherwise mlockall() would allocate all of them. */
KLOGGER_SLOW int klogger_reach_slot(__u32 number)
{
	const struct klogger_control *control = klogger_module.control;
	char *slot = klogger_module.slots + number * control->slot_stride;
	size_t before = (size_t)slot & (klogger_module.page - 1);

	return (int)syscall(SYS_mprotect, slot - before, control->slot_stride + before,
			    PROT_READ | PROT_WRITE);
}

KLOGGER_SLOW struct klogger_ring *klogger_open_slot(__u32 number)
{
	const struct klogger_control *control = klogger_module.control;
	struct klogger_ring *ring =
		(struct klogger_ring *)(klogger_module.slots + number * control->slot_stride);
	__u64 size = klogger_module.mask + 1, *lost = klogger_module.rest->lost;

	/*
	 * Counters first: if the ring does not fit into a full /dev/shm, its losses are still
	 * counted.
	 */
	if (klogger_reach_slot(number) ||
	    klogger_populate(lost, KLOGGER_EVENTS_MAX * sizeof(*lost)) ||
	    klogger_populate(ring, KLOGGER_RING_BYTES(size)))
		return NULL;
	klogger_open_ring(ring, control->flight ? ~0ull : size,
			  control->flight ? size >> KLOGGER_GRID_SHIFT : size / 2);
	KLOGGER_VOLATILE(ring->nest) = 0;
	return ring;
}

/* Takes the first free slot; -1 if there is none. */
KLOGGER_SLOW int klogger_take_slot(void)
{
	struct klogger_control *control = klogger_module.control;
	__u32 armed = KLOGGER_VOLATILE(control->armed), i, use;
	__u32 allowed = armed ? KLOGGER_VOLATILE(control->slots_allowed) : control->slots;

	for (i = 0; i < allowed && i < control->slots; i++) {
		struct klogger_slot *slot = &klogger_module.rest->slot[i];

		if (i % (4096 / sizeof(*slot)) == 0 && klogger_populate(slot, sizeof(*slot)))
			break;
		use = __atomic_load_n(&slot->use, __ATOMIC_ACQUIRE);
		if (klogger_slot_is_free(slot, use, armed) &&
		    __atomic_compare_exchange_n(&slot->use, &use, use + 1, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			KLOGGER_VOLATILE(slot->tid) = klogger_thread.tid;
			return (int)i;
		}
	}
	errno = ENOMEM;
	return -1;
}

/*
 * The destructor of a key, at the end of a thread; events that the thread logs after it take
 * another slot.
 */
KLOGGER_SLOW void klogger_end_thread(void *unused)
{
	__u32 number = klogger_thread.slot;

	(void)unused;
	if (!number)
		return;
	klogger_thread.ring = klogger_thread.slow = &klogger_no_ring;
	klogger_thread.slot = 0;
	klogger_barrier();
	klogger_module.cells[number - 1] = NULL;
	/* Pairs with the recorder's acquire load: all records of this use are in the ring. */
	__atomic_add_fetch(&klogger_module.rest->slot[number - 1].use, 1, __ATOMIC_RELEASE);
}

KLOGGER_SLOW struct klogger_ring *klogger_get_ring(void)
{
	struct klogger_ring *ring;
	int number;

	klogger_thread.tid = (__u32)syscall(SYS_gettid);
	number = klogger_take_slot();
	if (number < 0)
		return NULL;
	ring = klogger_open_slot((__u32)number);
	if (!ring) {
		__atomic_add_fetch(&klogger_module.rest->slot[number].use, 1, __ATOMIC_RELEASE);
		return NULL;
	}
	__atomic_store_n(&klogger_module.used, 1, __ATOMIC_RELAXED);
	klogger_module.cells[number] = ring;
	klogger_thread.nested_ready = 0;
	klogger_thread.slot = (__u32)number + 1;
	klogger_thread.slow = &klogger_module.cells[number];
	if (klogger_module.tsc)
		klogger_thread.ring = klogger_thread.slow;
	if (klogger_module.has_key)
		pthread_setspecific(klogger_module.key, &klogger_module);
	return ring;
}

void klogger_forked(int off);

KLOGGER_SLOW int klogger_has_forked(void)
{
	return !*klogger_module.same;
}

/* If there was no slot, the thread looks again after 100 events, 200, 400, ... 25600. */
KLOGGER_SLOW struct klogger_ring *klogger_look_for_ring(void)
{
	struct klogger_ring *ring = *klogger_thread.slow;

	/* A signal handler has found one meanwhile. */
	if (ring)
		return ring;
	/* A child of vfork() shares its parent's memory, but has none of its threads. */
	if (klogger_module.pid != (__u32)syscall(SYS_getpid))
		return NULL;
	if (klogger_thread.patience) {
		klogger_thread.patience--;
		return NULL;
	}
	ring = klogger_get_ring();
	if (!ring) {
		__atomic_store_n(&klogger_module.control->failed, (__u32)errno, __ATOMIC_RELAXED);
		klogger_thread.patience = 100u << (klogger_thread.looks++ & 7);
	}
	return ring;
}

/*
 * The thread has no ring: it is new, or the process forked without libc, or there was no free slot.
 */
KLOGGER_SLOW struct klogger_ring *klogger_find_ring(void)
{
	struct klogger_ring *ring;

	if (klogger_thread.busy || !klogger_module.control)
		return NULL;
	klogger_thread.busy = 1;
	klogger_barrier();
	if (klogger_has_forked())
		klogger_forked(0);
	ring = klogger_look_for_ring();
	klogger_barrier();
	klogger_thread.busy = 0;
	return ring;
}

KLOGGER_C_END

#endif
