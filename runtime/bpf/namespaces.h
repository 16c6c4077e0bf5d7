/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ids of other PID namespaces. What a program passes to system calls, is told by them, or keeps in
 * its memory, are numbers of the namespace that it is in; all events have the kernel's own, which
 * are those of the outermost namespace.
 */
#ifndef KLOGGER_BPF_NAMESPACES_H
#define KLOGGER_BPF_NAMESPACES_H

#include "kernel.h"

/* A tree of the kernel: lib/radix-tree.c, include/linux/xarray.h. */
struct xa_node___klogger {
	unsigned char shift;
	void *slots[64];
} __attribute__((preserve_access_index));

struct xarray___klogger {
	void *xa_head;
} __attribute__((preserve_access_index));

struct idr___klogger {
	struct xarray___klogger idr_rt;
	unsigned int idr_base;
} __attribute__((preserve_access_index));

struct pid_namespace___klogger {
	struct idr___klogger idr;
} __attribute__((preserve_access_index));

/* Levels of the tree: numbers have at most 22 bits, a node has at least 16 slots. */
#define KLOGGER_PID_LEVELS 6

/* Reads a member: the verifier knows none of these pointers. */
#define klogger_peek(to, member) bpf_probe_read_kernel(&(to), sizeof(to), &(member))

/* What the kernel has at a number: a `struct pid`; NULL if there is none. */
static __always_inline struct pid___klogger *
klogger_find_pid(struct pid_namespace___klogger *space, __u32 number)
{
	__u32 slots = __builtin_preserve_field_info(((struct xa_node___klogger *)0)->slots,
						    1 /* its size */) / sizeof(void *);
	struct xa_node___klogger *node;
	unsigned char shift = 0;
	void *entry = NULL;
	__u32 base = 0, at;

	klogger_peek(base, space->idr.idr_base);
	klogger_peek(entry, space->idr.idr_rt.xa_head);
	at = number - base;
	for (int level = 0; level < KLOGGER_PID_LEVELS; level++) {
		/* A node is marked by 2 in the lowest bits; small numbers with them are marks. */
		if (((__u64)entry & 3) != 2 || (__u64)entry < 4096)
			break;
		node = (void *)((__u64)entry - 2);
		entry = NULL;
		if (klogger_peek(shift, node->shift) || (level == 0 && at >> shift >= slots))
			break;
		bpf_probe_read_kernel(&entry, sizeof(entry),
				      &node->slots[at >> shift & (slots - 1)]);
		if (!shift)
			break;
	}
	/* Without a node the tree has number 0 only, which no thread has. */
	return shift || ((__u64)entry & 3) ? NULL : entry;
}

/*
 * For bodies: the kernel's number of the thread that has this one in the PID namespace of the
 * running thread; 0 if there is none, or not any more.
 */
static __noinline int klogger_thread_of(__u32 number)
{
	struct task_struct___klogger_spaces *task = (void *)bpf_get_current_task_btf();
	/* Of the kernel that records, not of the one for which this is compiled. */
	__u32 size = __builtin_preserve_type_info(*(struct upid___klogger *)0, 1 /* its size */);
	struct pid_namespace___klogger *space = NULL;
	struct pid___klogger *pid = NULL, *found;
	struct upid___klogger *own, *inner;
	void *of = NULL;
	__u32 level = 0;
	int same = 0, result = 0;

	klogger_peek(pid, task->thread_pid);
	if (!pid || klogger_peek(level, pid->level))
		return 0;
	level &= 31;
	if (!level)
		return number;
	own = (void *)((char *)pid->numbers + level * size);
	klogger_peek(space, own->ns);
	if (!space)
		return 0;
	found = klogger_find_pid(space, number);
	if (!found)
		return 0;
	/* The tree may have changed meanwhile. */
	inner = (void *)((char *)found->numbers + level * size);
	if (klogger_peek(same, inner->nr) || klogger_peek(of, inner->ns) || same != (int)number ||
	    of != space)
		return 0;
	klogger_peek(result, found->numbers[0].nr);
	return result;
}

#endif
