/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * User stacks: each stack of a process gets a number, so that an event contains only 4 bytes of it.
 *
 * An address means something only in its process, so a stack is stored once for each process, and
 * again after exec. The table is searched by hash: a hit that finds a free slot claims it by
 * compare-and-swap, and then takes space for the frames, so that short stacks take little. Nothing
 * is ever removed. Two stacks with the same hash of 64 bits would have one number.
 *
 * The kernel follows frame pointers, and takes the first return address from the frame of the
 * function above the innermost one if that has no frame itself, or not yet. The missing address is
 * one of the words nearest to the stack pointer. Which one is known later, from the file of the
 * program; here the nearest word is stored that is an address after a call. Other words are not,
 * because they differ from hit to hit, and so would the stacks.
 */
#ifndef KLOGGER_BPF_USER_STACK_H
#define KLOGGER_BPF_USER_STACK_H

#include "kernel.h"
#include "maps.h"

#ifdef KLOGGER_USER_STACKS

/* Slots that are tried for one stack. */
#define KLOGGER_USER_TRIES 16
/* What is so close above the stack pointer is the stack: no code. */
#define KLOGGER_USER_STACK_SIZE (1 << 20)

/* Shared by all objects. */
struct klogger_user_stacks klogger_user_stacks SEC(".bss.klogger_w");

/* Where hits of a CPU get their frames: one each, if they interrupt each other. */
#define KLOGGER_USER_SCRATCHES 4
struct klogger_user_scratch {
	__u64 busy;		/* a bit for each */
	__u64 frame[KLOGGER_USER_SCRATCHES][KLOGGER_USER_FRAMES + 1 + KLOGGER_USER_NEAR];
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

#if defined(__TARGET_ARCH_x86)
struct pt_regs___klogger_near {
	unsigned long sp;
} __attribute__((preserve_access_index));
#endif

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
	__u64 caller;		/* an address after a call, and the number of its word, from 1 */
	__u64 stack;		/* the stack pointer */
	__u32 caller_at;
	__u32 frames;
	__u8 found;
	__u8 is_new;
	__u16 unused[3];
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

#if defined(__TARGET_ARCH_x86)
/* Whether the instruction before this address is a call: of `call ADDRESS`, or of `call *...`. */
static __always_inline int klogger_after_call(__u64 address)
{
	__u64 code;
	int n;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - sizeof(code))))
		return 0;
	if ((code >> 24 & 0xff) == 0xe8)
		return 1;
	/* 0xff, and a byte of which three bits are 2, at 2 to 7 bytes before the address. */
#pragma unroll
	for (n = 1; n <= 6; n++) {
		if ((code >> (8 * n) & 0x38ff) == 0x10ff)
			return 1;
	}
	return 0;
}

/* One of the words nearest to the stack pointer. */
static long klogger_try_caller(__u64 n, void *data)
{
	struct klogger_user_hit *hit = data;
	__u64 address;

	if (n >= KLOGGER_USER_NEAR)
		return 1;
	address = hit->frame[KLOGGER_USER_FRAMES + 1 + n];
	/*
	 * Reading what is there costs most: not for numbers, what points into the stack, and what
	 * is known already.
	 */
	if (address < 0x10000 || address >> 47 ||
	    address - hit->stack < KLOGGER_USER_STACK_SIZE)
		return 0;
	if (!(hit->frames > 1 && address == hit->frame[1]) && !klogger_after_call(address))
		return 0;
	hit->caller = address;
	hit->caller_at = n + 1;
	return 1;
}

static __always_inline void klogger_find_caller(struct klogger_user_hit *hit, __u64 *frame)
{
	struct pt_regs___klogger_near *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	const __u64 *near = (const __u64 *)regs->sp;

	hit->stack = (__u64)near;
	/* Near the end of a thread's stack there are fewer words. */
	if (bpf_probe_read_user(&frame[KLOGGER_USER_FRAMES + 1], 8 * KLOGGER_USER_NEAR, near) &&
	    bpf_probe_read_user(&frame[KLOGGER_USER_FRAMES + 1], 8, near))
		return;
	bpf_loop(KLOGGER_USER_NEAR, klogger_try_caller, hit, 0);
}
#else
/* On arm64 the address is in a register, which is not looked at. */
#define KLOGGER_UNUSED __attribute__((unused))
static __always_inline void klogger_find_caller(KLOGGER_UNUSED struct klogger_user_hit *hit,
						KLOGGER_UNUSED __u64 *frame)
{
}
#endif

/* Stores a stack in the slot that this hit has claimed. */
static __always_inline void klogger_keep_user_stack(const struct klogger_user_hit *hit, __u32 tgid)
{
	struct klogger_user_stacks *all = &klogger_user_stacks;
	__u64 at = __sync_fetch_and_add(&all->used, 3 + hit->frames);

	if (at >= KLOGGER_USER_WORDS) {
		klogger_user_stack_lost(1);
		return;
	}
	at &= KLOGGER_USER_WORDS - 1;
	all->word[at] = bpf_ktime_get_ns();
	all->word[at + 1] = (__u64)tgid << 32 | hit->caller_at << 8 | hit->frames;
	all->word[at + 2] = hit->caller;
	bpf_probe_read_kernel(&all->word[at + 3], hit->frames * 8 & 1023, hit->frame);
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
	klogger_find_caller(&hit, frame);
	hit.hash = klogger_mix(task->group_leader->start_time, (__u64)tgid << 32 | hit.frames);
	hit.hash = klogger_mix(hit.hash, task->self_exec_id);
	hit.hash = klogger_mix(hit.hash, hit.caller ^ (__u64)hit.caller_at << 56);
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
