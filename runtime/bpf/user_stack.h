/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * User stacks: each stack of a process gets a number, so that an event contains only 4 bytes of it.
 *
 * An address means something only in its process, so a stack is stored once for each process, and
 * again after exec. The table is searched by hash: a hit that finds a free slot claims it by
 * compare-and-swap, and then takes space for the frames, so that short stacks take little. Nothing
 * is ever removed. Two stacks with the same hash of 64 bits would have one number.
 */
#ifndef KLOGGER_BPF_USER_STACK_H
#define KLOGGER_BPF_USER_STACK_H

#include "kernel.h"
#include "maps.h"

#ifdef KLOGGER_USER_STACKS

/* Slots that are tried for one stack. */
#define KLOGGER_USER_TRIES 16

/* Shared by all objects. */
struct klogger_user_stacks klogger_user_stacks SEC(".bss.klogger_w");

/* Where hits of a CPU get their frames: one each, if they interrupt each other. */
#define KLOGGER_USER_SCRATCHES 4
struct klogger_user_scratch {
	__u64 busy;		/* a bit for each */
	__u64 frame[KLOGGER_USER_SCRATCHES][KLOGGER_USER_FRAMES + 1];
};
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*max_entries)[1];	/* the recorder sets the number of CPUs */
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_user_scratch)];
} klogger_user_scratch SEC(".maps");

struct task_struct___klogger_image {
	int tgid;
	unsigned long long start_time;
	unsigned long long self_exec_id;
	struct task_struct___klogger_image *group_leader;
} __attribute__((preserve_access_index));

static __always_inline __u64 klogger_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

static __always_inline void klogger_user_stack_lost(__u32 why)
{
	__sync_fetch_and_add(&klogger_user_stacks.lost[why & 3], 1);
}

/*
 * A stack, while it gets its number. The verifier looks at a function that bpf_loop() calls once,
 * but at a loop as often as it may run.
 */
struct klogger_user_hit {
	const __u64 *frame;
	__u64 hash;
	__u64 slot;		/* its number */
	__u32 frames;
	__u8 found;
	__u8 is_new;
	__u16 unused;
};

static long klogger_hash_frame(__u64 n, void *data)
{
	struct klogger_user_hit *hit = data;

	if (n >= KLOGGER_USER_FRAMES)
		return 1;
	hit->hash = klogger_mix(hit->hash, hit->frame[n]);
	return 0;
}

/* One of the slots that a stack can have, from its hash on. */
static long klogger_try_user_slot(__u64 n, void *data)
{
	struct klogger_user_hit *hit = data;
	__u64 number = (hit->hash + n) & (KLOGGER_USER_STACKS_MAX - 1);
	struct klogger_user_slot *slot = &klogger_user_stacks.slot[number];
	__u64 is = READ_ONCE(slot->hash);

	if (!is) {
		if (READ_ONCE(klogger_user_stacks.used) >= KLOGGER_USER_WORDS)
			return 1;
		is = __sync_val_compare_and_swap(&slot->hash, 0, hit->hash);
		hit->is_new = !is;
	}
	if (is && is != hit->hash)
		return 0;
	hit->slot = number;
	hit->found = 1;
	return 1;
}

/* Stores a stack in the slot that this hit has claimed. */
static __always_inline void klogger_keep_user_stack(const struct klogger_user_hit *hit, __u32 tgid)
{
	struct klogger_user_stacks *all = &klogger_user_stacks;
	__u64 at = __sync_fetch_and_add(&all->used, 2 + hit->frames);

	if (at >= KLOGGER_USER_WORDS) {
		klogger_user_stack_lost(1);
		return;
	}
	at &= KLOGGER_USER_WORDS - 1;
	all->word[at] = bpf_ktime_get_ns();
	all->word[at + 1] = (__u64)tgid << 32 | hit->frames;
	bpf_probe_read_kernel(&all->word[at + 2], hit->frames * 8 & 1023, hit->frame);
	barrier();
	WRITE_ONCE(all->slot[hit->slot & (KLOGGER_USER_STACKS_MAX - 1)].place, at + 1);
}

/* The number of a stack's slot, after those of kernel stacks; 0 if there is none. */
static __always_inline __u32 klogger_user_stack_in(void *context, __u64 *frame)
{
	struct task_struct___klogger_image *task = (void *)bpf_get_current_task_btf();
	struct klogger_user_hit hit = {.frame = frame};
	__u32 tgid = task->tgid;
	long bytes;

	bytes = bpf_get_stack(context, frame, 8 * KLOGGER_USER_FRAMES, 256 /* BPF_F_USER_STACK */);
	if (bytes <= 0) {
		/* A thread of the kernel has none: then there are 0 bytes. */
		if (bytes)
			klogger_user_stack_lost(2);
		return 0;
	}
	hit.frames = (__u32)bytes / 8;
	hit.hash = klogger_mix(task->group_leader->start_time, (__u64)tgid << 32 | hit.frames);
	hit.hash = klogger_mix(hit.hash, task->self_exec_id);
	bpf_loop(hit.frames, klogger_hash_frame, &hit, 0);
	hit.hash |= 1;
	bpf_loop(KLOGGER_USER_TRIES, klogger_try_user_slot, &hit, 0);
	if (!hit.found) {
		klogger_user_stack_lost(0);
		return 0;
	}
	if (hit.is_new)
		klogger_keep_user_stack(&hit, tgid);
	return KLOGGER_STACKS_MAX + 1 + hit.slot;
}

/* Not inlined: it is long, and bodies may call it in several places. */
static __noinline __u32 klogger_user_stack_of(void *context)
{
	__u32 cpu = bpf_get_smp_processor_id(), number;
	struct klogger_user_scratch *scratch = bpf_map_lookup_elem(&klogger_user_scratch, &cpu);
	__u64 busy, free;

	if (!scratch)
		return 0;
	busy = READ_ONCE(scratch->busy);
	free = ~busy & (busy + 1);
	/* If it is taken meanwhile, by a hit that interrupts this one, it is free again. */
	if (free >= 1 << KLOGGER_USER_SCRATCHES ||
	    __sync_fetch_and_or(&scratch->busy, free) & free) {
		klogger_user_stack_lost(2);
		return 0;
	}
	/* The number of the bit. */
	busy = ((free >> 1) - (free >> 3)) & (KLOGGER_USER_SCRATCHES - 1);
	number = klogger_user_stack_in(context, scratch->frame[busy]);
	__sync_fetch_and_and(&scratch->busy, ~free);
	return number;
}

#define klogger_user_stack() klogger_user_stack_of(klogger_context)
#define klogger_context_user_stack() klogger_user_stack_of(klogger_hit->context)

#endif
#endif
