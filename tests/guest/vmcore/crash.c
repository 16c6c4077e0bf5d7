// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hits a tracepoint many times, with a number for each hit, and makes the kernel panic.
 *
 * Writing N to /sys/module/crash/parameters/hits makes N hits, 1 to N; writing it to `last` makes
 * the kernel panic after them, with a message that has the number of hits and the time
 * (CLOCK_MONOTONIC) after the last one. `flood` does not wait: a thread makes the hits.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <trace/events/power.h>

static int crash_thread(void *count)
{
	unsigned long i;

	for (i = 1; i <= (unsigned long)count; i++) {
		trace_suspend_resume("crash", i, true);
		if (i % 256 == 0)
			cond_resched();
	}
	return 0;
}

static int crash_hit(const char *text, unsigned int *count)
{
	return kstrtouint(text, 0, count) ?: crash_thread((void *)(unsigned long)*count);
}

static int crash_flood(const char *text, const struct kernel_param *param)
{
	unsigned long count;
	int error = kstrtoul(text, 0, &count);

	if (error)
		return error;
	return PTR_ERR_OR_ZERO(kthread_run(crash_thread, (void *)count, "crash"));
}

static int crash_hits(const char *text, const struct kernel_param *param)
{
	unsigned int count;

	return crash_hit(text, &count);
}

static int crash_last(const char *text, const struct kernel_param *param)
{
	unsigned int count;
	int error = crash_hit(text, &count);
	u64 now = ktime_get_mono_fast_ns();

	if (error)
		return error;
	panic("hits of thread %d: %u until %llu ns", current->pid, count, now);
}

static const struct kernel_param_ops crash_hits_ops = { .set = crash_hits };
static const struct kernel_param_ops crash_flood_ops = { .set = crash_flood };
static const struct kernel_param_ops crash_last_ops = { .set = crash_last };
module_param_cb(hits, &crash_hits_ops, NULL, 0200);
module_param_cb(flood, &crash_flood_ops, NULL, 0200);
module_param_cb(last, &crash_last_ops, NULL, 0200);

MODULE_DESCRIPTION("Numbered hits of a tracepoint, and a panic");
MODULE_LICENSE("GPL");
