/* SPDX-License-Identifier: GPL-2.0-only */
/* Decides which events are logged: by state, scope, CPU and rate limit. */
#ifndef KLOGGER_BPF_FILTER_H
#define KLOGGER_BPF_FILTER_H

#include "maps.h"

static __always_inline void klogger_leave_out(struct klogger_left_out *left, __u64 time)
{
	if (!READ_ONCE(left->count))
		WRITE_ONCE(left->first, time);
	WRITE_ONCE(left->last, time);
	__sync_fetch_and_add(&left->count, 1);
}

/*
 * Checks the rate limit of an event; if it is exceeded, counts the event as left out. On a CPU
 * without rings the event is lost in any case, and counted as lost.
 */
static __always_inline int klogger_take_turn(__u32 id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct klogger_left_out *left = bpf_map_lookup_elem(&klogger_left, &cpu);
	struct klogger_rate *rate = &klogger_rates[id & (KLOGGER_EVENTS_MAX - 1)];
	__u64 time = bpf_ktime_get_ns(), now = time << 4;

	if (!left)
		return 1;
	/*
	 * A program that fails so often competes with others that succeed, so the allowed rate is
	 * used up.
	 */
	for (int i = 0; i < 16; i++) {
		__u64 due = READ_ONCE(rate->due), at = due > now ? due : now;

		if (at - now > rate->ahead)
			break;
		if (__sync_val_compare_and_swap(&rate->due, due, at + rate->step) == due)
			return 1;
	}
	klogger_leave_out(&left[id & (KLOGGER_EVENTS_MAX - 1)], time);
	return 0;
}

static __always_inline int klogger_is_on_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return klogger_config.cpus[cpu / 64 & (KLOGGER_CPUS_MAX / 64 - 1)] >> (cpu & 63) & 1;
}

/* For events that are neither off nor simply on. */
static __noinline int klogger_admit(__u32 index, __u32 state)
{
	if (state & KLOGGER_SOME_CPUS && !klogger_is_on_this_cpu())
		return 0;
	return !(state & KLOGGER_LIMITED) || klogger_take_turn(klogger_config.base + index);
}

/* One load and one comparison for events that are on without a rate limit, and on all CPUs. */
#define klogger_may(index, scope)                                       \
	({                                                              \
		__u8 klogger_state = READ_ONCE(klogger_enabled[index]); \
		likely(klogger_state == KLOGGER_ON)                     \
			? (scope)                                       \
			: klogger_state && (scope) &&                   \
				  klogger_admit(index, klogger_state);  \
	})

static __always_inline int klogger_has_bit(__u64 *bits, __u32 tid)
{
	return READ_ONCE(bits[tid / 64 & (KLOGGER_TIDS / 64 - 1)]) >> (tid & 63) & 1;
}

static __always_inline void klogger_set_bit(__u64 *bits, __u32 tid)
{
	__sync_fetch_and_or(&bits[tid / 64 & (KLOGGER_TIDS / 64 - 1)], 1ull << (tid & 63));
}

static __always_inline void klogger_clear_bit(__u64 *bits, __u32 tid)
{
	__sync_fetch_and_and(&bits[tid / 64 & (KLOGGER_TIDS / 64 - 1)], ~(1ull << (tid & 63)));
}

static __always_inline int klogger_in_scope(__u32 tid)
{
	if (!klogger_config.scoped)
		return 1;
	return klogger_has_bit(klogger_scope, tid);
}

static __always_inline int klogger_in_scope_current(void)
{
	if (!klogger_config.scoped)
		return 1;
	return klogger_in_scope((__u32)bpf_get_current_pid_tgid());
}

#endif
