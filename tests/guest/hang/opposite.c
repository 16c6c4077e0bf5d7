// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two kernel threads take two mutexes in opposite order, each when the other one has its first.
 * They sleep in the D state until the module is removed, which ends their waits by SIGKILL.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>

struct side {
	const char *name;
	struct mutex *first, *second;
	struct completion *mine, *theirs;
	struct task_struct *thread;
};

static DEFINE_MUTEX(lock_a);
static DEFINE_MUTEX(lock_b);
static DECLARE_COMPLETION(has_a);
static DECLARE_COMPLETION(has_b);
static struct side sides[] = {
	{ "opposite-a", &lock_a, &lock_b, &has_a, &has_b },
	{ "opposite-b", &lock_b, &lock_a, &has_b, &has_a },
};

static noinline void take_both(struct side *side)
{
	mutex_lock(side->first);
	complete(side->mine);
	wait_for_completion(side->theirs);
	if (!mutex_lock_killable(side->second))
		mutex_unlock(side->second);
	mutex_unlock(side->first);
}

static int run(void *data)
{
	allow_kernel_signal(SIGKILL);
	take_both(data);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 10);
	return 0;
}

static void end(void)
{
	for (int i = 0; i < ARRAY_SIZE(sides); i++)
		if (sides[i].thread)
			send_sig(SIGKILL, sides[i].thread, 1);
	for (int i = 0; i < ARRAY_SIZE(sides); i++)
		if (sides[i].thread)
			kthread_stop(sides[i].thread);
}

static int __init begin(void)
{
	pr_info("opposite: locks %px %px\n", &lock_a, &lock_b);
	for (int i = 0; i < ARRAY_SIZE(sides); i++) {
		struct task_struct *thread = kthread_run(run, &sides[i], "%s", sides[i].name);

		if (IS_ERR(thread)) {
			/* The other one waits for this one's completion. */
			complete_all(sides[i].mine);
			end();
			return PTR_ERR(thread);
		}
		sides[i].thread = thread;
	}
	return 0;
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("A dead-lock for a test of klogger");
MODULE_LICENSE("GPL");
