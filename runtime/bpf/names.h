/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Names of threads that are not recorded. Events name such threads, and the recorder looks up
 * their names in /proc when it has drained the events. For a thread that has ended by then, or has
 * another name, its name is kept here.
 */
#ifndef KLOGGER_BPF_NAMES_H
#define KLOGGER_BPF_NAMES_H

#include "filter.h"
#include "kernel.h"

/* A ring; shared by all objects of a recording. */
struct klogger_left_names klogger_left_names SEC(".bss.klogger_g");

/* The exchanges are barriers: who reads the same serial before and after has read one name. */
static __noinline int klogger_keep_name(struct task_struct___klogger_name *p, int ended)
{
	__u64 n = __sync_fetch_and_add(&klogger_left_names.head, 1);
	struct klogger_left_name *name =
		&klogger_left_names.names[n & (KLOGGER_LEFT_NAMES - 1)];

	__sync_lock_test_and_set(&name->serial, 0);
	name->until = bpf_ktime_get_ns();
	name->start = p->start_time;
	name->tid = p->pid;
	name->tgid = p->tgid;
	name->ended = ended;
	bpf_probe_read_kernel(name->comm, sizeof(name->comm), p->comm);
	__sync_lock_test_and_set(&name->serial, n + 1);
	return 0;
}

/* For the built-in probes: a thread ends, or gets another name. */
static __always_inline void klogger_leave_name(void *task, int ended)
{
	struct task_struct___klogger_name *p = task;

	if (klogger_config.scoped && !klogger_in_scope(p->pid))
		klogger_keep_name(p, ended);
}

#endif
