/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Triggers: an event whose condition holds counts a hit, logs TRIGGERED after itself, and wakes the
 * recorder. Only in objects of schemata with triggers.
 */
#ifndef KLOGGER_BPF_TRIGGERS_H
#define KLOGGER_BPF_TRIGGERS_H

#ifdef KLOGGER_TRIGGERS

#include "slow.h"

/* By the number of a trigger, on each CPU that has rings; shared by all objects. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_fired) * KLOGGER_TRIGGERS_MAX];
} klogger_fired SEC(".maps");

/* The record of TRIGGERED in klogger.klogger. */
struct klogger_triggered {
	__u64 header;
	__u16 trigger;
	__u16 id;
	__u32 unused;
};
_Static_assert(sizeof(struct klogger_triggered) == 16, "size of a TRIGGERED record");

/*
 * The recorder is woken at once, but by one CPU and one trigger not more than once in so many ns.
 * It looks by itself after some hundredths of a second.
 */
#define KLOGGER_WAKE_AGAIN 1000000

/* Counts a hit. Returns whether the recorder is to be woken. */
static __always_inline int klogger_count_fired(__u64 time, __u32 trigger)
{
	__u32 cpu = bpf_get_smp_processor_id(), first = 0;
	struct klogger_fired *fired = bpf_map_lookup_elem(&klogger_fired, &cpu);

	/* A CPU without rings, whose hits are among those of the first one. */
	if (!fired)
		fired = bpf_map_lookup_elem(&klogger_fired, &first);
	if (!fired)
		return 0;
	/*
	 * The compiler knows the numbers of all callers, and would omit what bounds them for the
	 * verifier, which may not: clang computes them from a field that is compared with 1, 2, 3.
	 */
	asm volatile("" : "+r"(trigger));
	fired += trigger & (KLOGGER_TRIGGERS_MAX - 1);
	if (!READ_ONCE(fired->hits))
		WRITE_ONCE(fired->first, time);
	WRITE_ONCE(fired->last, time);
	__sync_fetch_and_add(&fired->hits, 1);
	if (time - READ_ONCE(fired->woken) < KLOGGER_WAKE_AGAIN)
		return 0;
	WRITE_ONCE(fired->woken, time);
	return 1;
}

/*
 * Out of line, so that an event that fires nothing keeps its registers. Of the hit only values are
 * passed, for the same reason.
 */
static __noinline void klogger_fire_slow(__u64 time, __u64 nest, __u32 trigger, __u32 id)
{
	int wake = klogger_count_fired(time, trigger - 1);
	struct klogger_triggered *record =
		klogger_reserve_slow(time, nest, KLOGGER_TRIGGERED_ID, sizeof(*record));

	if (record) {
		record->trigger = trigger;
		record->id = id;
		klogger_publish(&record->header, KLOGGER_HEADER(time, KLOGGER_TRIGGERED_ID));
	}
	if (wake)
		klogger_wake_drain();
}

#define klogger_fire(hit, trigger, index) \
	klogger_fire_slow((hit)->time, (hit)->nest, trigger, (hit)->base + (index))

#endif
#endif
