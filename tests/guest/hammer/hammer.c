// SPDX-License-Identifier: GPL-2.0-only
/*
 * Logs as fast as it can, from one thread for each CPU, until it is stopped.
 *
 * Each thread has a sequence for each event, which advances only while the event is on: an event
 * that is off does not evaluate its arguments, and these count. So the ends of the sequences are
 * the numbers of attempts, whatever was switched meanwhile. /sys/module/hammer/parameters/run: 1
 * starts from 0, 0 stops; reading it returns the ends, of HAMMER and of HAMMER_TEXT.
 */
#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#define KLOGGER_DEFINE
#include "hammer.klogger.h"

struct hammer {
	u64 n, texts;
	struct task_struct *thread;
};

static struct hammer hammers[NR_CPUS];

/* Not bound to a CPU, because CPUs go offline and online: the scheduler spreads them. */
static int hammer_in_thread(void *data)
{
	struct hammer *h = data;
	u16 number = h - hammers;

	while (!kthread_should_stop()) {
		klogger(HAMMER, ++h->n, number);
		klogger(HAMMER_TEXT, ++h->texts, number, "a text that is longer than a number");
		cond_resched();
	}
	return 0;
}

static void hammer_stop(void)
{
	int i;

	for_each_possible_cpu(i) {
		if (hammers[i].thread)
			kthread_stop(hammers[i].thread);
		hammers[i].thread = NULL;
	}
}

static int hammer_start(void)
{
	struct task_struct *thread;
	int i;

	for_each_possible_cpu(i) {
		hammers[i].n = hammers[i].texts = 0;
		thread = kthread_run(hammer_in_thread, &hammers[i], "hammer/%d", i);
		if (IS_ERR(thread)) {
			hammer_stop();
			return PTR_ERR(thread);
		}
		/* Other threads must get a share of the CPU. */
		set_user_nice(thread, 5);
		hammers[i].thread = thread;
	}
	return 0;
}

static int hammer_run(const char *text, const struct kernel_param *parameter)
{
	bool run;
	int error = kstrtobool(text, &run);

	if (error)
		return error;
	hammer_stop();
	return run ? hammer_start() : 0;
}

static int hammer_tell(char *text, const struct kernel_param *parameter)
{
	u64 n = 0, texts = 0;
	int i;

	for_each_possible_cpu(i) {
		n += READ_ONCE(hammers[i].n);
		texts += READ_ONCE(hammers[i].texts);
	}
	return sysfs_emit(text, "%llu %llu\n", n, texts);
}

static const struct kernel_param_ops hammer_parameter = { .set = hammer_run, .get = hammer_tell };
module_param_cb(run, &hammer_parameter, NULL, 0600);

static int __init hammer_init(void)
{
	return klogger_register(&klogger_unit_hammer);
}

static void __exit hammer_exit(void)
{
	hammer_stop();
	klogger_unregister(&klogger_unit_hammer);
}

module_init(hammer_init);
module_exit(hammer_exit);
MODULE_LICENSE("GPL");
