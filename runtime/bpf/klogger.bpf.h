/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The BPF engine: the primitives of record.h over array maps which the recorder maps into its
 * memory.
 *
 * Programs run on stock kernels from 6.1 on, so there is no arena: a CPU's ring is one element of
 * an array. Everything that the recorder decides before loading is in read-only data, which lets
 * the verifier remove the branches not taken.
 */
#ifndef KLOGGER_BPF_H
#define KLOGGER_BPF_H

#include <klogger/types.h>
#include <klogger/ring.h>
#include <klogger/record.h>
#include "helpers.h"
#include "kernel.h"
#include "config.h"
#include "maps.h"
#include "filter.h"
#include "slow.h"
#include "copies.h"
#include "read.h"

/*
 * One probe hit. The clock is read and the ring looked up at the first event that is enabled and in
 * scope.
 */
struct klogger_hit {
	struct klogger_ring *ring;	/* the main ring of this CPU */
	__u64 time;
	__u64 nest;			/* hits that this one interrupted */
	__u32 base;
};

/*
 * The first event of a probe hit: which ring is it, and what is the time? In this order, so that
 * main rings are sorted.
 */
static __always_inline void klogger_enter(struct klogger_hit *hit)
{
	hit->ring = klogger_this_ring();
	if (likely(hit->ring)) {
		hit->nest = READ_ONCE(hit->ring->nest);
		WRITE_ONCE(hit->ring->nest, hit->nest + 1);
	}
	barrier();
	hit->time = bpf_ktime_get_ns();
	hit->base = klogger_config.base;
}

/* When a hit has logged all that it had to. */
static __always_inline void klogger_leave(struct klogger_hit *hit)
{
	barrier();
	if (hit->ring)
		WRITE_ONCE(hit->ring->nest, hit->nest);
}

/*
 * The beginning of every program: 0 if there is nothing left to do. Since Linux 7 a tracepoint's
 * programs can be preempted, by threads that hit probes on this CPU as well; but whoever interrupts
 * a hit must return before it goes on (see ring.h), and schemata keep state by CPU. So threads wait
 * until the end.
 */
static __always_inline int klogger_begin(void *arguments, __u32 probe)
{
	if (!klogger_config.preempt)
		return 1;
	if (klogger_config.copy && klogger_was_served(arguments, klogger_config.probes + probe))
		return 0;
	bpf_preempt_disable();
	return 1;
}

/*
 * The end. The kernel lets no program run on a CPU where the same one has not returned yet, so this
 * is the last thing.
 */
static __always_inline void klogger_end(struct klogger_hit *hit, void *arguments, __u32 probe)
{
	klogger_leave(hit);
	if (!klogger_config.preempt)
		return;
	klogger_served(arguments, klogger_config.probes + probe);
	bpf_preempt_enable();
}

/*
 * `size` bytes, a multiple of 8, at the writers' position, or NULL: the event is lost and has been
 * counted. The load of `limit`, or of `hard`, pairs with the drain's release store after zeroing:
 * the writer's stores depend on its value. Nobody interrupts between the load and the store of
 * `head` who would use them: see ring.h.
 */
static __always_inline void *klogger_reserve(struct klogger_hit *hit, __u32 index, __u32 size)
{
	struct klogger_ring *ring;
	__u64 head, end;
	void *data;

	if (!hit->time)
		klogger_enter(hit);
	ring = hit->ring;
	if (unlikely(!ring || hit->nest))
		goto slow;
	head = READ_ONCE(ring->head);
	end = head + size;
	if (unlikely(READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit)))
		goto slow;
	/*
	 * In this order: `head` and `klogger_config.mask` have the same place in their pages, and a
	 * CPU that sees a load after a store with the same lowest 12 bits of the address takes its
	 * time to find out that they are not the same.
	 */
	data = klogger_data(ring, KLOGGER_MAIN, head);
	WRITE_ONCE(ring->head, end);
	if (klogger_config.overwrite) {
		klogger_count_attempt(ring, hit->base + index);
		klogger_note_first(ring, KLOGGER_MAIN, head, end);
	}
	return data;
slow:
	return klogger_reserve_slow(hit->time, hit->nest, hit->base + index, size);
}

static __always_inline void klogger_commit(struct klogger_hit *hit, void *record, __u32 index)
{
	klogger_publish(record, KLOGGER_HEADER(hit->time, hit->base + index));
}

char LICENSE[] SEC("license") = "GPL";

#endif
