/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * User stacks: each stack of a process gets a number, so that an event contains only 4 bytes of it.
 *
 * An address means something only in its process, so a stack is stored once for each process, and
 * again after exec. The table is searched by hash: a hit that finds a free slot claims it by
 * compare-and-swap, and then takes space for the frames, so that short stacks take little. Nothing
 * is ever removed. Two stacks with the same hash of 64 bits would have one number.
 *
 * The kernel follows frame pointers; of functions without them it does not find the callers. Their
 * return addresses are among the words above the stack pointer, and which words these are is known
 * later, from the files of the program. So of the nearest words those are kept that are an address
 * after a call, or a frame pointer that was saved. Other words are not, because they differ from
 * hit to hit, and so would the stacks. Samples look at more words than other hits: their programs
 * are anywhere, and not where they call the kernel.
 */
#ifndef KLOGGER_BPF_USER_STACK_H
#define KLOGGER_BPF_USER_STACK_H

#include "kernel.h"
#include "maps.h"

#ifdef KLOGGER_USER_STACKS

/* Slots that are tried for one stack. */
#define KLOGGER_USER_TRIES 16
/* What is so close above the stack pointer may be the stack. */
#define KLOGGER_USER_STACK_SIZE (1 << 20)
/* So far above it is what the nearest words point to, if they are frame pointers. */
#define KLOGGER_USER_FAR (8 * KLOGGER_USER_DEEP)
#define KLOGGER_USER_NEAREST 32
/* Twice as many words each CPU knows to be addresses after a call, or not. */
#define KLOGGER_USER_KNOWN 1024

/* Shared by all objects. */
struct klogger_user_stacks klogger_user_stacks SEC(".bss.klogger_w");

/* Where hits of a CPU get their frames: one each, if they interrupt each other. */
#define KLOGGER_USER_SCRATCHES 4
struct klogger_user_scratch {
	__u64 busy;		/* a bit for each */
	struct klogger_user_room {
		/*
		 * How many words are kept. It is here because a verifier may look at the function
		 * that keeps one once, and would take a number on the stack for what it was then.
		 */
		__u32 count;
		__u64 frame[KLOGGER_USER_FRAMES + 1];
		__u64 kept[KLOGGER_USER_KEPT_DEEP];
		__u64 near[KLOGGER_USER_NEAR];	/* a part of the words */
	} room[KLOGGER_USER_SCRATCHES];
	/*
	 * The hash of a word and of its process, in which the lowest bit says what it is. After a
	 * library was mapped at other addresses it may be wrong: then a caller is left out, or a
	 * word is kept that is none. In each place are the last two words that belong there, so
	 * that two of one stack do not replace each other at each hit.
	 */
	struct klogger_user_known {
		__u64 last, before;
	} known[KLOGGER_USER_KNOWN];
};
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*max_entries)[1];	/* the recorder sets the number of CPUs */
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_user_scratch)];
} klogger_user_scratch SEC(".maps");

struct mm_struct___klogger_image {
	unsigned long start_stack;
} __attribute__((preserve_access_index));
struct task_struct___klogger_image {
	int tgid;
	unsigned long long start_time;
	unsigned long long self_exec_id;
	struct mm_struct___klogger_image *mm;
	struct task_struct___klogger_image *group_leader;
} __attribute__((preserve_access_index));

#if defined(__TARGET_ARCH_x86)
struct pt_regs___klogger_near {
	unsigned long bp;
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
	struct klogger_user_room *room;
	struct klogger_user_known *known;
	__u64 image;		/* hash of the process and its program */
	__u64 second;		/* of words that cannot be read now: see klogger_is_return() */
	__u64 hash;
	__u64 slot;		/* its number */
	__u64 stack;		/* the stack pointer */
	__u64 frame;		/* the frame pointer, in bytes above it */
	__u32 near;		/* words that could be read of a part */
	__s32 part;		/* the first of them, in words above the stack pointer */
	__s32 next;		/* where the next part begins */
	__u32 words;		/* that are looked at */
	__u8 frames;		/* a byte each: on the stack, which is short */
	__u8 kept;
	__u8 most;		/* words that are kept */
	__u8 found;
	__u8 is_new;
};

static long klogger_hash_frame(__u64 n, void *data)
{
	struct klogger_user_hit *hit = data;

	if (n >= KLOGGER_USER_FRAMES)
		return 1;
	hit->hash = klogger_mix(hit->hash, hit->room->frame[n]);
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
/* 1 if it is 0, without a branch: a verifier tries both ways of each. */
static __always_inline __u64 klogger_is_zero(__u64 value)
{
	value |= -value;
	/* The compiler would make a comparison of it. */
	asm volatile("" : "+r"(value));
	return ~value >> 63;
}

/* Whether the instruction before this address is a call: of `call ADDRESS`, or of `call *...`. */
static __always_inline int klogger_after_call(__u64 address, int *is_there)
{
	__u64 code, is;
	int n;

	*is_there = !bpf_probe_read_user(&code, sizeof(code), (void *)(address - sizeof(code)));
	if (!*is_there)
		return 0;
	is = klogger_is_zero((code >> 24 & 0xff) ^ 0xe8);
	/* 0xff, and a byte of which three bits are 2, at 2 to 7 bytes before the address. */
#pragma unroll
	for (n = 1; n <= 6; n++)
		is |= klogger_is_zero((code >> (8 * n) & 0x38ff) ^ 0x10ff);
	return is;
}

/* Not a number: most words of a stack are. */
static __always_inline int klogger_is_address(__u64 word)
{
	return word - 0x10000 < (1ull << 47) - 0x10000;
}

struct vm_area_struct___klogger_code {
	unsigned long vm_flags;
} __attribute__((preserve_access_index));

static long klogger_see_flags(struct task_struct *task, struct vm_area_struct___klogger_code *area,
			      __u64 *flags)
{
	(void)task;
	*flags = area->vm_flags;
	return 0;
}

/*
 * Whether code is mapped there. `is_known`: not, while another thread changes what is mapped; and
 * with interrupts off the kernel looks up one address of a hit, and is busy for the others.
 */
static __always_inline int klogger_is_code(__u64 address, int *is_known)
{
	__u64 flags = 0;
	long error;

	error = bpf_find_vma(bpf_get_current_task_btf(), address, klogger_see_flags, &flags, 0);
	*is_known = error != -16 /* EBUSY */;
	return flags >> 2 & 1;	/* VM_EXEC */
}

/*
 * Whether a word is such an address. Reading what is there costs most, and ten times as much if
 * nothing is: not for numbers, and only once for what is there at each hit. A page that is not in
 * memory, as those of a child after fork() and those that were reclaimed, cannot be read: an
 * address of code may be one after a call, which the unwind tables will tell. It is tried again in
 * the next second.
 */
static __always_inline int klogger_is_return(const struct klogger_user_hit *hit, __u64 word)
{
	struct klogger_user_known *known;
	__u64 hash, last, before, unread;
	int is_there, is;

	if (!klogger_is_address(word))
		return 0;
	hash = klogger_mix(hit->image, word);
	known = &hit->known[hash >> 1 & (KLOGGER_USER_KNOWN - 1)];
	last = READ_ONCE(known->last);
	before = READ_ONCE(known->before);
	if (!((last ^ hash) >> 1))
		return last & 1;
	if (!((before ^ hash) >> 1))
		return before & 1;
	unread = hash ^ hit->second;
	if (!((last ^ unread) >> 1))
		return last & 1;
	if (!((before ^ unread) >> 1))
		return before & 1;
	is = klogger_after_call(word, &is_there);
	if (!is_there) {
		int is_known;

		is = klogger_is_code(word, &is_known);
		/* The next hit finds those that are known, and asks for one more. */
		if (!is_known)
			return 0;
	}
	WRITE_ONCE(known->before, last);
	WRITE_ONCE(known->last, ((is_there ? hash : unread) & ~1ull) | is);
	return is;
}

/*
 * A frame may begin so many bytes above the stack pointer if its second word is a return address.
 * That is so of all that the kernel can follow, and of few other words that point into the stack.
 */
static __always_inline __u64 klogger_second_word(const struct klogger_user_hit *hit, __u64 above)
{
	__u64 n = above / 8 + 1 - hit->part, word = 0;

	if (above & 7)
		return 0;
	if (n < hit->near) {
		/* The compiler would compare `above`: no use to verifiers of `n`. */
		asm volatile("" : "+r"(n));
		if (n < KLOGGER_USER_NEAR)
			return hit->room->near[n];
	}
	if (bpf_probe_read_user(&word, sizeof(word), (void *)(hit->stack + above + 8)))
		return 0;
	return word;
}

/*
 * Reads the part of the words that begins so many words above the stack pointer, or below it.
 * Returns whether it is there.
 */
static __always_inline int klogger_read_part(struct klogger_user_hit *hit, __s32 part)
{
	const void *from = (const void *)(hit->stack + 8ll * part);

	hit->part = part;
	hit->next = part + KLOGGER_USER_NEAR;
	hit->near = bpf_probe_read_user(hit->room->near, 8 * KLOGGER_USER_NEAR, from) ?
		0 : KLOGGER_USER_NEAR;
	return hit->near != 0;
}

/*
 * The first part. A page further up may not be there: at the end of a thread's stack, and where a
 * function has not used all of its room. So other parts, and if need be the first one, are within
 * a page.
 */
static __always_inline void klogger_read_near(struct klogger_user_hit *hit)
{
	__s32 before = hit->stack / 8 & (KLOGGER_USER_NEAR - 1);

	if (!klogger_read_part(hit, 0))
		klogger_read_part(hit, -before);
	else if (hit->words > KLOGGER_USER_NEAR)
		hit->next -= before;
}

/* One of the words nearest to the stack pointer. */
static long klogger_keep_word(__u64 n, void *data)
{
	struct klogger_user_hit *hit = data;
	struct klogger_user_room *room = hit->room;
	__u32 kept = READ_ONCE(room->count);
	__u64 word, above, at;

	if (n >= KLOGGER_USER_DEEP || kept >= KLOGGER_USER_KEPT_DEEP || kept >= hit->most)
		return 1;
	if ((__s64)n >= hit->next)
		klogger_read_part(hit, n);
	at = n - hit->part;
	if (at >= hit->near)
		return 0;
	/* The compiler would compare `near`: no use to verifiers of `at`. */
	asm volatile("" : "+r"(at));
	if (at >= KLOGGER_USER_NEAR)
		return 1;
	word = room->near[at];
	if (!klogger_is_address(word))
		return 0;
	above = word - hit->stack;
	/* The frame of a caller is further up. Libraries may be as close above a thread's stack. */
	if (above < (n < KLOGGER_USER_NEAREST ? KLOGGER_USER_FAR : 8ull * hit->words) &&
	    above > n * 8 && klogger_is_return(hit, klogger_second_word(hit, above)))
		word = above | KLOGGER_USER_IS_FRAME;
	else if (!klogger_is_return(hit, word))
		return 0;
	word |= n << KLOGGER_USER_AT;
	room->kept[kept] = word;
	WRITE_ONCE(room->count, kept + 1);
	hit->hash = klogger_mix(hit->hash, word);
	return 0;
}

static __always_inline void klogger_keep_words(struct klogger_user_hit *hit)
{
	struct task_struct___klogger_image *task = (void *)bpf_get_current_task_btf();
	struct pt_regs___klogger_near *regs = (void *)bpf_task_pt_regs((void *)task);
	__u64 beginning, frame, word;

	hit->stack = regs->sp;
	WRITE_ONCE(hit->room->count, 0);
	klogger_read_near(hit);
	/* The first thread began at its arguments and environment, which are no frames. */
	beginning = task->mm->start_stack - hit->stack;
	if (beginning < 8ull * hit->words)
		hit->words = beginning / 8;
	/*
	 * Another value, as of a pointer that goes through an array, would be another stack each.
	 * Of code at the beginning of its mapping the kernel's frames tell.
	 */
	frame = regs->bp - hit->stack;
	if (frame < KLOGGER_USER_STACK_SIZE) {
		word = klogger_second_word(hit, frame);
		if (word && ((hit->frames > 1 && word == hit->room->frame[1]) ||
			     (hit->frames > 2 && word == hit->room->frame[2]) ||
			     klogger_is_return(hit, word)))
			hit->frame = frame;
	}
	hit->hash = klogger_mix(hit->hash, hit->frame);
	bpf_loop(hit->words, klogger_keep_word, hit, 0);
	hit->kept = READ_ONCE(hit->room->count);
}
#else
/* On arm64 the address is in a register, which is not looked at. */
static __always_inline void klogger_keep_words(__attribute__((unused)) struct klogger_user_hit *hit)
{
}
#endif

/* Stores a stack in the slot that this hit has claimed. */
static __always_inline void klogger_keep_user_stack(const struct klogger_user_hit *hit, __u32 tgid)
{
	struct klogger_user_stacks *all = &klogger_user_stacks;
	__u32 frames = hit->frames & 127, kept = hit->kept & 255;
	__u64 at = __sync_fetch_and_add(&all->used, 3 + frames + kept);

	if (at >= KLOGGER_USER_WORDS) {
		klogger_user_stack_lost(1);
		return;
	}
	at &= KLOGGER_USER_WORDS - 1;
	all->word[at] = bpf_ktime_get_ns();
	all->word[at + 1] = (__u64)tgid << 32 | kept << 8 | frames;
	all->word[at + 2] = hit->frame;
	bpf_probe_read_kernel(&all->word[at + 3], frames * 8, hit->room->frame);
	if (kept <= KLOGGER_USER_KEPT_DEEP)
		bpf_probe_read_kernel(&all->word[at + 3 + frames], kept * 8, hit->room->kept);
	barrier();
	WRITE_ONCE(all->slot[hit->slot & (KLOGGER_USER_STACKS_MAX - 1)].place, at + 1);
}

/* The number of a stack's slot, after those of kernel stacks; 0 if there is none. */
static __always_inline __u32 klogger_user_stack_in(void *context, __u32 deep,
						   struct klogger_user_room *room,
						   struct klogger_user_known *known)
{
	struct task_struct___klogger_image *task = (void *)bpf_get_current_task_btf();
	struct klogger_user_hit hit = {
		.room = room, .known = known, .frame = KLOGGER_USER_NO_FRAME,
		.words = deep ? KLOGGER_USER_DEEP : KLOGGER_USER_NEAR,
		.most = deep ? KLOGGER_USER_KEPT_DEEP : KLOGGER_USER_KEPT};
	__u32 tgid = task->tgid;
	long bytes;

	bytes = bpf_get_stack(context, room->frame, 8 * KLOGGER_USER_FRAMES,
			      256 /* BPF_F_USER_STACK */);
	if (bytes <= 0) {
		/* A thread of the kernel has none: then there are 0 bytes. */
		if (bytes)
			klogger_user_stack_lost(2);
		return 0;
	}
	hit.frames = bytes / 8;
	hit.image = klogger_mix(task->group_leader->start_time, tgid);
	hit.image = klogger_mix(hit.image, task->self_exec_id);
	hit.second = bpf_ktime_get_ns() >> 30 << 1 | 1ull << 63;
	hit.hash = klogger_mix(hit.image, hit.frames);
	klogger_keep_words(&hit);
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

/*
 * Not inlined: it is long, and bodies may call it in several places. `deep`: it is a sample, see
 * config.h.
 */
static __noinline __u32 klogger_user_stack_of(void *context, __u32 deep)
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
	number = klogger_user_stack_in(context, deep, &scratch->room[busy],
				       scratch->known);
	__sync_fetch_and_and(&scratch->busy, ~free);
	return number;
}

#define klogger_user_stack() klogger_user_stack_of(klogger_context, 0)
#define klogger_context_user_stack() \
	klogger_user_stack_of(klogger_hit->context, klogger_hit->deep)

#endif
#endif
