/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs of iterators, which the kernel runs for each object that exists, while the recorder
 * reads the iterator.
 *
 * The running thread is the recorder. So an event without a scope belongs to the owner of the
 * object. A list can be longer than a ring: when the ring has passed its low-water mark, the
 * program writes one byte, which ends the recorder's read(). The recorder waits until the rings are
 * empty, and reads on.
 */
#ifndef KLOGGER_BPF_LIST_H
#define KLOGGER_BPF_LIST_H

#include "slow.h"

struct seq_file;

struct bpf_iter_meta___klogger {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

/* In other programs `lists` is the constant 0. */
static __always_inline int klogger_in_scope_of(struct klogger_hit *hit)
{
	return hit->lists ? hit->owned : klogger_in_scope_current();
}

#define klogger_in_scope_current() klogger_in_scope_of(klogger_hit)

/* The ring of this CPU's events that are not nested. */
static __always_inline struct klogger_ring *klogger_ring_in_use(void)
{
	struct klogger_ring *ring = klogger_this_ring();
	__u32 cpu = bpf_get_smp_processor_id(), first = 0;
	void *map;

	if (!ring || !klogger_config.larger_mask || READ_ONCE(ring->limit) ||
	    !READ_ONCE(ring->mask))
		return ring;
	map = bpf_map_lookup_elem(&klogger_larger, &cpu);
	return map ? bpf_map_lookup_elem(map, &first) : NULL;
}

/* At the end of the program: lets the recorder empty the rings, if this one needs it. */
static __always_inline void klogger_make_room(struct klogger_hit *hit,
					      unsigned long long *arguments)
{
	struct bpf_iter_meta___klogger *meta = (void *)arguments[0];
	struct klogger_ring *ring;
	char pause = 0;

	if (!hit->time || klogger_config.overwrite)
		return;
	ring = hit->shared ? klogger_this_nested() : klogger_ring_in_use();
	if (ring && READ_ONCE(ring->limit) >= READ_ONCE(ring->hard))
		bpf_seq_write(meta->seq, &pause, sizeof(pause));
}

#endif
