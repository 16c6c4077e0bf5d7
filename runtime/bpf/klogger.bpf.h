/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The BPF engine: the primitives of record.h over array maps which the recorder maps into its
 * memory.
 *
 * Programs run on stock kernels from 6.1 on, which have no arena: a CPU's ring is one element of an
 * array. Everything that the recorder decides before loading is in read-only data, which lets the
 * verifier remove the branches not taken.
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
#include "scope.h"
#include "names.h"
#include "slow.h"
#include "copies.h"
#include "calls.h"
#include "read.h"
#include "user.h"
#include "user_stack.h"
#include "otel.h"
#include "namespaces.h"
#include "libc.h"
#include "objects.h"

/*
 * One probe hit. The clock is read and the ring looked up for the first event that is on and in
 * scope.
 */
struct klogger_hit {
	struct klogger_ring *ring;	/* the main ring of this CPU */
	__u64 time;
	__u64 nest;			/* hits that this one interrupted */
	__u32 base;
	__u32 shared;			/* another thread may log here before this hit ends */
#if defined(KLOGGER_STACKS) || defined(KLOGGER_USER_STACKS)
	void *context;			/* of the program, for `context stack` and `user_stack` */
	__u8 deep;			/* a sample: its user stack may be deep */
#endif
#ifdef KLOGGER_OTEL
	struct klogger_otel otel;
#endif
	__u8 lists;			/* the program of an iterator: see list.h */
	__u8 owned;			/* whether the owner of the object is being recorded */
};

/*
 * The first event of a probe hit: looks up the ring, then reads the clock. In this order, so that
 * main rings are sorted.
 */
static __always_inline void klogger_enter(struct klogger_hit *hit)
{
	if (hit->shared) {
		/* As a nested hit, but `nest` is not its own to change: see below. */
		hit->nest = 1;
		hit->time = bpf_ktime_get_ns();
		hit->base = klogger_config.base;
		return;
	}
	hit->ring = klogger_this_ring();
	if (likely(hit->ring)) {
		hit->nest = READ_ONCE(hit->ring->nest);
		WRITE_ONCE(hit->ring->nest, hit->nest + 1);
	}
	barrier();
	hit->time = bpf_ktime_get_ns();
	hit->base = klogger_config.base;
}

/*
 * For bodies: the time of the events of this hit, in ns. So the clock is read once for what a body
 * computes and for the events.
 */
#define klogger_time()                             \
	({                                         \
		if (!klogger_hit->time)            \
			klogger_enter(klogger_hit); \
		klogger_hit->time;                 \
	})

/* Called after a hit has logged its events. */
static __always_inline void klogger_leave(struct klogger_hit *hit)
{
	barrier();
	if (hit->ring)
		WRITE_ONCE(hit->ring->nest, hit->nest);
}

/*
 * The beginning of every program; returns 0 if there is nothing to do. Since Linux 7 a tracepoint's
 * programs can be preempted, also by threads that hit probes on this CPU. But a nested hit must
 * return before the interrupted one continues (see ring.h), and schemata keep state by CPU. So
 * preemption is off until the end of the program.
 */
static __always_inline int klogger_begin(void *arguments, __u32 probe)
{
	__u8 beginning = klogger_config.beginning;

	/* In this order, the first two cases take one load and no other instruction. */
	if (beginning == KLOGGER_AT_ONCE)
		return 1;
	if (beginning != KLOGGER_PREEMPTED) {
		klogger_choose_current();
		if (!klogger_config.preempt)
			return 1;
	}
	if (klogger_config.copy && klogger_was_served(arguments, klogger_config.probes + probe))
		return 0;
	bpf_preempt_disable();
	return 1;
}

/*
 * The end of every program. The kernel skips a program on a CPU on which it has not returned yet,
 * so this comes last.
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
 * The same for programs that run with preemption on, on every kernel that preempts. Before 6.11
 * they cannot disable preemption. A thread that preempts another one in such a program would be a
 * nested hit that does not return first. So such a hit never touches the main ring or `nest`: it
 * logs to the nested ring, whose writers share it by compare-and-swap (writer.h). Migration is off
 * in all programs, so that these writers are on one CPU.
 */
static __always_inline int klogger_begin_preempted(struct klogger_hit *hit, void *arguments,
						   __u32 probe)
{
	if (klogger_config.beginning & KLOGGER_CHOOSES)
		klogger_choose_current();
	if (klogger_config.copy && klogger_was_served(arguments, klogger_config.probes + probe))
		return 0;
	if (klogger_config.preemption == KLOGGER_HELD_OFF)
		bpf_preempt_disable();
	else if (klogger_config.preemption == KLOGGER_SHARED)
		hit->shared = 1;
	return 1;
}

static __always_inline void klogger_end_preempted(struct klogger_hit *hit, void *arguments,
						  __u32 probe)
{
	klogger_leave(hit);
	if (klogger_config.preempt)
		klogger_served(arguments, klogger_config.probes + probe);
	if (klogger_config.preemption == KLOGGER_HELD_OFF)
		bpf_preempt_enable();
}

/*
 * `size` bytes, a multiple of 8, at the writers' position; or NULL: the event is lost and was
 * counted. The load of `limit`, or of `hard`, pairs with the drain's release store after zeroing:
 * the writer's stores depend on its value. Between the load and the store of `head` no other writer
 * uses this ring: see ring.h.
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
	 * In this order: `head` and `klogger_config.mask` have the same offset in their pages, and
	 * a load after a store whose address has the same lowest 12 bits is delayed until the CPU
	 * finds out that they differ.
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

#include "list.h"
#include "triggers.h"

char LICENSE[] SEC("license") = "GPL";

#endif
