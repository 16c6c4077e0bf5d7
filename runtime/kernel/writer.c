// SPDX-License-Identifier: GPL-2.0-only
/*
 * The slow path of an event. writer.h describes the protocol.
 *
 * All of it must work in NMI context: no locks, no allocation, no printk.
 */
#include <linux/atomic.h>
#include <linux/cgroup.h>
#include <linux/irq_work.h>
#include <linux/nsproxy.h>
#include <linux/uaccess.h>
#include <net/net_namespace.h>
#include <asm/linkage.h>
#include "core.h"

static DEFINE_PER_CPU(struct irq_work, klogger_wake_up);

static void klogger_on_wake_up(struct irq_work *work)
{
	klogger_device_call(smp_processor_id());
}

void klogger_wake_ups_begin(void)
{
	u32 cpu;

	/*
	 * Not by an initializer: a module's per-CPU data is not relocated, so a pointer in it would
	 * be NULL.
	 */
	for_each_possible_cpu(cpu)
		init_irq_work(per_cpu_ptr(&klogger_wake_up, cpu), klogger_on_wake_up);
}

void klogger_wake_ups_end(void)
{
	u32 cpu;

	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&klogger_wake_up, cpu));
}

/* ---- The primitives of writer.h ---- */

/* Size of the ring - 1. */
typedef u64 klogger_geometry;

#define KLOGGER_WRITER static
#define KLOGGER_CLAIM_TRIES ~0u
#define klogger_at(ring, mask, position) (&(ring)->data[(position) & (mask)])
#define klogger_part_shift(mask) (ilog2((mask) + 1) - KLOGGER_GRID_SHIFT)
#define klogger_overwrites() READ_ONCE(klogger_overwriting)
#define klogger_load(x) READ_ONCE(x)
#define klogger_set(x, value) WRITE_ONCE(x, value)
#define klogger_load_hard(ring) READ_ONCE((ring)->hard)
/* Writers of a ring are on one CPU, so no lock prefix is needed. */
#define klogger_swap(p, old, new) cmpxchg_local(p, old, new)
#define klogger_swap_shared(p, old, new) cmpxchg(p, old, new)
#define klogger_exchange(p, new) xchg(p, new)
#define klogger_add(p, n) atomic64_add(n, (atomic64_t *)(p))
#define klogger_publish(header, word) smp_store_release(header, word)
/* Through irq_work, because a hit may hold a run queue's lock, which a wake-up takes. */
#define klogger_wake_reader(ring) irq_work_queue(this_cpu_ptr(&klogger_wake_up))
#define klogger_on_loss(time) ((void)(time))

#include <klogger/writer.h>

/*
 * The ring has passed its low-water mark, or is full, or has just been; or this hit is nested, or
 * there is no ring. `ring` is the main one; preemption is disabled.
 */
void *klogger_reserve_slow(struct klogger_ring *ring, u64 time, u32 id, u32 size)
{
	s64 at;

	if (!ring->mask) {
		klogger_add(&klogger_ringless[id & (KLOGGER_EVENTS_MAX - 1)], 1);
		return NULL;
	}
	if (READ_ONCE(ring->nest) > 1)
		ring = klogger_nested_of(ring);
	at = klogger_reserve_slow_in(ring, ring->mask, time, id, size);
	return at < 0 ? NULL : klogger_at(ring, ring->mask, at);
}
EXPORT_SYMBOL_GPL(klogger_reserve_slow);

/* The record of TRIGGERED in klogger.klogger. */
struct klogger_triggered {
	u64 header;
	u16 trigger;
	u16 id;
	u32 unused;
};

/*
 * The recorder is woken at once, but by one trigger not more than once in so many units of the
 * clock, which are ns or less. It looks by itself after some hundredths of a second.
 */
#define KLOGGER_WAKE_AGAIN 1000000

/* Counts a hit, on whatever CPU. Returns whether the recorder is to be woken. */
static bool klogger_count_fired(u64 time, u32 trigger)
{
	struct klogger_fired_at *fired = &klogger_fired[trigger & (KLOGGER_TRIGGERS_MAX - 1)];

	cmpxchg(&fired->first, 0, time);
	WRITE_ONCE(fired->last, time);
	klogger_add(&fired->hits, 1);
	if (time - READ_ONCE(fired->woken) < KLOGGER_WAKE_AGAIN)
		return false;
	WRITE_ONCE(fired->woken, time);
	return true;
}

/* A trigger has fired, in the hit that has this time and the main ring of this CPU. */
void klogger_fire_slow(struct klogger_ring *ring, u64 time, u32 trigger, u32 id);
void klogger_fire_slow(struct klogger_ring *ring, u64 time, u32 trigger, u32 id)
{
	bool wake = klogger_count_fired(time, trigger - 1);
	struct klogger_triggered *record =
		klogger_reserve_slow(ring, time, KLOGGER_TRIGGERED_ID, sizeof(*record));

	BUILD_BUG_ON(sizeof(*record) != 16);
	if (record) {
		record->trigger = trigger;
		record->id = id;
		klogger_publish(&record->header, (time << 16) + KLOGGER_TRIGGERED_ID);
	}
	if (wake)
		klogger_wake_reader(ring);
}
EXPORT_SYMBOL_GPL(klogger_fire_slow);

u64 klogger_read_slow_clock(void)
{
	return klogger_monotonic();
}
EXPORT_SYMBOL_GPL(klogger_read_slow_clock);

#ifdef CONFIG_X86_64
/* A function that preserves all registers but the result's, so that its callers need not. */
#define KLOGGER_THUNK(name, function) \
	void name(void); \
	asm(".pushsection .text\n" \
	    ".globl " #name "\n" \
	    ".type " #name ", @function\n" \
	    #name ":\n" \
	    "push %rbp\n" \
	    "mov %rsp, %rbp\n" \
	    "push %rdi\n push %rsi\n push %rdx\n push %rcx\n" \
	    "push %r8\n push %r9\n push %r10\n push %r11\n" \
	    "call " #function "\n" \
	    "pop %r11\n pop %r10\n pop %r9\n pop %r8\n" \
	    "pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n" \
	    "pop %rbp\n" ASM_RET \
	    ".size " #name ", . - " #name "\n" \
	    ".popsection\n"); \
	EXPORT_SYMBOL_GPL(name)

KLOGGER_THUNK(klogger_reserve_thunk, klogger_reserve_slow);
KLOGGER_THUNK(klogger_clock_thunk, klogger_read_slow_clock);
KLOGGER_THUNK(klogger_fire_thunk, klogger_fire_slow);
#endif

int klogger_read(void *to, const void *from, size_t size)
{
	int error = copy_from_kernel_nofault(to, from, size);

	if (error)
		memset(to, 0, size);
	return error;
}
EXPORT_SYMBOL_GPL(klogger_read);

/* Page by page, because the string may end before unmapped memory. */
u32 klogger_read_text(char *to, const char *from, size_t size)
{
	size_t done = 0, part, length;

	while (done < size - 1) {
		part = min(size - 1 - done, (size_t)(PAGE_SIZE - offset_in_page(from + done)));
		if (copy_from_kernel_nofault(to + done, from + done, part))
			break;
		length = strnlen(to + done, part);
		done += length;
		if (length < part)
			break;
	}
	memset(to + done, 0, size - done);
	return done;
}
EXPORT_SYMBOL_GPL(klogger_read_text);

u32 klogger_text_length(const char *from, u32 most)
{
	char part[64];
	u32 done = 0, size, length;

	while (from && done < most) {
		size = min_t(u32, most - done, sizeof(part) - 1);
		length = klogger_read_text(part, from + done, size + 1);
		done += length;
		if (length < size)
			break;
	}
	return done;
}
EXPORT_SYMBOL_GPL(klogger_text_length);

u64 klogger_context_cgroup(void)
{
	u64 id = 0;

#ifdef CONFIG_CGROUPS
	rcu_read_lock();
	id = task_dfl_cgroup(current)->kn->id;
	rcu_read_unlock();
#endif
	return id;
}
EXPORT_SYMBOL_GPL(klogger_context_cgroup);

u32 klogger_context_netns(void)
{
	u32 number = 0;

#ifdef CONFIG_NET_NS
	/* Only the thread itself changes it. */
	if (current->nsproxy)
		number = current->nsproxy->net_ns->ns.inum;
#endif
	return number;
}
EXPORT_SYMBOL_GPL(klogger_context_netns);

u64 klogger_context_memcg(void)
{
	u64 id = 0;

#ifdef CONFIG_MEMCG
	rcu_read_lock();
	id = task_css(current, memory_cgrp_id)->cgroup->kn->id;
	rcu_read_unlock();
#endif
	return id;
}
EXPORT_SYMBOL_GPL(klogger_context_memcg);
