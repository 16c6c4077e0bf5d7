// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an event costs in ticks of the TSC, which are instructions in a guest that counts them
 * (scripts/guest --icount).
 *
 * Each file of /sys/module/hits/parameters is an arm: a function with one event in it. Reading the
 * file calls the function in batches with interrupts off, and tells the number of calls in a batch,
 * and the least, the median, the sum and the most of the batches' ticks, and how many batches there
 * were. What an empty function takes is to be subtracted. `code` tells where the functions of
 * klogger's calls begin, and their first bytes as they are in memory now.
 */
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sort.h>
#include <trace/events/power.h>
#define KLOGGER_DEFINE
#include "calls.klogger.h"

#define BATCH 64
#define BATCHES 500

/*
 * Where an event's fields come from: memory, as usual, and not side by side, where two would be
 * copied as one.
 */
static unsigned int hits_fields[16] = { 1000000, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0 };

static int hits_compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int hits_measure(void (*batch)(const unsigned int *fields), char *buffer)
{
	static u64 ticks[BATCHES];	/* the kernel has a lock for the parameters of a module */
	unsigned long flags;
	u64 sum = 0;
	int i;

	for (i = 0; i < BATCHES; i++) {
		local_irq_save(flags);
		ticks[i] = klogger_counter();
		batch(hits_fields);
		ticks[i] = klogger_counter() - ticks[i];
		local_irq_restore(flags);
		sum += ticks[i];
		cond_resched();
	}
	sort(ticks, BATCHES, sizeof(ticks[0]), hits_compare, NULL);
	return sprintf(buffer, "%d %llu %llu %llu %llu %d\n", BATCH, ticks[0], ticks[BATCHES / 2],
		       sum, ticks[BATCHES - 1], BATCHES);
}

#define ARM(name, event)                                                                 \
	static noinline __noclone notrace void hits_##name(const unsigned int *v)        \
	{                                                                                \
		event;                                                                   \
	}                                                                                \
	static void hits_batch_##name(const unsigned int *v)                             \
	{                                                                                \
		int i;                                                                   \
                                                                                         \
		for (i = 0; i < BATCH; i++)                                              \
			hits_##name(v);                                                  \
	}                                                                                \
	static int hits_get_##name(char *buffer, const struct kernel_param *unused)      \
	{                                                                                \
		return hits_measure(hits_batch_##name, buffer);                          \
	}                                                                                \
	static const struct kernel_param_ops hits_ops_##name = {.get = hits_get_##name}; \
	module_param_cb(name, &hits_ops_##name, NULL, 0400)

ARM(empty, asm volatile("" : : "r"(v)));
ARM(tracepoint, trace_cpu_frequency(v[0], v[2]));
ARM(two, klogger(TWO, v[0], v[2]));
ARM(eight, klogger(EIGHT, v[0], v[2], v[4], v[6], v[8], v[10], v[12], v[14]));
ARM(printk, printk(KERN_DEBUG "frequency=%u cpu=%u\n", v[0], v[2]));

static int hits_code_get(char *buffer, const struct kernel_param *unused)
{
	return sprintf(buffer, "two %*ph\neight %*ph\n", 64, hits_two, 64, hits_eight);
}

static const struct kernel_param_ops hits_code_ops = { .get = hits_code_get };

module_param_cb(code, &hits_code_ops, NULL, 0400);

static int __init hits_begin(void)
{
	return klogger_register(&klogger_unit_calls);
}

static void __exit hits_end(void)
{
	klogger_unregister(&klogger_unit_calls);
}

module_init(hits_begin);
module_exit(hits_end);
MODULE_DESCRIPTION("What an event costs");
MODULE_LICENSE("GPL");
