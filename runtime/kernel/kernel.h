/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels and architectures that the kernel engine handles, one entry each.
 * Everything else is free of versions. Also includes the declarations that probes may use.
 */
#ifndef KLOGGER_KERNEL_KERNEL_H
#define KLOGGER_KERNEL_KERNEL_H

#include <linux/binfmts.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kernel_stat.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/skbuff.h>
#include <linux/sysctl.h>
#include <linux/timekeeping.h>
#include <linux/version.h>
#include <linux/workqueue.h>

/*
 * The cycle counter. User Mode Linux on x86 (there is no CONFIG_X86) runs on the real CPU, so it
 * has one too. The read is unordered: an ordered one costs twice as much, and what follows depends
 * on the result anyway.
 */
#if defined(__x86_64__)
static __always_inline u64 klogger_counter(void)
{
	u64 low, high;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return high << 32 | low;
}
#elif defined(CONFIG_ARM64)
#include <asm/sysreg.h>
#define klogger_counter() read_sysreg(cntvct_el0)
#else
#define klogger_counter() ktime_get_mono_fast_ns()
#endif

#define klogger_monotonic() ktime_get_mono_fast_ns()

/*
 * Whether the counter is synchronous on all CPUs and has a constant rate. On x86 the kernel has
 * checked this for its own clock.
 */
#if defined(CONFIG_X86)
#include <asm/cpufeature.h>
#include <asm/tsc.h>
#define klogger_counter_is_steady() (boot_cpu_has(X86_FEATURE_TSC) && !check_tsc_unstable())
#elif defined(CONFIG_UML) && defined(__x86_64__)
#define klogger_counter_is_steady() true	/* one CPU */
#elif defined(CONFIG_ARM64)
#define klogger_counter_is_steady() true	/* guaranteed by the architecture */
#else
#define klogger_counter_is_steady() false
#endif

/*
 * sched_switch passes prev_state by value since 5.18 (fa2c3254d7cf, "sched/tracing: Don't re-read
 * p->state when emitting sched_switch event"); schemata name that parameter. `preempt` tells that
 * the thread was pushed off its CPU between deciding to sleep and sleeping: its state is then not
 * 0, but it is still runnable.
 */
#define klogger_switch_state(preempt, prev_state) ((preempt) ? 0 : (prev_state))

#define klogger_task_cpu(task) task_cpu(task)

#define klogger_current() current

/* What many schemata log of a thread, a file or a block request. */
#define klogger_task_ppid(task) (rcu_dereference_raw((task)->real_parent)->tgid)
#define klogger_task_cgroup(task) \
	cgroup_id(rcu_dereference_raw((task)->cgroups)->dfl_cgrp)
#define klogger_file_ino(file) ((file)->f_inode->i_ino)
#define klogger_file_dev(file) ((file)->f_inode->i_sb->s_dev)
#define klogger_file_name(file) ((const char *)(file)->f_path.dentry->d_name.name)
#define klogger_task_tid(task) ((task)->pid)
#define klogger_task_is_kernel(task) (!!((task)->flags & PF_KTHREAD))
#define klogger_inode_ino(inode) ((inode)->i_ino)
#define klogger_inode_dev(inode) ((inode)->i_sb->s_dev)
#define klogger_dentry_ino(dentry) ((dentry)->d_inode ? (dentry)->d_inode->i_ino : 0)
#define klogger_dentry_name(dentry) ((const char *)(dentry)->d_name.name)
#define klogger_request_dev(rq) ((rq)->q->disk ? (rq)->q->disk->part0->bd_dev : 0)
#define klogger_request_sector(rq) blk_rq_pos(rq)
#define klogger_request_bytes(rq) blk_rq_bytes(rq)

/* Schemata test for the architecture with the macro that BPF programs have for it. */
#ifdef __x86_64__
#define __TARGET_ARCH_x86
#endif

/* Time that the hypervisor has taken from this CPU, in ns, as of the last tick. */
#define klogger_steal_ns() (kcpustat_cpu(raw_smp_processor_id()).cpustat[CPUTIME_STEAL])

/*
 * A run queue is private to the scheduler, but it is a per-CPU variable: its distance from another
 * per-CPU variable that modules can access is the same on all CPUs. The first call finds the CPU
 * with the smallest distance, because the memory of different CPUs is further apart than variables
 * of one CPU.
 */
static inline unsigned int klogger_rq_cpu(const struct rq *rq)
{
	static unsigned long known;
	unsigned int cpu = raw_smp_processor_id(), nearest = cpu;
	unsigned long distance, smallest = ULONG_MAX;

	if (known && (unsigned long)rq - (unsigned long)&kcpustat_cpu(cpu) == known)
		return cpu;
	for_each_possible_cpu(cpu) {
		distance = abs((long)rq - (long)&kcpustat_cpu(cpu));
		if (distance < smallest) {
			smallest = distance;
			nearest = cpu;
		}
	}
	WRITE_ONCE(known, (unsigned long)rq - (unsigned long)&kcpustat_cpu(nearest));
	return nearest;
}

/* Until 6.18 the number of threads was after the lock, at the very beginning. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
struct klogger_rq_begin {
	raw_spinlock_t lock;
	unsigned int nr_running;
};

#define klogger_rq_nr_running(rq) READ_ONCE(((const struct klogger_rq_begin *)(rq))->nr_running)
#endif

/* The n-th argument of a function, or its result, from the register that contains it. */
#define klogger_as(type, value)                                                                   \
	({                                                                                        \
		unsigned long klogger_value = (value);                                            \
		_Static_assert(sizeof(type) <= sizeof(long),                                      \
			       "a probe's parameter must fit a register");                        \
		*(type *)((char *)&klogger_value +                                                \
			  (IS_ENABLED(CONFIG_CPU_BIG_ENDIAN) ? sizeof(long) - sizeof(type) : 0)); \
	})

/*
 * Tables of sysctl end with an empty entry until 6.11 (d7a76ec87195, "sysctl: Remove check for
 * sentinel element in ctl_table arrays"), and have a length since 6.6.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define klogger_sysctl_register(path, table, size) register_sysctl(path, table)
#else
#define klogger_sysctl_register(path, table, size) register_sysctl_sz(path, table, size)
#endif

/*
 * Handlers' tables are constant since 6.11 (78eb4ea25cd5, "sysctl: treewide: constify the ctl_table
 * argument of proc_handlers").
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define klogger_ctl_table struct ctl_table
#else
#define klogger_ctl_table const struct ctl_table
#endif

/*
 * vma->vm_flags is changed by a function since 6.3 (bc292ab00f6c, "mm: introduce vma->vm_flags
 * wrapper functions").
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define klogger_vm_flags(vma, set, clear) ((vma)->vm_flags = ((vma)->vm_flags | (set)) & ~(clear))
#else
#define klogger_vm_flags(vma, set, clear) vm_flags_mod(vma, set, clear)
#endif

#endif
