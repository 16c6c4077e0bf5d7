/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels, one entry each, behind a getter. Everything else is free of kernel versions.
 * A type with a `___suffix` stands for the kernel's type of that name as it is on the kernels named here.
 */
#ifndef KLOGGER_BPF_KERNEL_H
#define KLOGGER_BPF_KERNEL_H

/*
 * sched_switch passes prev_state by value since 5.18 (fa2c3254d7cf, "sched/tracing: Don't re-read p->state when emitting
 * sched_switch event"); schemata name that parameter. `preempt` tells that the thread was pushed off its CPU between
 * deciding to sleep and sleeping: its state is then not 0, but it is still runnable.
 */
#define klogger_switch_state(preempt, prev_state) ((preempt) ? 0 : (prev_state))

/* The priority of a thread, for `context prio`. */
struct task_struct___klogger {
	int prio;
} __attribute__((preserve_access_index));

#define klogger_context_prio() (((struct task_struct___klogger *)bpf_get_current_task_btf())->prio)

/* Since 5.16 (bcf9033e5449, "sched: move CPU field back into thread_info") the CPU of a thread stands there. */
struct thread_info___klogger {
	unsigned int cpu;
} __attribute__((preserve_access_index));

struct task_struct___klogger_cpu {
	struct thread_info___klogger thread_info;
} __attribute__((preserve_access_index));

#define klogger_task_cpu(task) (((struct task_struct___klogger_cpu *)(task))->thread_info.cpu)

#endif
