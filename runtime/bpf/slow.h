/* SPDX-License-Identifier: GPL-2.0-only */
/* The slow path of an event: the protocol of writer.h over a CPU's rings. */
#ifndef KLOGGER_BPF_SLOW_H
#define KLOGGER_BPF_SLOW_H

#include <klogger/ring.h>
#include <klogger/record.h>
#include "maps.h"

/*
 * Stores the header word after the fields. Pairs with the acquire load in the recorder's drain. x86
 * keeps stores in order, so a compiler barrier suffices; elsewhere an exchange is the only full
 * barrier that BPF has on all kernels.
 */
static __always_inline void klogger_publish(__u64 *header, __u64 value)
{
#if defined(__TARGET_ARCH_x86)
	barrier();
	WRITE_ONCE(*header, value);
#else
	__sync_lock_test_and_set(header, value);
#endif
}

static __always_inline struct klogger_ring *klogger_this_ring(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&klogger_rings, &cpu);
}

static __always_inline struct klogger_ring *klogger_this_nested(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&klogger_nested, &cpu);
}

/* The kinds of a CPU's rings, which determine their size and mode. */
enum klogger_kind { KLOGGER_MAIN, KLOGGER_INNER, KLOGGER_LARGER };

static __always_inline void *klogger_data(struct klogger_ring *ring, enum klogger_kind kind,
					  __u64 at)
{
	return &ring->data[at & (kind == KLOGGER_MAIN  ? klogger_config.mask :
				 kind == KLOGGER_INNER ? KLOGGER_NESTED - 1 :
							 klogger_config.larger_mask)];
}

/*
 * A wake-up that finds no space is not needed: the drain thread has not handled earlier ones yet.
 */
static __always_inline void klogger_wake_drain(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	bpf_ringbuf_output(&klogger_calls, &cpu, sizeof(cpu), 2 /* BPF_RB_FORCE_WAKEUP */);
}

/* ---- The primitives of writer.h ---- */

typedef enum klogger_kind klogger_geometry;

#define KLOGGER_WRITER static __always_inline
/* The verifier needs a bound. An attempt fails only if an interrupt logged in between. */
#define KLOGGER_CLAIM_TRIES 16
#define klogger_at klogger_data
#define klogger_part_shift(kind)                                             \
	((kind) == KLOGGER_INNER ? KLOGGER_NESTED_SHIFT - KLOGGER_GRID_SHIFT \
				 : klogger_config.grid_shift & 31)
#define klogger_overwrites() klogger_config.overwrite
#define klogger_load(x) READ_ONCE(x)
#define klogger_set(x, value) WRITE_ONCE(x, value)
#define klogger_load_hard(ring) READ_ONCE((ring)->hard)
#define klogger_swap(p, old, new) __sync_val_compare_and_swap(p, old, new)
#define klogger_swap_shared(p, old, new) __sync_val_compare_and_swap(p, old, new)
#define klogger_exchange(p, new) __sync_lock_test_and_set(p, new)
#define klogger_add(p, n) __sync_fetch_and_add(p, n)
#define klogger_wake_reader(ring) klogger_wake_drain()
#define klogger_on_loss(time) ((void)(time))

#include <klogger/writer.h>

/* ---- Choice of the ring ---- */

/* Main rings have one writer at a time, and so has this one, which replaces a main ring. */
static __always_inline __s64 klogger_claim_larger(struct klogger_ring *ring, __u64 time, __u32 id,
						  __u32 size)
{
	__u64 head = READ_ONCE(ring->head), end = head + size;

	if (unlikely(READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit)))
		return klogger_reserve_slow_in(ring, KLOGGER_LARGER, time, id, size);
	WRITE_ONCE(ring->head, end);
	return head;
}

static __always_inline void *klogger_reserve_larger(__u64 time, __u32 id, __u32 size)
{
	__u32 cpu = bpf_get_smp_processor_id(), first = 0;
	void *map = bpf_map_lookup_elem(&klogger_larger, &cpu);
	struct klogger_ring *ring;
	__s64 at;

	/* It always exists here, but the verifier cannot know that. */
	if (!map)
		return NULL;
	ring = bpf_map_lookup_elem(map, &first);
	if (!ring)
		return NULL;
	at = klogger_claim_larger(ring, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_LARGER, at);
}

/* For a nested hit. */
static __always_inline void *klogger_reserve_nested(__u64 time, __u32 id, __u32 size)
{
	struct klogger_ring *ring = klogger_this_nested();
	__s64 at;

	if (!ring)
		return NULL;
	at = klogger_reserve_slow_in(ring, KLOGGER_INNER, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_INNER, at);
}

/*
 * Everything that is rare: there is no ring, it was replaced by a larger one, the hit is nested, or
 * the ring has passed its low-water mark. One function out of line, which looks up the ring again,
 * so that the fast path keeps its registers.
 */
static __noinline void *klogger_reserve_slow(__u64 time, __u64 nest, __u32 id, __u32 size)
{
	struct klogger_ring *ring = klogger_this_ring();
	__s64 at;

	if (!ring) {
		klogger_add(&klogger_ringless[id & (KLOGGER_EVENTS_MAX - 1)], 1);
		return NULL;
	}
	if (nest)
		return klogger_reserve_nested(time, id, size);
	/* Rings do not grow in overwrite mode, where `attempts` would have to be counted here. */
	if (klogger_config.larger_mask && !READ_ONCE(ring->limit) && READ_ONCE(ring->mask))
		return klogger_reserve_larger(time, id, size);
	at = klogger_reserve_slow_in(ring, KLOGGER_MAIN, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_MAIN, at);
}

#endif
