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

/* How a `struct pid` leads to its thread. */
struct hlist_node___klogger {
	void *next;
} __attribute__((preserve_access_index));

struct hlist_head___klogger {
	void *first;
} __attribute__((preserve_access_index));

struct pid___klogger_linked {
	struct hlist_head___klogger tasks[1];
} __attribute__((preserve_access_index));

struct task_struct___klogger_linked {
	int tgid;
	struct hlist_node___klogger pid_links[1];
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

/* What the kernel has at a number of the running thread's namespace, and the namespace's level. */
static __always_inline struct pid___klogger *klogger_pid_of(__u32 number, __u32 *level)
{
	struct task_struct___klogger_spaces *task = (void *)bpf_get_current_task_btf();
	/* Of the kernel that records, not of the one for which this is compiled. */
	__u32 size = __builtin_preserve_type_info(*(struct upid___klogger *)0, 1 /* its size */);
	struct pid_namespace___klogger *space = NULL;
	struct pid___klogger *pid = NULL, *found;
	struct upid___klogger *own, *its;
	void *of = NULL;
	int same = 0;

	klogger_peek(pid, task->thread_pid);
	if (!pid || klogger_peek(*level, pid->level))
		return NULL;
	*level &= 31;
	own = (void *)((char *)pid->numbers + *level * size);
	if (klogger_peek(space, own->ns) || !space)
		return NULL;
	found = klogger_find_pid(space, number);
	if (!found)
		return NULL;
	/* The tree may have changed meanwhile. */
	its = (void *)((char *)found->numbers + *level * size);
	klogger_peek(same, its->nr);
	klogger_peek(of, its->ns);
	return same == (int)number && of == space ? found : NULL;
}

/* For bodies: how deep the PID namespace of a thread is; 0: the outermost one, or it has ended. */
static __noinline __u32 klogger_pid_level(struct task_struct *task)
{
	struct pid___klogger *pid = NULL;
	__u32 level = 0;

	klogger_peek(pid, ((struct task_struct___klogger_spaces *)task)->thread_pid);
	if (pid)
		klogger_peek(level, pid->level);
	return level;
}

/*
 * For bodies: the kernel's number of the thread that has this one in the PID namespace of the
 * running thread; 0 if there is none, or not any more.
 */
static __noinline int klogger_thread_of(__u32 number)
{
	struct pid___klogger *pid;
	__u32 level = 0;
	int found = 0;

	if (!klogger_pid_level(bpf_get_current_task_btf()))
		return number;
	pid = klogger_pid_of(number, &level);
	if (pid)
		klogger_peek(found, ((struct upid___klogger *)pid->numbers)->nr);
	return found;
}

/*
 * For bodies: the number of a thread in the namespace of this level around it, and in `space` which
 * one that is; 0 if the thread is not in one so deep.
 */
static __noinline __u32 klogger_number_at(struct task_struct *task, __u32 level,
					   unsigned long *space)
{
	__u32 size = __builtin_preserve_type_info(*(struct upid___klogger *)0, 1 /* its size */);
	struct pid___klogger *pid = NULL;
	struct upid___klogger *at;
	__u32 deepest = 0, found = 0;

	if (!space)
		return 0;
	klogger_peek(pid, ((struct task_struct___klogger_spaces *)task)->thread_pid);
	if (!pid || klogger_peek(deepest, pid->level) || level > deepest)
		return 0;
	at = (void *)((char *)pid->numbers + (level & 31) * size);
	klogger_peek(*space, at->ns);
	klogger_peek(found, at->nr);
	return found;
}

/* For bodies: the process of that thread, by the kernel's number; 0 if there is no such thread. */
static __noinline int klogger_process_of(__u32 number)
{
	struct task_struct___klogger_linked *task;
	struct pid___klogger_linked *pid;
	__u32 level = 0;
	void *link = NULL;
	int found = 0;

	pid = (void *)klogger_pid_of(number, &level);
	if (!pid || klogger_peek(link, ((struct hlist_head___klogger *)pid->tasks)->first) ||
	    !link)
		return 0;
	task = (void *)((char *)link -
			__builtin_preserve_field_info(
				((struct task_struct___klogger_linked *)0)->pid_links,
				0 /* where it is */));
	klogger_peek(found, task->tgid);
	return found;
}

#endif
