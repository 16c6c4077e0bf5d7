// SPDX-License-Identifier: GPL-2.0-only
// The steps of an event, one after the other, and other ways to do the same. All are in one program
// at one place, so that they can take turns; a number that the loop sets says which one a hit
// takes. What klogger does is klogger's own code.
#include "klogger.bpf.h"

static __u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static __u64 (*const bpf_ktime_get_tai_ns)(void) = (void *)208;

/* Only of use with CO-RE: what stands in between, the kernel knows. */
#define CORE __attribute__((preserve_access_index))
struct rq {
	__u64 clock;
} CORE;
struct cfs_rq {
	struct rq *rq;
} CORE;
struct sched_entity {
	struct cfs_rq *cfs_rq;
} CORE;
struct task_struct {
	struct sched_entity se;
	__s32 pid;
} CORE;

struct {
	int (*type)[6 /* BPF_MAP_TYPE_PERCPU_ARRAY */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[64];
} percpu SEC(".maps");

#ifdef ARENA
#define __arena __attribute__((address_space(1)))
struct {
	int (*type)[33 /* BPF_MAP_TYPE_ARENA */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[512];
} arena SEC(".maps");
struct klogger_ring __arena *ring_in_arena SEC(".bss.where_p");
#endif

struct {
	__u32 arm;
	__u32 unused;
	__u64 sink;
} control SEC(".bss.where_c");

struct two_ints {
	__u64 header;
	__s32 a, b;
};

/* The time that the scheduler has read last on this CPU. */
static __always_inline __u64 rq_clock(void)
{
	return bpf_get_current_task_btf()->se.cfs_rq->rq->clock;
}

static __always_inline void store(struct klogger_hit *hit, struct two_ints *record, __s32 a,
				  __s32 b)
{
	if (!record)
		return;
	record->a = a;
	record->b = b;
	klogger_commit(hit, record, 0);
}

static __always_inline int in_scope_by_task(void)
{
	return klogger_in_scope(bpf_get_current_task_btf()->pid);
}

/* As it is generated for an event of a schema, but for the test that comes first. */
#define EVENT(test, a, b)                                                       \
	do {                                                                    \
		if (test)                                                       \
			store(&hit, klogger_reserve(&hit, 0, sizeof(struct two_ints)), a, b); \
	} while (0)

static __always_inline void *reserve_atomic(struct klogger_ring *ring, __u32 size)
{
	__u64 head = READ_ONCE(ring->head), end = head + size;
	void *data = klogger_data(ring, KLOGGER_MAIN, head);

	if (READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit))
		return NULL;
	return __sync_val_compare_and_swap(&ring->head, head, end) == head ? data : NULL;
}

enum { ATOMIC, BATCH, NO_CLOCK, NO_NEST, RQ_CLOCK };

/* Other ways, each with one difference. Those that must be off or out of scope are not here. */
static __always_inline void other(struct klogger_hit *hit, int how, __s32 a, __s32 b)
{
	struct two_ints *record;

	hit->ring = klogger_this_ring();
	if (!hit->ring)
		return;
	if (how != NO_NEST) {
		hit->nest = READ_ONCE(hit->ring->nest);
		WRITE_ONCE(hit->ring->nest, hit->nest + 1);
		barrier();
	}
	hit->time = how == NO_CLOCK ? 1234 : how == RQ_CLOCK ? rq_clock() : bpf_ktime_get_ns();
	hit->base = klogger_config.base;
	if (how == ATOMIC && !hit->nest) {
		store(hit, reserve_atomic(hit->ring, sizeof(*record)), a, b);
	} else if (how == BATCH) {
		record = klogger_reserve(hit, 0, 2 * sizeof(*record));
		if (record) {
			store(hit, record + 1, b, a);
			store(hit, record, a, b);
		}
	} else {
		store(hit, klogger_reserve(hit, 0, sizeof(*record)), a, b);
	}
	if (how == NO_NEST)
		hit->ring = NULL;
}

#ifdef ARENA
static __always_inline void event_in_arena(__s32 a, __s32 b)
{
	struct klogger_ring __arena *ring;
	__u64 nest, time, head, end;
	__u8 __arena *record;

	/* By this the kernel knows which arena it is. */
	asm volatile("" :: "r"(&arena));
	/* The first CPU's: the loop stays there. */
	ring = ring_in_arena + bpf_get_smp_processor_id();
	nest = READ_ONCE(ring->nest);
	WRITE_ONCE(ring->nest, nest + 1);
	barrier();
	time = bpf_ktime_get_ns();
	if (nest)
		return;
	head = READ_ONCE(ring->head);
	end = head + sizeof(struct two_ints);
	if (READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit))
		return;
	record = &ring->data[head & klogger_config.mask];
	WRITE_ONCE(ring->head, end);
	*(__s32 __arena *)(record + 8) = a;
	*(__s32 __arena *)(record + 12) = b;
	barrier();
	*(volatile __u64 __arena *)record = time << 16 | 5;
	barrier();
	WRITE_ONCE(ring->nest, nest);
	/*
	 * Not to be merged with the same store to a map: one instruction is for one kind of memory.
	 */
	asm volatile("%0 = 1" : "=r"(nest));
}
#endif

SEC("tp_btf/task_prctl_unknown") int steps(__u64 *context)
{
	__s32 a = (__s32)context[0], b = (__s32)context[1];
	struct klogger_hit hit = {};
	struct klogger_ring *ring;
	__u32 zero = 0;
	void *place;

	switch (READ_ONCE(control.arm)) {
	case 0: break;
	case 1: control.sink = bpf_ktime_get_ns(); break;
	case 2: control.sink = bpf_ktime_get_tai_ns(); break;
	case 3: control.sink = bpf_ktime_get_boot_ns(); break;
	case 4: control.sink = rq_clock(); break;
	case 5: control.sink = bpf_get_smp_processor_id(); break;
	case 6:
		ring = klogger_this_ring();
		if (ring)
			control.sink = READ_ONCE(ring->limit);
		break;
	case 7:
		place = bpf_map_lookup_elem(&percpu, &zero);
		if (place)
			control.sink = *(__u64 *)place;
		break;
	case 8: control.sink = bpf_get_current_pid_tgid(); break;
	case 9: control.sink = bpf_get_current_task_btf()->pid; break;
	case 10: klogger_enter(&hit); break;
	case 11: EVENT(klogger_may(0, klogger_in_scope_current()), a, b); break;
	case 12: EVENT(klogger_may(0, 1), a, b); break;
	case 13: EVENT(1, a, b); break;
	case 14: EVENT(klogger_may(0, in_scope_by_task()), a, b); break;
	case 15:
		EVENT(klogger_may(0, klogger_in_scope_current()), a, b);
		EVENT(klogger_may(0, klogger_in_scope_current()), b, a);
		break;
	case 16:
		EVENT(1, a, b);
		EVENT(1, b, a);
		break;
	case 17: other(&hit, BATCH, a, b); break;
	case 18: other(&hit, ATOMIC, a, b); break;
	case 19: other(&hit, NO_NEST, a, b); break;
	case 20: other(&hit, NO_CLOCK, a, b); break;
	case 21: other(&hit, RQ_CLOCK, a, b); break;
#ifdef ARENA
	case 22: event_in_arena(a, b); break;
#endif
	}
	klogger_leave(&hit);
	return 0;
}

#define SWITCHES (1u << 16)
/*
 * How far the scheduler's time is from the clock at each switch, but for what is the same at all of
 * them.
 */
struct {
	__u64 count;
	__u64 apart[SWITCHES];
} behind SEC(".bss.where_b");

SEC("tp_btf/sched_switch") int staleness(__u64 *context)
{
	__u64 scheduler = rq_clock(), now = bpf_ktime_get_ns();

	behind.apart[__sync_fetch_and_add(&behind.count, 1) & (SWITCHES - 1)] = now - scheduler;
	return 0;
}
