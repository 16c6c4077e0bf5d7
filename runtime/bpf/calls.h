/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls: `probe syscall` and `probe return syscall`.
 *
 * Whatever the number of probes, one program of a recording is attached to sys_enter, and one to
 * sys_exit. It looks the number of the call up in a table; a call that nobody asked for ends there.
 * Otherwise it continues, by a tail call, in the program of the call's first probe, which at its
 * end continues in that of the next one. Programs for all calls are at the end of every chain, so
 * that each program has one successor; one for several calls has a table of successors, by call. A
 * probe's program is in the slot of its number + 1.
 *
 * A 32-bit call has another number. The tables are by the number of the 64-bit call of its name.
 */
#ifndef KLOGGER_BPF_CALLS_H
#define KLOGGER_BPF_CALLS_H

#include "copies.h"
#include "kernel.h"
#include "scope.h"

/*
 * The registers that a system call saved. They hold its arguments until it returns, unless it is
 * execve(), which clears them, or rt_sigreturn(), which restores all from the stack.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___klogger_call {
	unsigned long bp, bx, r10, r9, r8, cx, dx, si, di, orig_ax;
} __attribute__((preserve_access_index));

struct thread_info___klogger_call {
	unsigned int status;
} __attribute__((preserve_access_index));

#define klogger_saved_number(regs) ((regs)->orig_ax)
#define KLOGGER_IS_32(thread) ((thread)->status & 2 /* TS_COMPAT */)
#else
struct pt_regs___klogger_call {
	unsigned long long regs[31];
	unsigned long long orig_x0;
	int syscallno;
} __attribute__((preserve_access_index));

struct thread_info___klogger_call {
	unsigned long flags;
} __attribute__((preserve_access_index));

#define klogger_saved_number(regs) ((__s64)(regs)->syscallno)
#define KLOGGER_IS_32(thread) ((thread)->flags >> 22 & 1 /* TIF_32BIT */)
#endif

struct task_struct___klogger_call {
	struct thread_info___klogger_call thread_info;
} __attribute__((preserve_access_index));

/* Whether the running thread is in a system call of the 32-bit ABI. */
static __always_inline int klogger_is_32(void)
{
	struct task_struct___klogger_call *p;

	if (!klogger_config.calls_32)
		return 0;
	p = (void *)bpf_get_current_task_btf();
	return KLOGGER_IS_32(&p->thread_info) != 0;
}

/* For bodies: 0 for a 64-bit call, 1 for a 32-bit call, 2 for one of the x32 ABI. */
static __always_inline int klogger_syscall_abi(void)
{
	if (klogger_is_32())
		return 1;
#if defined(__TARGET_ARCH_x86)
	struct pt_regs___klogger_call *regs =
		(void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if ((__u64)klogger_saved_number(regs) >> 30 == 1)
		return 2;
#endif
	return 0;
}

/*
 * Argument n, a constant. `saved`: a pointer to the registers; `is_32`: as klogger_is_32(). Those
 * of 32-bit calls are numbers without a sign.
 */
static __always_inline __u64 klogger_argument(__u64 saved, int n, int is_32)
{
	struct pt_regs___klogger_call *regs = (void *)saved;

#if defined(__TARGET_ARCH_x86)
	if (unlikely(is_32)) {
		switch (n) {
		case 0:
			return (__u32)regs->bx;
		case 1:
			return (__u32)regs->cx;
		case 2:
			return (__u32)regs->dx;
		case 3:
			return (__u32)regs->si;
		case 4:
			return (__u32)regs->di;
		default:
			return (__u32)regs->bp;
		}
	}
	switch (n) {
	case 0:
		return regs->di;
	case 1:
		return regs->si;
	case 2:
		return regs->dx;
	case 3:
		return regs->r10;
	case 4:
		return regs->r8;
	default:
		return regs->r9;
	}
#else
	__u64 value = n ? regs->regs[n] : regs->orig_x0;

	return is_32 ? (__u32)value : value;
#endif
}

/* The number of any call: that of a 32-bit program's call is marked, because it means another. */
static __always_inline __s64 klogger_call_number(__u64 saved)
{
	struct pt_regs___klogger_call *regs = (void *)saved;
	__s64 number = (__s64)klogger_saved_number(regs);

	return klogger_is_32() ? (__u32)number | KLOGGER_CALL_32 : number;
}

/*
 * For bodies: the number of the system call that the running thread is in, as of a probe of all
 * calls, and its argument n, a constant.
 */
#define klogger_syscall_number() \
	klogger_call_number((__u64)bpf_task_pt_regs(bpf_get_current_task_btf()))
#define klogger_syscall_argument(n) \
	klogger_argument((__u64)bpf_task_pt_regs(bpf_get_current_task_btf()), n, klogger_is_32())

#ifdef KLOGGER_SYSTEM_CALLS
/* The recorder fills it in; shared by all objects. */
struct klogger_call_table klogger_call_table SEC(".bss.klogger_y");

/* The programs of probes, by slot; shared by all objects. */
struct klogger_call_programs {
	int (*type)[3 /* BPF_MAP_TYPE_PROG_ARRAY */];
	int (*max_entries)[KLOGGER_PROBES_MAX + 1];
	int (*key_size)[4];
	int (*value_size)[4];
};
struct klogger_call_programs klogger_on_entry SEC(".maps");
struct klogger_call_programs klogger_on_exit SEC(".maps");

/* The beginning of a probe's program: as klogger_begin(), for a hit that is known to be new. */
static __always_inline int klogger_begin_call(__attribute__((unused)) void *arguments,
					      __attribute__((unused)) __u32 probe)
{
	if (klogger_config.beginning & KLOGGER_CHOOSES)
		klogger_choose_current();
	if (klogger_config.preempt)
		bpf_preempt_disable();
	return 1;
}

/* The slot of the next program of a probe at one call. */
static __always_inline __u32 klogger_next_of_probe(__u32 probe)
{
	__u32 n = (klogger_config.probes + probe) & (KLOGGER_PROBES_MAX - 1);

	return READ_ONCE(klogger_call_table.next[n]);
}

/* By the tables, the number of a 32-bit call. */
static __always_inline __u32 klogger_named(__u64 number)
{
	return READ_ONCE(klogger_call_table.named[number < KLOGGER_CALLS ? number : KLOGGER_CALLS]);
}

#ifdef KLOGGER_CALL_LISTS
/* The recorder fills it in: one for each program of this object for several calls. */
struct klogger_call_list klogger_call_lists[KLOGGER_CALL_LISTS] SEC(".bss.klogger_x");

/* The number of the running call in the tables. */
static __always_inline __u32 klogger_call_index(__u64 saved)
{
	struct pt_regs___klogger_call *regs = (void *)saved;
	__u64 number = (__u64)klogger_saved_number(regs);

	if (klogger_is_32())
		number = klogger_named(number);
	return number < KLOGGER_CALLS ? number : KLOGGER_CALLS;
}

static __always_inline __u32 klogger_place_of_call(__u64 saved, __u32 list)
{
	return READ_ONCE(klogger_call_lists[list].place[klogger_call_index(saved)]);
}

static __always_inline __u32 klogger_next_of_list(__u64 saved, __u32 list)
{
	return READ_ONCE(klogger_call_lists[list].next[klogger_call_index(saved)]);
}
#endif

/* Its end. `next`: a slot. A tail call is not allowed while preemption is off. */
#define klogger_end_call(hit, arguments, next, programs)                                           \
	({                                                                                         \
		__u32 klogger_slot = next;                                                         \
                                                                                                   \
		klogger_leave(hit);                                                                \
		if (klogger_config.preempt)                                                        \
			bpf_preempt_enable();                                                      \
		if (unlikely(klogger_slot))                                                        \
			bpf_tail_call(arguments, programs, klogger_slot);                          \
	})
#define klogger_end_entry(hit, arguments, probe, next) \
	klogger_end_call(hit, arguments, next, &klogger_on_entry)
#define klogger_end_exit(hit, arguments, probe, next) \
	klogger_end_call(hit, arguments, next, &klogger_on_exit)

/*
 * The slot in which to continue, 0 for none. Where this program can be preempted, every hit is
 * marked before it is passed on, also one that nobody asked for: a copy of this program must know
 * for each hit whether it was skipped (see copies.h).
 */
static __always_inline __u32 klogger_call_slot(const __u16 *first, void *arguments, __u64 number,
					       __u32 probe)
{
	__u32 slot = READ_ONCE(first[number < KLOGGER_CALLS ? number : KLOGGER_CALLS]);

	if (klogger_config.preempt) {
		if (klogger_config.copy && klogger_was_served(arguments, probe))
			return 0;
		klogger_served(arguments, probe);
	}
	if (likely(!slot))
		return 0;
	if (unlikely(klogger_is_32())) {
		number = klogger_named(number);
		slot = READ_ONCE(first[number < KLOGGER_CALLS ? number : KLOGGER_CALLS]);
	}
	return slot & ~KLOGGER_CALL_ASKED_32;
}

SEC("tp_btf/sys_enter")
int klogger_all_calls_sys_enter(unsigned long long *arguments)
{
	__u32 slot = klogger_call_slot(klogger_call_table.entry, arguments, arguments[1],
				       KLOGGER_ENTRY_PROBE);

	if (slot)
		bpf_tail_call(arguments, &klogger_on_entry, slot);
	return 0;
}

SEC("tp_btf/sys_exit")
int klogger_all_calls_sys_exit(unsigned long long *arguments)
{
	struct pt_regs___klogger_call *regs = (void *)arguments[0];
	__u32 slot = klogger_call_slot(klogger_call_table.exit, arguments,
				       (__u64)klogger_saved_number(regs), KLOGGER_EXIT_PROBE);

	if (slot)
		bpf_tail_call(arguments, &klogger_on_exit, slot);
	return 0;
}
#endif

#endif
