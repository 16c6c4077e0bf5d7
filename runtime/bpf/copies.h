/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies of a program, for kernels on which programs can be preempted.
 *
 * The kernel skips a hit if its program has not returned yet on that CPU. If a thread was preempted
 * in a program, that would be every hit for a time slice. So when a probe has skipped hits, the
 * recorder attaches its program once more. The kernel tracks this copy separately, and the copy
 * logs the hits that were skipped for the programs before it.
 *
 * A copy must know whether its hit has been logged. The tracepoint calls all copies from one frame,
 * so the address of the arguments on the stack, with the thread and the probe, identifies the hit
 * among all that are active. The program that logs a hit stores this identity in the table
 * klogger_marks, together with the number of the next copy. Each copy that finds it increments that
 * number, and the last one erases it. A number that is larger than a copy's own is left from an
 * earlier hit, whose last copy was skipped: then this hit has not been logged.
 *
 * Two hits that collide in one slot of the table make the slot unusable, for good: every hit there
 * counts as logged, so that none is logged twice. A hit that was not logged, but counts as logged,
 * is one that the kernel has counted as skipped.
 *
 * The recorder raises `klogger_copies` before it attaches a copy: a hit that reaches the copy began
 * later, so hits before it have left their marks.
 */
#ifndef KLOGGER_COPIES_H
#define KLOGGER_COPIES_H

#include "maps.h"
#define KLOGGER_COPY_MASK ((1u << KLOGGER_COPY_BITS) - 1)
#define KLOGGER_USELESS (~0ull)

/*
 * By probe: the number of programs at its attach point, including the first one; and hits that
 * copies have logged, or all hits if the recorder knows how many there should be. Shared by all
 * objects.
 */
__u8 klogger_copies[KLOGGER_PROBES_MAX] SEC(".bss.klogger_n");
__u64 klogger_caught[KLOGGER_PROBES_MAX] SEC(".bss.klogger_a");

/* The recorder makes KLOGGER_MARKS of them if programs can be preempted. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[8];
} klogger_marks SEC(".maps");

/* 64 bits: thread 22, address (of 8 bytes) 29, probe 10, next copy 3. */
static __always_inline __u64 klogger_name_hit(void *arguments, __u32 probe)
{
	__u32 address;

	/*
	 * The verifier allows half of a pointer to become a number, but a compiler would use the
	 * whole pointer.
	 */
	asm volatile("%0 = %1" : "=w"(address) : "w"((__u32)(unsigned long)arguments));
	return (__u64)((__u32)bpf_get_current_pid_tgid() & (KLOGGER_TIDS - 1)) << 42 |
	       (__u64)(address >> 3) << 13 |
	       (__u64)(probe & (KLOGGER_PROBES_MAX - 1)) << KLOGGER_COPY_BITS;
}

static __always_inline __u64 *klogger_mark_of(__u64 name)
{
	__u32 place = name * 0x9e3779b97f4a7c15ull >> 48;

	return bpf_map_lookup_elem(&klogger_marks, &place);
}

/* For copies: whether a program before has logged this hit, or may have. */
static __noinline int klogger_was_served(void *arguments, __u32 probe)
{
	__u64 name = klogger_name_hit(arguments, probe), *mark = klogger_mark_of(name), found;
	__u32 next, copy = klogger_config.copy;

	if (!mark)
		return 1;
	found = READ_ONCE(*mark);
	if (!found)
		return 0;
	next = found & KLOGGER_COPY_MASK;
	if (found == KLOGGER_USELESS || found - next != name)
		return 1;
	if (next > copy)
		return 0;
	if (copy + 1 >= READ_ONCE(klogger_copies[probe & (KLOGGER_PROBES_MAX - 1)]))
		name = 0;
	else
		name += copy + 1;
	/* Fails only if another hit has made the slot unusable meanwhile. */
	__sync_val_compare_and_swap(mark, found, name);
	return 1;
}

static __noinline void klogger_mark(void *arguments, __u32 probe)
{
	__u64 name = klogger_name_hit(arguments, probe), *mark = klogger_mark_of(name);

	if (!mark)
		return;
	for (int i = 0; i < 4; i++) {
		__u64 found = READ_ONCE(*mark),
		      mine = !found || found - (found & KLOGGER_COPY_MASK) == name;

		if (found == KLOGGER_USELESS)
			return;
		if (__sync_val_compare_and_swap(mark, found,
						mine ? name + klogger_config.copy + 1
						     : KLOGGER_USELESS) == found)
			return;
	}
	__sync_lock_test_and_set(mark, KLOGGER_USELESS);
}

/* Where the recorder knows how many hits there should be: it compares the two numbers. */
static __always_inline void klogger_count_hit(__u32 probe)
{
	__u32 n = (klogger_config.probes + probe) & (KLOGGER_PROBES_MAX - 1);

	__sync_fetch_and_add(&klogger_caught[n], 1);
}

/* Called by all programs after a hit was logged. */
static __always_inline void klogger_served(void *arguments, __u32 probe)
{
	__u32 n = probe & (KLOGGER_PROBES_MAX - 1);

	if (klogger_config.copy)
		__sync_fetch_and_add(&klogger_caught[n], 1);
	if (unlikely(READ_ONCE(klogger_copies[n]) > klogger_config.copy + 1))
		klogger_mark(arguments, probe);
}

#endif
