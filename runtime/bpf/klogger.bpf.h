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

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() asm volatile("" ::: "memory")
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#ifndef NULL
#define NULL ((void *)0)
#endif
#define true 1
#define false 0

/* Helpers by their number in the kernel's ABI (include/uapi/linux/bpf.h). */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_stackid)(void *context, void *map, __u64 flags) = (void *)27;
static __u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*const bpf_probe_read_user)(void *dst, __u32 size, const void *src) = (void *)112;
static long (*const bpf_probe_read_user_str)(void *dst, __u32 size, const void *src) = (void *)114;
static long (*const bpf_probe_read_kernel)(void *dst, __u32 size, const void *src) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *dst, __u32 size, const void *src) = (void *)115;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags) = (void *)130;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

/*
 * Functions of the kernel since 6.11; called only where there are threads to hold off: see
 * klogger_begin().
 */
extern void bpf_preempt_disable(void) __attribute__((weak, section(".ksyms")));
extern void bpf_preempt_enable(void) __attribute__((weak, section(".ksyms")));

#include "kernel.h"

/*
 * Stacks that can be told apart; frames of each; and frames of the tracing itself, which come
 * first.
 */
#define KLOGGER_STACKS_MAX 65536
#define KLOGGER_STACK_FRAMES 24
#define KLOGGER_STACK_SKIP 0

/* Set by the recorder before loading; constants to the verifier. */
struct klogger_config {
	__u32 rings;		/* CPUs that have one */
	__u32 mask;		/* size of a ring - 1 */
	__u32 base;		/* added to the ids of this object's events */
	__u32 grid_shift;	/* log2 of a grid part's bytes; only in overwrite mode */
	__u8 scoped;		/* only threads in scope are logged */
	__u8 overwrite;
	__u8 preempt;		/* the kernel lets threads preempt each other in programs */
	/* 0: the first program at its place; others log what those before them were kept from */
	__u8 copy;
	__u32 larger_mask;	/* size of a larger ring - 1; 0: rings do not grow */
	__u32 probes;		/* added to the numbers of this object's probes */
};
const volatile struct klogger_config klogger_config SEC(".rodata.klogger");

/* One byte for each event of this object: an enum klogger_state. */
enum klogger_state { KLOGGER_OFF, KLOGGER_ON, KLOGGER_LIMITED };
__u8 klogger_enabled[KLOGGER_EVENTS_MAX] SEC(".data.klogger_e");

/* One bit for each thread id; shared by all objects of a recording. */
#define KLOGGER_TIDS (1u << 22)
__u64 klogger_scope[KLOGGER_TIDS / 64] SEC(".bss.klogger_s");

/*
 * Events on CPUs that came after the start have no ring. By event, all CPUs together; shared by all
 * objects.
 */
__u64 klogger_ringless[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_r");

/*
 * Texts and arrays of events that could not be read. By event, all CPUs together; shared by all
 * objects.
 */
__u64 klogger_unread[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_u");

/*
 * The rate of an event whose rate is limited, all CPUs together; shared by all objects. Times are
 * in sixteenths of a ns. `due` is when the next event would come if all came evenly. Each event
 * that is logged moves it on by `step`. Nobody but these events writes here, so that the many that
 * are left out only read.
 */
struct klogger_rate {
	__u64 due;
	__u64 step;
	__u64 ahead;		/* how far `due` may be ahead of the clock: what may come at once */
};
struct klogger_rate klogger_rates[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_l");

/* Events that were left out for it, by event, on each CPU that has rings. */
struct klogger_left_out {
	__u64 count;
	__u64 first;		/* ns */
	__u64 last;
};
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_left_out) * KLOGGER_EVENTS_MAX];
} klogger_left SEC(".maps");

/* The recorder sets the number of CPUs and the ring's size. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + 65536 + KLOGGER_SLACK];
} klogger_rings SEC(".maps");

/*
 * A larger ring for each CPU whose own turned out to be too small: a map of one element, which the
 * recorder makes when it is needed. From then on `limit` of the CPU's own ring is 0 and its `mask`
 * is 1, so that writers leave their straight path, and only those that must ask which ring it is.
 */
struct klogger_larger_ring {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + 65536 + KLOGGER_SLACK];
};
struct {
	int (*type)[12 /* BPF_MAP_TYPE_ARRAY_OF_MAPS */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[4];
	struct klogger_larger_ring *values[];
} klogger_larger SEC(".maps");

/* For probe hits that interrupt others. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + KLOGGER_NESTED + KLOGGER_SLACK];
} klogger_nested SEC(".maps");

/* Calls to the recorder: numbers of CPUs whose rings have passed the low-water mark. */
struct {
	int (*type)[27 /* BPF_MAP_TYPE_RINGBUF */];
	int (*max_entries)[4096];
} klogger_calls SEC(".maps");

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

static __always_inline void klogger_leave_out(struct klogger_left_out *left, __u64 time)
{
	if (!READ_ONCE(left->count))
		WRITE_ONCE(left->first, time);
	WRITE_ONCE(left->last, time);
	__sync_fetch_and_add(&left->count, 1);
}

/*
 * Takes an event's turn, or counts it as left out. On a CPU without rings it is lost anyway, and
 * counted as such.
 */
static __noinline int klogger_take_turn(__u32 id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct klogger_left_out *left = bpf_map_lookup_elem(&klogger_left, &cpu);
	struct klogger_rate *rate = &klogger_rates[id & (KLOGGER_EVENTS_MAX - 1)];
	__u64 time = bpf_ktime_get_ns(), now = time << 4;

	if (!left)
		return 1;
	/*
	 * Whoever fails so often meets others who did not: the rate is used up as well as it can
	 * be.
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

/* One load and one comparison for events that are enabled and not limited, and nothing else. */
#define klogger_may(index, scope)                                                                             \
	({                                                                                                    \
		__u8 klogger_state = READ_ONCE(klogger_enabled[index]);                                       \
		likely(klogger_state == KLOGGER_ON) ? (scope) :                                               \
						      klogger_state && (scope) &&                             \
							      klogger_take_turn(klogger_config.base + (index)); \
	})

static __always_inline int klogger_in_scope(__u32 tid)
{
	if (!klogger_config.scoped)
		return 1;
	return READ_ONCE(klogger_scope[tid / 64 & (KLOGGER_TIDS / 64 - 1)]) >> (tid & 63) & 1;
}

static __always_inline int klogger_in_scope_current(void)
{
	if (!klogger_config.scoped)
		return 1;
	return klogger_in_scope((__u32)bpf_get_current_pid_tgid());
}

static __always_inline void klogger_scope_add(__u32 tid)
{
	__sync_fetch_and_or(&klogger_scope[tid / 64 & (KLOGGER_TIDS / 64 - 1)], 1ull << (tid & 63));
}

static __always_inline void klogger_scope_remove(__u32 tid)
{
	__sync_fetch_and_and(&klogger_scope[tid / 64 & (KLOGGER_TIDS / 64 - 1)], ~(1ull << (tid & 63)));
}

/*
 * A child is in scope if its parent is. The bit of a child that is not is cleared, for its number
 * may have belonged to a thread in scope whose memory is still waiting to be freed.
 */
static __always_inline void klogger_scope_fork(__u32 parent, __u32 child)
{
	if (!klogger_config.scoped)
		return;
	if (klogger_in_scope(parent))
		klogger_scope_add(child);
	else if (klogger_in_scope(child))
		klogger_scope_remove(child);
}

/*
 * If a thread other than the first calls exec, it takes over the first one's id, whose owner has
 * just ended.
 */
static __always_inline void klogger_scope_exec(__u32 tid, __u32 old_tid)
{
	if (klogger_config.scoped && tid != old_tid && klogger_in_scope(old_tid)) {
		klogger_scope_add(tid);
		klogger_scope_remove(old_tid);
	}
}

static __always_inline void klogger_scope_free(__u32 tid)
{
	if (klogger_config.scoped && klogger_in_scope(tid))
		klogger_scope_remove(tid);
}

/*
 * Stores the header word after the fields. Pairs with the acquire load in the recorder's drain. x86
 * keeps stores in order, so that only the compiler must be held back; elsewhere an exchange is the
 * one full barrier that BPF has on all kernels.
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

/* Which of a CPU's rings it is: what is known of it are its size and its mode. */
enum klogger_kind { KLOGGER_MAIN, KLOGGER_INNER, KLOGGER_LARGER };

/*
 * In overwrite mode: if the record that ends at `end` crosses into another part of the grid, the
 * next begins there.
 */
static __always_inline void klogger_mark_grid(struct klogger_ring *ring, enum klogger_kind kind, __u64 start, __u64 end)
{
	__u32 shift = kind == KLOGGER_INNER ? KLOGGER_NESTED_SHIFT - KLOGGER_GRID_SHIFT : klogger_config.grid_shift & 31;

	if (start >> shift != end >> shift)
		WRITE_ONCE(ring->first[end >> shift & (KLOGGER_GRID - 1)], end);
}

/*
 * Takes `size` bytes by compare-and-swap. It fails only if an interrupt logged in between, so that
 * a few tries suffice; an event that had no luck is lost, and counted like any other.
 */
static __always_inline __s64 klogger_claim(struct klogger_ring *ring, enum klogger_kind kind, __u32 size)
{
	for (int i = 0; i < 16; i++) {
		__u64 head = READ_ONCE(ring->head);

		if (head + size > READ_ONCE(ring->hard))
			return -1;
		if (__sync_val_compare_and_swap(&ring->head, head, head + size) == head) {
			if (klogger_config.overwrite)
				klogger_mark_grid(ring, kind, head, head + size);
			return head;
		}
	}
	return -1;
}

static __always_inline void klogger_count_lost(struct klogger_ring *ring, __u64 time, __u32 id)
{
	if (!READ_ONCE(ring->missed))
		WRITE_ONCE(ring->missed_since, time);
	__sync_fetch_and_add(&ring->missed, 1);
	__sync_fetch_and_add(&ring->lost[id & (KLOGGER_EVENTS_MAX - 1)], 1);
}

static __always_inline void *klogger_data(struct klogger_ring *ring, enum klogger_kind kind, __u64 at)
{
	return &ring->data[at & (kind == KLOGGER_MAIN  ? klogger_config.mask :
				 kind == KLOGGER_INNER ? KLOGGER_NESTED - 1 :
							 klogger_config.larger_mask)];
}

/* Says in the ring itself how many events are missing before the one that follows. */
static __always_inline int klogger_put_lost(struct klogger_ring *ring, enum klogger_kind kind, __u64 time)
{
	__u64 since = READ_ONCE(ring->missed_since);
	__u64 missed = __sync_lock_test_and_set(&ring->missed, 0);
	struct klogger_lost *lost;
	__s64 at;

	if (!missed)
		return 1;
	at = klogger_claim(ring, kind, sizeof(*lost));
	if (at < 0) {
		__sync_fetch_and_add(&ring->missed, missed);
		return 0;
	}
	lost = klogger_data(ring, kind, at);
	lost->count = missed;
	lost->since = since;
	klogger_publish(&lost->header, KLOGGER_HEADER(time, KLOGGER_LOST_ID));
	return 1;
}

/*
 * Past the low-water mark: calls the drain thread, once. A call that finds no space is not needed,
 * for the thread has not answered earlier ones yet.
 */
static __always_inline void klogger_call_reader(struct klogger_ring *ring, __u64 limit, __u64 hard)
{
	__u32 cpu = bpf_get_smp_processor_id();

	/*
	 * By exchange, so that what the reader has set since, lower or higher, stays: it may have
	 * retired the ring.
	 */
	if (__sync_val_compare_and_swap(&ring->limit, limit, hard) == limit)
		bpf_ringbuf_output(&klogger_calls, &cpu, sizeof(cpu), 2 /* BPF_RB_FORCE_WAKEUP */);
}

/* The ring has passed its low-water mark, or is full, or has just been; or it is the nested one. */
static __always_inline __s64 klogger_reserve_slow(struct klogger_ring *ring, enum klogger_kind kind, __u64 time, __u32 id,
						   __u32 size)
{
	__u64 limit = READ_ONCE(ring->limit), hard = READ_ONCE(ring->hard);
	__s64 at;

	/* `limit` is 0 when a larger ring has taken the place of this one. */
	if (limit && limit < hard && READ_ONCE(ring->head) + size > limit)
		klogger_call_reader(ring, limit, hard);
	/* Room for both, or else a ring that is nearly full would hold little but LOST records. */
	if (READ_ONCE(ring->missed) &&
	    (READ_ONCE(ring->head) + sizeof(struct klogger_lost) + size > READ_ONCE(ring->hard) ||
	     !klogger_put_lost(ring, kind, time))) {
		klogger_count_lost(ring, time, id);
		return -1;
	}
	at = klogger_claim(ring, kind, size);
	if (at < 0)
		klogger_count_lost(ring, time, id);
	return at;
}

/* Main rings have one writer at a time, and so has this one, which stands for one of them. */
static __always_inline __s64 klogger_claim_larger(struct klogger_ring *ring, __u64 time, __u32 id, __u32 size)
{
	__u64 head = READ_ONCE(ring->head), end = head + size;

	if (unlikely(READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit)))
		return klogger_reserve_slow(ring, KLOGGER_LARGER, time, id, size);
	WRITE_ONCE(ring->head, end);
	return head;
}

static __always_inline void *klogger_reserve_larger(__u64 time, __u32 id, __u32 size)
{
	__u32 cpu = bpf_get_smp_processor_id(), first = 0;
	void *map = bpf_map_lookup_elem(&klogger_larger, &cpu);
	struct klogger_ring *ring;
	__s64 at;

	/* It is there, or else nobody would ask for it; the verifier cannot know. */
	if (!map)
		return NULL;
	ring = bpf_map_lookup_elem(map, &first);
	if (!ring)
		return NULL;
	at = klogger_claim_larger(ring, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_LARGER, at);
}

static __always_inline void klogger_count_attempt(struct klogger_ring *ring, __u32 id)
{
	if (klogger_config.overwrite)
		__sync_fetch_and_add(&ring->attempts[id & (KLOGGER_EVENTS_MAX - 1)], 1);
}

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

#include "copies.h"

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

/* For a hit that interrupted another one. */
static __always_inline void *klogger_reserve_nested(__u64 time, __u32 id, __u32 size)
{
	struct klogger_ring *ring = klogger_this_nested();
	__s64 at;

	if (!ring)
		return NULL;
	klogger_count_attempt(ring, id);
	at = klogger_reserve_slow(ring, KLOGGER_INNER, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_INNER, at);
}

/*
 * All that is rare: there is no ring, or a larger one in its place, or a hit is nested, or the ring
 * has passed its low-water mark. One function out of line, which finds the ring anew, so that the
 * common path keeps its registers.
 */
static __noinline void *klogger_reserve_otherwise(__u64 time, __u64 nest, __u32 id, __u32 size)
{
	struct klogger_ring *ring = klogger_this_ring();
	__s64 at;

	if (!ring) {
		__sync_fetch_and_add(&klogger_ringless[id & (KLOGGER_EVENTS_MAX - 1)], 1);
		return NULL;
	}
	if (nest)
		return klogger_reserve_nested(time, id, size);
	klogger_count_attempt(ring, id);
	if (klogger_config.larger_mask && !READ_ONCE(ring->limit) && READ_ONCE(ring->mask))
		return klogger_reserve_larger(time, id, size);
	at = klogger_reserve_slow(ring, KLOGGER_MAIN, time, id, size);
	return at < 0 ? NULL : klogger_data(ring, KLOGGER_MAIN, at);
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
		goto otherwise;
	head = READ_ONCE(ring->head);
	end = head + size;
	if (unlikely(READ_ONCE(ring->missed) || end > READ_ONCE(ring->limit)))
		goto otherwise;
	/*
	 * In this order: `head` and `klogger_config.mask` have the same place in their pages, and a
	 * CPU that sees a load after a store with the same lowest 12 bits of the address takes its
	 * time to find out that they are not the same.
	 */
	data = klogger_data(ring, KLOGGER_MAIN, head);
	WRITE_ONCE(ring->head, end);
	if (klogger_config.overwrite) {
		klogger_count_attempt(ring, hit->base + index);
		klogger_mark_grid(ring, KLOGGER_MAIN, head, end);
	}
	return data;
otherwise:
	return klogger_reserve_otherwise(hit->time, hit->nest, hit->base + index, size);
}

static __always_inline void klogger_commit(struct klogger_hit *hit, void *record, __u32 index)
{
	klogger_publish(record, KLOGGER_HEADER(hit->time, hit->base + index));
}

/*
 * What is not the kernel's memory may be that of the program which runs. If it is not there now, it
 * reads as zeros.
 */
static __always_inline long klogger_read_any(void *dst, __u32 size, const void *src)
{
	long error = bpf_probe_read_kernel(dst, size, src);

	return unlikely(error) ? bpf_probe_read_user(dst, size, src) : 0;
}

static __always_inline long klogger_read_text(void *dst, __u32 size, const void *src)
{
	long n = bpf_probe_read_kernel_str(dst, size, src);

	return unlikely(n < 0) ? bpf_probe_read_user_str(dst, size, src) : n;
}

/* Whoever logs NULL has nothing to be read. */
static __noinline int klogger_count_unread(__u32 index, const void *src)
{
	if (src)
		__sync_fetch_and_add(&klogger_unread[(klogger_config.base + index) & (KLOGGER_EVENTS_MAX - 1)], 1);
	return 0;
}

static __always_inline void klogger_copy(__u32 index, void *dst, const void *src, __u32 size)
{
	if (unlikely(klogger_read_any(dst, size, src)))
		klogger_count_unread(index, src);
}

static __always_inline void klogger_copy_text(__u32 index, char *dst, const char *src, __u32 size)
{
	if (unlikely(klogger_read_text(dst, size, src) < 0))
		klogger_count_unread(index, src);
}

/*
 * The same name in a body for every engine: reads memory that may be bad, and the number of this
 * CPU.
 */
#define klogger_read(to, from, size) klogger_read_any(to, size, from)
#define klogger_cpu() bpf_get_smp_processor_id()

/* A `string` on its way: it must be measured before space for it can be reserved. */
struct klogger_text {
	__u32 length;
	char bytes[256];
};

static __always_inline void klogger_text_read(__u32 index, struct klogger_text *text, const char *src)
{
	long n = klogger_read_text(text->bytes, sizeof(text->bytes), src);

	if (unlikely(n < 0))
		klogger_count_unread(index, src);
	/* n counts the NUL; an unreadable string is logged as an empty one */
	text->length = n > 0 ? (n - 1) & 255 : 0;
}

/* To `dst`, which has room for text->length bytes rounded up to 8. */
static __always_inline void klogger_text_store(void *dst, struct klogger_text *text)
{
	__u32 length = text->length & 255;

	if (length)
		bpf_probe_read_kernel(dst, length, text->bytes);
}

/*
 * The thread that was running when the probe was hit, perhaps interrupted; for bodies, and for
 * `context tid`.
 */
static __always_inline __u32 klogger_current_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

#define klogger_context_tid() klogger_current_tid()

static __always_inline __u32 klogger_context_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u64 klogger_context_cgroup(void)
{
	return bpf_get_current_cgroup_id();
}

#ifdef KLOGGER_STACKS
/*
 * The kernel stacks of this recording's probe hits. The kernel finds a stack's place by its hash,
 * and never gives a place to another stack, so that a number stays true; a stack whose place is
 * taken has no number. Shared by all objects.
 */
struct {
	int (*type)[7 /* BPF_MAP_TYPE_STACK_TRACE */];
	int (*max_entries)[KLOGGER_STACKS_MAX];
	int (*key_size)[4];
	int (*value_size)[8 * KLOGGER_STACK_FRAMES];
} klogger_stacks SEC(".maps");

/* Stacks that have no number: [0] the place was taken, [1] anything else. Shared by all objects. */
__u64 klogger_stackless[2] SEC(".bss.klogger_k");

/* The stack's place in the table, from 1; 0 if it has none. */
static __always_inline __u32 klogger_stack_of(void *context)
{
	long place = bpf_get_stackid(context, &klogger_stacks, KLOGGER_STACK_SKIP);

	if (likely(place >= 0))
		return place + 1;
	__sync_fetch_and_add(&klogger_stackless[place != -17 /* EEXIST */], 1);
	return 0;
}

#define klogger_stack() klogger_stack_of(klogger_context)
#endif

char LICENSE[] SEC("license") = "GPL";

#endif
