// SPDX-License-Identifier: GPL-2.0-only
/* /proc/sys/klogger/benchmarks: measures what an event costs, in a ring without a reader. */
#include <linux/irqflags.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>
#include "core.h"

/* Bytes of the ring into which benchmarks log; it has room for several events of any size. */
#define KLOGGER_BENCH_RING (1u << 19)
#define KLOGGER_BENCH_BATCH (KLOGGER_BENCH_RING / 2 / KLOGGER_RECORD_MAX)

/*
 * Logs a few events into a separate ring, with nothing in between. The first pass is not timed: it
 * warms the caches.
 */
static u64 klogger_bench_batch(struct klogger_unit *unit, u32 index, struct klogger_ring *scratch,
			       u32 count)
{
	struct klogger_ring *kept;
	unsigned long flags;
	u64 begin, end;

	local_irq_save(flags);
	kept = __this_cpu_read(klogger_ring);
	scratch->hard = scratch->limit = KLOGGER_BENCH_RING;
	__this_cpu_write(klogger_ring, scratch);
	scratch->head = 0;
	unit->bench(index, count);
	scratch->head = 0;
	begin = klogger_clock();
	unit->bench(index, count);
	end = klogger_clock();
	__this_cpu_write(klogger_ring, kept);
	local_irq_restore(flags);
	return end - begin;
}

/* Mean cost of an event in ticks. -EBUSY: a recording runs. Called with klogger_mutex held. */
int klogger_bench(struct klogger_unit *unit, u32 index, u32 iterations, u64 *mean)
{
	struct klogger_ring *scratch;
	u32 left, count;
	u64 sum = 0;

	/*
	 * Only schemata with generated modules have a benchmark, not other code that defines
	 * events.
	 */
	if (!unit->bench)
		return -EOPNOTSUPP;
	/* While a benchmark runs, events in interrupts go to its ring and are discarded. */
	if (klogger_current_rings())
		return -EBUSY;
	scratch = klogger_ring_make(KLOGGER_BENCH_RING);
	if (!scratch)
		return -ENOMEM;
	for (left = iterations; left; left -= count) {
		count = min_t(u32, left, KLOGGER_BENCH_BATCH);
		sum += klogger_bench_batch(unit, index, scratch, count);
		cond_resched();
		if (fatal_signal_pending(current))
			break;
	}
	vfree(scratch);
	*mean = div_u64(sum, iterations);
	return left ? -EINTR : 0;
}
