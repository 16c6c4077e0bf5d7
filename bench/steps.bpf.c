// SPDX-License-Identifier: GPL-2.0-only
// The steps of an event, one after the other, and other ways to do the same. All are in one program at one place, so that
// they can take turns; a number that the loop sets says which one a hit takes.
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;

#define SEC(name) __attribute__((section(name), used))
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#define barrier() asm volatile("" ::: "memory")
#define inline_always static inline __attribute__((always_inline))

#define RING (1u << 20)

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static __u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
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

struct ring {
	__u64 head, limit, missed, nest;
	__u64 unused[4];
	__u8 data[RING + 4096];
};

struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct ring)];
} rings SEC(".maps");

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
struct ring __arena *ring_in_arena SEC(".bss.where_p");
#endif

struct {
	__u32 arm;
	__u32 on;
	__u64 sink;
} control SEC(".bss.where_c");
__u64 scope[1 << 16] SEC(".bss.where_s");

/* The time that the scheduler has read last on this CPU. */
inline_always __u64 rq_clock(void)
{
	return bpf_get_current_task_btf()->se.cfs_rq->rq->clock;
}

inline_always struct ring *this_ring(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

inline_always void publish(__u8 *record, __u64 time, __s32 a, __s32 b)
{
	*(__s32 *)(record + 8) = a;
	*(__s32 *)(record + 12) = b;
	barrier();
	WRITE_ONCE(*(__u64 *)record, time << 16 | 5);
}

/* What klogger does: plain loads and stores, for a hit that interrupts another one goes elsewhere. */
inline_always __u8 *reserve(struct ring *ring, __u32 size)
{
	__u64 head = READ_ONCE(ring->head), end = head + size;

	if (READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit))
		return 0;
	WRITE_ONCE(ring->head, end);
	return &ring->data[head & (RING - 1)];
}

inline_always __u8 *reserve_atomic(struct ring *ring, __u32 size)
{
	__u64 head = READ_ONCE(ring->head), end = head + size;

	if (READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit))
		return 0;
	if (__sync_val_compare_and_swap(&ring->head, head, end) != head)
		return 0;
	return &ring->data[head & (RING - 1)];
}

inline_always void event(struct ring *ring, __u64 time, __s32 a, __s32 b)
{
	__u8 *record = reserve(ring, 16);

	if (record)
		publish(record, time, a, b);
}

enum { PLAIN, ATOMIC, TWO, BATCH, NO_CLOCK, NO_NEST, RQ_CLOCK, SCOPED, SCOPED_TASK };

/* A whole hit with its event, in the ways that are compared. */
inline_always void whole(int how, __s32 a, __s32 b)
{
	struct ring *ring;
	__u64 nest = 0, time;
	__u8 *record;
	__u32 tid;

	if (!READ_ONCE(control.on))
		return;
	if (how == SCOPED || how == SCOPED_TASK) {
		tid = how == SCOPED ? (__u32)bpf_get_current_pid_tgid() : bpf_get_current_task_btf()->pid;
		if (!(READ_ONCE(scope[tid / 64 & ((1 << 16) - 1)]) >> (tid & 63) & 1))
			return;
	}
	ring = this_ring();
	if (!ring)
		return;
	if (how != NO_NEST) {
		nest = READ_ONCE(ring->nest);
		WRITE_ONCE(ring->nest, nest + 1);
		barrier();
	}
	time = how == NO_CLOCK ? 1234 :
	       how == RQ_CLOCK ? rq_clock() : bpf_ktime_get_ns();
	if (nest)
		return;
	if (how == ATOMIC) {
		record = reserve_atomic(ring, 16);
		if (record)
			publish(record, time, a, b);
	} else if (how == BATCH) {
		record = reserve(ring, 32);
		if (record) {
			publish(record + 16, time, a, b);
			publish(record, time, a, b);
		}
	} else {
		event(ring, time, a, b);
	}
	if (how == TWO)
		event(ring, time, b, a);
	if (how != NO_NEST) {
		barrier();
		WRITE_ONCE(ring->nest, nest);
	}
}

#ifdef ARENA
inline_always void whole_in_arena(__s32 a, __s32 b)
{
	struct ring __arena *ring;
	__u64 nest, time, head, end;
	__u8 __arena *record;

	if (!READ_ONCE(control.on))
		return;
	/* By this the kernel knows which arena it is. */
	asm volatile("" :: "r"(&arena));
	ring = ring_in_arena + bpf_get_smp_processor_id();
	nest = READ_ONCE(ring->nest);
	WRITE_ONCE(ring->nest, nest + 1);
	barrier();
	time = bpf_ktime_get_ns();
	if (nest)
		return;
	head = READ_ONCE(ring->head);
	end = head + 16;
	if (READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit))
		return;
	WRITE_ONCE(ring->head, end);
	record = &ring->data[head & (RING - 1)];
	*(__s32 __arena *)(record + 8) = a;
	*(__s32 __arena *)(record + 12) = b;
	barrier();
	*(volatile __u64 __arena *)record = time << 16 | 5;
	barrier();
	WRITE_ONCE(ring->nest, nest);
	/* Not to be merged with the same store to a map: one instruction is for one kind of memory. */
	asm volatile("%0 = 1" : "=r"(nest));
}
#endif

SEC("tp_btf/task_prctl_unknown") int steps(__u64 *context)
{
	__s32 a = (__s32)context[0], b = (__s32)context[1];
	__u32 zero = 0;
	void *place;
	struct ring *ring;

	switch (READ_ONCE(control.arm)) {
	case 0: break;
	case 1: control.sink = bpf_ktime_get_ns(); break;
	case 2: control.sink = bpf_ktime_get_tai_ns(); break;
	case 3: control.sink = bpf_ktime_get_boot_ns(); break;
	case 4: control.sink = rq_clock(); break;
	case 5: control.sink = bpf_get_smp_processor_id(); break;
	case 6:
		ring = this_ring();
		if (ring)
			control.sink = ring->limit;
		break;
	case 7:
		place = bpf_map_lookup_elem(&percpu, &zero);
		if (place)
			control.sink = *(__u64 *)place;
		break;
	case 8: control.sink = bpf_get_current_pid_tgid(); break;
	case 9: control.sink = bpf_get_current_task_btf()->pid; break;
	case 10: whole(PLAIN, a, b); break;
	case 11: whole(ATOMIC, a, b); break;
	case 12: whole(TWO, a, b); break;
	case 13: whole(BATCH, a, b); break;
	case 14: whole(NO_CLOCK, a, b); break;
	case 15: whole(NO_NEST, a, b); break;
	case 16: whole(RQ_CLOCK, a, b); break;
	case 17: whole(SCOPED, a, b); break;
	case 18: whole(SCOPED_TASK, a, b); break;
#ifdef ARENA
	case 19: whole_in_arena(a, b); break;
#endif
	}
	return 0;
}

#define SWITCHES (1u << 16)
/* How far the scheduler's time is from the clock at each switch, but for what is the same at all of them. */
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

char license_text[] SEC("license") = "GPL";
