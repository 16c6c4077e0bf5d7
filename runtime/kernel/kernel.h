/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels and architectures that the kernel engine knows of, one entry each. Everything else is
 * free of versions. It also brings the declarations that probes may use.
 */
#ifndef KLOGGER_KERNEL_KERNEL_H
#define KLOGGER_KERNEL_KERNEL_H

#include <linux/binfmts.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kernel_stat.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/skbuff.h>
#include <linux/sysctl.h>
#include <linux/timekeeping.h>
#include <linux/version.h>
#include <linux/workqueue.h>

/*
 * The cycle counter. User Mode Linux on x86 (there is no CONFIG_X86) runs on the real processor, so it has a real one.
 * Unordered: an ordered one costs twice as much, and what follows depends on the result anyway.
 */
#if defined(__x86_64__)
static __always_inline u64 klogger_counter(void)
{
	u32 low, high;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}
#elif defined(CONFIG_ARM64)
#include <asm/sysreg.h>
#define klogger_counter() read_sysreg(cntvct_el0)
#else
#define klogger_counter() ktime_get_mono_fast_ns()
#endif

#define klogger_monotonic() ktime_get_mono_fast_ns()

/* Whether the counter is one clock for all CPUs, of one speed. */
#if defined(CONFIG_X86)
#include <asm/cpufeature.h>
#include <asm/tsc.h>
#define klogger_counter_is_steady() (boot_cpu_has(X86_FEATURE_CONSTANT_TSC) && !check_tsc_unstable())
#elif defined(CONFIG_UML) && defined(__x86_64__)
#define klogger_counter_is_steady() true	/* one CPU */
#elif defined(CONFIG_ARM64)
#define klogger_counter_is_steady() true	/* the architecture says so */
#else
#define klogger_counter_is_steady() false
#endif

/*
 * sched_switch passes prev_state by value since 5.18 (fa2c3254d7cf, "sched/tracing: Don't re-read p->state when emitting
 * sched_switch event"); schemata name that parameter. `preempt` tells that the thread was pushed off its CPU between
 * deciding to sleep and sleeping: its state is then not 0, but it is still runnable.
 */
#define klogger_switch_state(preempt, prev_state) ((preempt) ? 0 : (prev_state))

#define klogger_task_cpu(task) task_cpu(task)

/* Tables of sysctl end with an empty entry until 6.11 (d7a76ec87195, "sysctl: Remove check for sentinel element in
 * ctl_table arrays"), and have had a length since 6.6. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define klogger_sysctl_register(path, table, size) register_sysctl(path, table)
#else
#define klogger_sysctl_register(path, table, size) register_sysctl_sz(path, table, size)
#endif

/* Handlers' tables are constant since 6.11 (78eb4ea25cd5, "sysctl: treewide: constify the ctl_table argument of
 * proc_handlers"). */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define klogger_ctl_table struct ctl_table
#else
#define klogger_ctl_table const struct ctl_table
#endif

/* vma->vm_flags is changed by a function since 6.3 (bc292ab00f6c, "mm: introduce vma->vm_flags wrapper functions"). */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define klogger_vm_flags(vma, set, clear) ((vma)->vm_flags = ((vma)->vm_flags | (set)) & ~(clear))
#else
#define klogger_vm_flags(vma, set, clear) vm_flags_mod(vma, set, clear)
#endif

#endif
