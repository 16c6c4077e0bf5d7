// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of rings: allocates it, gives it to writers, maps and frees it. ring.h describes the
 * protocol.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>
#include "core.h"

DEFINE_PER_CPU(struct klogger_ring *, klogger_ring);
EXPORT_PER_CPU_SYMBOL_GPL(klogger_ring);
DEFINE_STATIC_KEY_FALSE(klogger_scoped);
EXPORT_SYMBOL_GPL(klogger_scoped);
DEFINE_STATIC_KEY_FALSE(klogger_slow_clock);
EXPORT_SYMBOL_GPL(klogger_slow_clock);
unsigned long *klogger_scope;
EXPORT_SYMBOL_GPL(klogger_scope);
u64 *klogger_ringless;
struct klogger_fired_at *klogger_fired;
bool klogger_overwriting;

/*
 * The words before `first`: a ring without room, for CPUs that have none. Only such a ring has the
 * mask 0.
 */
static DEFINE_PER_CPU(u64 [8], klogger_no_ring);

static u64 klogger_ring_bytes(u64 size)
{
	return sizeof(struct klogger_ring) + size + KLOGGER_SLACK;
}

/* Main ring, then nested ring. */
u64 klogger_rings_stride(u64 size)
{
	return klogger_ring_bytes(size) + klogger_ring_bytes(KLOGGER_NESTED);
}

struct klogger_ring *klogger_nested_of(struct klogger_ring *main)
{
	return (void *)main + klogger_ring_bytes(main->mask + 1);
}

/*
 * Both rings of a CPU, not yet open. The allocation may fail, but does not invoke the OOM killer.
 */
struct klogger_ring *klogger_ring_make(u64 size)
{
	struct klogger_ring *main, *nested;

	main = __vmalloc(klogger_rings_stride(size),
			 GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!main)
		return NULL;
	main->mask = size - 1;
	nested = klogger_nested_of(main);
	nested->mask = KLOGGER_NESTED - 1;
	return main;
}

static void klogger_ring_open(struct klogger_ring *ring, u32 lowwater, bool overwrite)
{
	u64 size = ring->mask + 1;

	ring->mark = size / 100 * (100 - lowwater);
	ring->hard = overwrite ? ~0ull : size;
	ring->limit = overwrite ? 0 : ring->mark;
}

static void klogger_rings_free(struct kref *kref)
{
	struct klogger_rings *rings = container_of(kref, struct klogger_rings, kref);
	u32 cpu;

	for (cpu = 0; cpu < rings->cpus; cpu++)
		vfree(rings->of[cpu]);
	free_page((unsigned long)rings->none);
	kfree(rings);
}

void klogger_rings_put(struct klogger_rings *rings)
{
	kref_put(&rings->kref, klogger_rings_free);
}

/* Whether this much memory leaves enough for the rest of the system. */
static bool klogger_rings_fit(u64 size)
{
	u64 bytes = klogger_rings_stride(size) * num_online_cpus();

	return bytes / PAGE_SIZE < (u64)si_mem_available() / 4 * 3;
}

/*
 * For the CPUs that are online; the caller holds cpus_read_lock(). NULL: no memory, which is
 * printed to the kernel's log.
 */
struct klogger_rings *klogger_rings_make(u64 size, u32 lowwater, bool overwrite)
{
	struct klogger_rings *rings = kzalloc(struct_size(rings, of, nr_cpu_ids), GFP_KERNEL);
	bool fit = klogger_rings_fit(size);
	u32 cpu;

	if (!rings)
		return NULL;
	kref_init(&rings->kref);
	rings->size = size;
	rings->stride = klogger_rings_stride(size);
	rings->cpus = nr_cpu_ids;
	rings->none = (void *)get_zeroed_page(GFP_KERNEL);
	for_each_online_cpu(cpu) {
		if (fit && rings->none)
			rings->of[cpu] = klogger_ring_make(size);
		if (!rings->of[cpu]) {
			pr_err("no memory for rings of %llu KiB for each of %u CPUs\n", size >> 10,
			       num_online_cpus());
			klogger_rings_put(rings);
			return NULL;
		}
		klogger_ring_open(rings->of[cpu], lowwater, overwrite);
		klogger_ring_open(klogger_nested_of(rings->of[cpu]), lowwater, overwrite);
	}
	WRITE_ONCE(klogger_overwriting, overwrite);
	return rings;
}

/* From now on writers use these rings, or none. When it returns, the others have no writer left. */
void klogger_rings_use(struct klogger_rings *rings)
{
	u32 cpu;

	for_each_possible_cpu(cpu) {
		struct klogger_ring *ring = rings ? rings->of[cpu] : NULL;

		if (!ring)
			ring = (void *)per_cpu_ptr(klogger_no_ring, cpu);
		/*
		 * Pairs with the dependency in klogger_enter(): a writer that sees the ring sees it
		 * open.
		 */
		smp_store_release(per_cpu_ptr(&klogger_ring, cpu), ring);
	}
	/* Hits run with preemption disabled. */
	synchronize_rcu();
}

/* The reader uses the new mark when it next releases space. */
void klogger_rings_mark(struct klogger_rings *rings, u32 lowwater)
{
	u32 cpu;

	for (cpu = 0; cpu < rings->cpus; cpu++) {
		struct klogger_ring *main = rings->of[cpu];

		if (main) {
			WRITE_ONCE(main->mark, (main->mask + 1) / 100 * (100 - lowwater));
			WRITE_ONCE(klogger_nested_of(main)->mark,
				   KLOGGER_NESTED / 100 * (100 - lowwater));
		}
	}
}

/*
 * The page at an offset of the mapping. Where there is no ring it is an empty page, so that no
 * access of the recorder faults.
 */
struct page *klogger_rings_page(struct klogger_rings *rings, u64 offset)
{
	u64 cpu = div64_u64(offset, rings->stride);

	if (cpu >= rings->cpus || !rings->of[cpu])
		return virt_to_page(rings->none);
	return vmalloc_to_page((void *)rings->of[cpu] + (offset - cpu * rings->stride));
}

/*
 * Whether this CPU's ring has room for a record of any size, and for one more of a nested hit.
 * Preemption is off.
 */
bool klogger_has_room(void)
{
	const struct klogger_ring *ring = __this_cpu_read(klogger_ring);

	return !ring->mask ||
	       READ_ONCE(ring->head) + 2 * KLOGGER_RECORD_MAX <= READ_ONCE(ring->hard);
}

/* Called while no recording runs. The kernel may find out late that the counter is unusable. */
void klogger_choose_clock(void)
{
	if (klogger_counter_is_steady())
		static_branch_disable(&klogger_slow_clock);
	else
		static_branch_enable(&klogger_slow_clock);
}

int klogger_rings_begin(void)
{
	BUILD_BUG_ON(sizeof(struct klogger_ring) % PAGE_SIZE);
	BUILD_BUG_ON(sizeof(*klogger_fired) * KLOGGER_TRIGGERS_MAX > KLOGGER_FIRED_BYTES);
	BUILD_BUG_ON(offsetof(struct klogger_ring, first) != sizeof(klogger_no_ring));
	klogger_scope = vzalloc(KLOGGER_SCOPE_BYTES);
	klogger_ringless = vzalloc(sizeof(u64) * KLOGGER_EVENTS_MAX);
	klogger_fired = vzalloc(KLOGGER_FIRED_BYTES);
	if (!klogger_scope || !klogger_ringless || !klogger_fired) {
		klogger_rings_end();
		return -ENOMEM;
	}
	klogger_wake_ups_begin();
	klogger_rings_use(NULL);
	klogger_choose_clock();
	return 0;
}

void klogger_rings_end(void)
{
	klogger_wake_ups_end();
	vfree(klogger_scope);
	vfree(klogger_ringless);
	vfree(klogger_fired);
}
