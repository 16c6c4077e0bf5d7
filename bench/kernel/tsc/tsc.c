// SPDX-License-Identifier: GPL-2.0-only
/*
 * What reading the cycle counter costs, in its own ticks: /sys/module/tsc/parameters/ticks.
 * Measured as the core module measures events: batches of 64 with interrupts off, each after one
 * that is not timed.
 */
#include <linux/irqflags.h>
#include <linux/math64.h>
#include <linux/module.h>

#define BATCH 64
#define BATCHES 1000

static __always_inline u64 counter(void)
{
	u32 low, high;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

/* Stores each reading, for an event does as much. */
static noinline void batch(u64 *out)
{
	int i;

	for (i = 0; i < BATCH; i++)
		WRITE_ONCE(out[i], counter());
}

static int ticks_get(char *buffer, const struct kernel_param *unused)
{
	static u64 out[BATCH];
	unsigned long flags;
	u64 begin, sum = 0;
	int i;

	for (i = 0; i < BATCHES; i++) {
		local_irq_save(flags);
		batch(out);
		begin = counter();
		batch(out);
		sum += counter() - begin;
		local_irq_restore(flags);
	}
	sum = div_u64(100 * sum, BATCH * BATCHES);
	return sprintf(buffer, "%llu.%02llu\n", sum / 100, sum % 100);
}

static const struct kernel_param_ops ticks_ops = { .get = ticks_get };

module_param_cb(ticks, &ticks_ops, NULL, 0400);
MODULE_DESCRIPTION("What reading the cycle counter costs");
MODULE_LICENSE("GPL");
