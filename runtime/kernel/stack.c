// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernel stacks: each stack gets a number, so that an event contains only 4 bytes of it.
 *
 * The table has a fixed size, and is searched by hash. A slot never changes once it is complete, so
 * no lock is needed: a hit that finds a free slot claims it by compare-and-swap, and skips slots
 * that are just being written. So a stack may, rarely, have two numbers.
 */
#include <linux/atomic.h>
#include <linux/jhash.h>
#include <linux/stacktrace.h>
#include <linux/vmalloc.h>
#include "core.h"

/* Number of slots that are tried for one stack. */
#define KLOGGER_STACK_TRIES 8
/* The frame of this function. The recorder removes other frames of the tracing. */
#define KLOGGER_STACK_SKIP 1

struct klogger_stacks *klogger_stacks;

static bool klogger_is_stack(const struct klogger_stack_slot *slot, const unsigned long *frame,
			     u32 frames)
{
	u32 i;

	/* Pairs with the release store in klogger_take_slot(). */
	if (smp_load_acquire(&slot->state) != KLOGGER_STACK_COMPLETE || slot->frames != frames)
		return false;
	for (i = 0; i < frames; i++)
		if (slot->frame[i] != frame[i])
			return false;
	return true;
}

static bool klogger_take_slot(struct klogger_stack_slot *slot, const unsigned long *frame,
			      u32 frames)
{
	u32 i;

	if (READ_ONCE(slot->state) ||
	    cmpxchg(&slot->state, KLOGGER_STACK_FREE, KLOGGER_STACK_BEGUN))
		return false;
	for (i = 0; i < frames; i++)
		slot->frame[i] = frame[i];
	slot->frames = frames;
	/* Pairs with the acquire load in klogger_is_stack(), and with the recorder's. */
	smp_store_release(&slot->state, KLOGGER_STACK_COMPLETE);
	return true;
}

u32 klogger_stack(void)
{
	struct klogger_stacks *stacks = READ_ONCE(klogger_stacks);
	unsigned long frame[KLOGGER_STACK_DEPTH];
	u32 frames, hash, i, at;

	if (!stacks)
		return 0;
	frames = stack_trace_save(frame, KLOGGER_STACK_DEPTH, KLOGGER_STACK_SKIP);
	hash = jhash2((u32 *)frame, frames * sizeof(*frame) / sizeof(u32), 0);
	for (i = 0; i < KLOGGER_STACK_TRIES; i++) {
		at = (hash + i) % KLOGGER_STACK_SLOTS;
		if (klogger_is_stack(&stacks->slot[at], frame, frames) ||
		    klogger_take_slot(&stacks->slot[at], frame, frames))
			return at + 1;
	}
	atomic64_inc((atomic64_t *)&stacks->no_place);
	return 0;
}
EXPORT_SYMBOL_GPL(klogger_stack);

int klogger_stacks_make(void)
{
	/* New for each recording: the last one's table was unmapped. */
	klogger_stacks = __vmalloc(PAGE_ALIGN(sizeof(*klogger_stacks)),
				   GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (klogger_stacks)
		return 0;
	pr_err("no memory for stacks\n");
	return -ENOMEM;
}

/* Called when no probe runs any more. */
void klogger_stacks_free(void)
{
	vfree(klogger_stacks);
	klogger_stacks = NULL;
}
