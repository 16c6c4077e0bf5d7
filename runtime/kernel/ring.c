// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rings: memory, and what is not on an event's straight path. The protocol stands in ring.h.
 *
 * Everything that writers reach must work in NMI context: no locks, no allocation, no printk.
 */
#include <linux/atomic.h>
#include <linux/cgroup.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/linkage.h>
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
static bool klogger_overwriting;

/*
 * The words before `first`: a ring without room, for CPUs that have none. Its mask is 0, and nobody
 * else's is.
 */
static DEFINE_PER_CPU(u64 [8], klogger_no_ring);

static void klogger_on_call(struct irq_work *work)
{
	klogger_device_call(smp_processor_id());
}

static DEFINE_PER_CPU(struct irq_work, klogger_calling);

static u64 klogger_ring_bytes(u64 size)
{
	return sizeof(struct klogger_ring) + size + KLOGGER_SLACK;
}

/* Main ring, then nested ring. */
u64 klogger_rings_stride(u64 size)
{
	return klogger_ring_bytes(size) + klogger_ring_bytes(KLOGGER_NESTED);
}

static struct klogger_ring *klogger_nested_of(struct klogger_ring *main)
{
	return (void *)main + klogger_ring_bytes(main->mask + 1);
}

/* ---- Out of the straight path ---- */

static atomic64_t *klogger_counter_at(u64 *counters, u32 id)
{
	return (atomic64_t *)&counters[id & (KLOGGER_EVENTS_MAX - 1)];
}

static void klogger_count_lost(struct klogger_ring *ring, u64 time, u32 id)
{
	if (!READ_ONCE(ring->missed))
		WRITE_ONCE(ring->missed_since, time);
	atomic64_inc((atomic64_t *)&ring->missed);
	atomic64_inc(klogger_counter_at(ring->lost, id));
}

/*
 * Overwrite mode. If the record crosses into another part of the grid, the next one is the first
 * that begins there.
 */
static void klogger_note_first(struct klogger_ring *ring, u64 begin, u64 end)
{
	u32 shift = ilog2(ring->mask + 1) - KLOGGER_GRID_SHIFT;

	if (begin >> shift != end >> shift)
		WRITE_ONCE(ring->first[end >> shift & (KLOGGER_GRID - 1)], end);
}

/*
 * By compare-and-swap, for hits that interrupt each other share a nested ring. Each failure is
 * another writer's success, so nobody waits here. The load of `hard` pairs with the drain's release
 * store after zeroing.
 */
static void *klogger_claim(struct klogger_ring *ring, u32 size)
{
	u64 head = READ_ONCE(ring->head), seen;

	for (;; head = seen) {
		if (head + size > READ_ONCE(ring->hard))
			return NULL;
		seen = cmpxchg_local(&ring->head, head, head + size);
		if (seen == head)
			break;
	}
	if (READ_ONCE(klogger_overwriting))
		klogger_note_first(ring, head, head + size);
	return &ring->data[head & ring->mask];
}

/* Says in the ring itself how many events are missing before the one that follows. */
static bool klogger_put_lost(struct klogger_ring *ring, u64 time)
{
	u64 since = READ_ONCE(ring->missed_since);
	u64 missed = atomic64_xchg((atomic64_t *)&ring->missed, 0);
	struct klogger_lost *lost;

	if (!missed)
		return true;
	lost = klogger_claim(ring, sizeof(*lost));
	if (!lost) {
		atomic64_add(missed, (atomic64_t *)&ring->missed);
		return false;
	}
	lost->count = missed;
	lost->since = since;
	/* Pairs with the acquire load in the recorder's drain. */
	smp_store_release(&lost->header, KLOGGER_HEADER(time, KLOGGER_LOST_ID));
	return true;
}

/*
 * Past the low-water mark: once. By irq_work, for a hit may hold a run queue's lock, which a
 * wake-up takes.
 */
static void klogger_call_reader(struct klogger_ring *ring)
{
	WRITE_ONCE(ring->limit, READ_ONCE(ring->hard));
	irq_work_queue(this_cpu_ptr(&klogger_calling));
}

/*
 * The ring has passed its low-water mark, or is full, or has just been; or this hit has interrupted
 * another one, or there is no ring. `ring` is the main one; preemption is disabled.
 */
void *klogger_reserve_slow(struct klogger_ring *ring, u64 time, u32 id, u32 size)
{
	void *record;

	if (!ring->mask) {
		atomic64_inc(klogger_counter_at(klogger_ringless, id));
		return NULL;
	}
	if (READ_ONCE(ring->nest) > 1)
		ring = klogger_nested_of(ring);
	if (READ_ONCE(klogger_overwriting))
		atomic64_inc(klogger_counter_at(ring->attempts, id));
	else if (READ_ONCE(ring->limit) < READ_ONCE(ring->hard) && READ_ONCE(ring->head) + size > READ_ONCE(ring->limit))
		klogger_call_reader(ring);
	/* Room for both, or else a ring that is nearly full would hold little but LOST records. */
	if (READ_ONCE(ring->missed) && (READ_ONCE(ring->head) + sizeof(struct klogger_lost) + size > READ_ONCE(ring->hard) ||
					!klogger_put_lost(ring, time))) {
		klogger_count_lost(ring, time, id);
		return NULL;
	}
	record = klogger_claim(ring, size);
	if (!record)
		klogger_count_lost(ring, time, id);
	return record;
}
EXPORT_SYMBOL_GPL(klogger_reserve_slow);

u64 klogger_read_slow_clock(void)
{
	return klogger_monotonic();
}
EXPORT_SYMBOL_GPL(klogger_read_slow_clock);

#ifdef CONFIG_X86_64
/* A function that keeps all registers but the result's, so that its callers need not. */
#define KLOGGER_THUNK(name, function)                                                                                  \
	void name(void);                                                                                               \
	asm(".pushsection .text\n"                                                                                     \
	    ".globl " #name "\n"                                                                                       \
	    ".type " #name ", @function\n"                                                                             \
	    #name ":\n"                                                                                                \
	    "push %rbp\n"                                                                                              \
	    "mov %rsp, %rbp\n"                                                                                         \
	    "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %r10\n push %r11\n"            \
	    "call " #function "\n"                                                                                     \
	    "pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"                    \
	    "pop %rbp\n" ASM_RET                                                                                       \
	    ".size " #name ", . - " #name "\n"                                                                         \
	    ".popsection\n");                                                                                          \
	EXPORT_SYMBOL_GPL(name)

KLOGGER_THUNK(klogger_reserve_thunk, klogger_reserve_slow);
KLOGGER_THUNK(klogger_clock_thunk, klogger_read_slow_clock);
#endif

int klogger_read(void *to, const void *from, size_t size)
{
	int error = copy_from_kernel_nofault(to, from, size);

	if (error)
		memset(to, 0, size);
	return error;
}
EXPORT_SYMBOL_GPL(klogger_read);

/* Page by page, for the text may end before memory that is not there. */
u32 klogger_read_text(char *to, const char *from, size_t size)
{
	size_t done = 0, part, length;

	while (done < size - 1) {
		part = min(size - 1 - done, (size_t)(PAGE_SIZE - offset_in_page(from + done)));
		if (copy_from_kernel_nofault(to + done, from + done, part))
			break;
		length = strnlen(to + done, part);
		done += length;
		if (length < part)
			break;
	}
	memset(to + done, 0, size - done);
	return done;
}
EXPORT_SYMBOL_GPL(klogger_read_text);

u64 klogger_context_cgroup(void)
{
	u64 id = 0;

#ifdef CONFIG_CGROUPS
	rcu_read_lock();
	id = task_dfl_cgroup(current)->kn->id;
	rcu_read_unlock();
#endif
	return id;
}
EXPORT_SYMBOL_GPL(klogger_context_cgroup);

/* ---- Memory ---- */

/* Both rings of a CPU, closed. Rather fails than that it ends other processes. */
struct klogger_ring *klogger_ring_make(u64 size)
{
	struct klogger_ring *main, *nested;

	main = __vmalloc(klogger_rings_stride(size), GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
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

/* Whether so many rings leave something for everybody else. */
static bool klogger_rings_fit(u64 size)
{
	u64 bytes = klogger_rings_stride(size) * num_online_cpus();

	return bytes / PAGE_SIZE < (u64)si_mem_available() / 4 * 3;
}

/*
 * For the CPUs that are online; the caller holds cpus_read_lock(). NULL: no memory, and the
 * kernel's log says so.
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
			pr_err("no memory for rings of %llu KiB for each of %u CPUs\n", size >> 10, num_online_cpus());
			klogger_rings_put(rings);
			return NULL;
		}
		klogger_ring_open(rings->of[cpu], lowwater, overwrite);
		klogger_ring_open(klogger_nested_of(rings->of[cpu]), lowwater, overwrite);
	}
	WRITE_ONCE(klogger_overwriting, overwrite);
	return rings;
}

/* From now on writers use these, or none. When it returns, the others have no writer left. */
void klogger_rings_use(struct klogger_rings *rings)
{
	u32 cpu;

	for_each_possible_cpu(cpu) {
		struct klogger_ring *ring = rings ? rings->of[cpu] : NULL;

		if (!ring)
			ring = (void *)per_cpu_ptr(klogger_no_ring, cpu);
		/* Pairs with the dependency in klogger_enter(): who sees the ring sees it open. */
		smp_store_release(per_cpu_ptr(&klogger_ring, cpu), ring);
	}
	/* Hits run with preemption disabled. */
	synchronize_rcu();
}

/* The reader takes the new mark when it next gives space back. */
void klogger_rings_mark(struct klogger_rings *rings, u32 lowwater)
{
	u32 cpu;

	for (cpu = 0; cpu < rings->cpus; cpu++) {
		struct klogger_ring *main = rings->of[cpu];

		if (main) {
			WRITE_ONCE(main->mark, (main->mask + 1) / 100 * (100 - lowwater));
			WRITE_ONCE(klogger_nested_of(main)->mark, KLOGGER_NESTED / 100 * (100 - lowwater));
		}
	}
}

/*
 * The page at an offset of the mapping. Where there is no ring it is empty, for no touch is to end
 * the recorder.
 */
struct page *klogger_rings_page(struct klogger_rings *rings, u64 offset)
{
	u64 cpu = div64_u64(offset, rings->stride);

	if (cpu >= rings->cpus || !rings->of[cpu])
		return virt_to_page(rings->none);
	return vmalloc_to_page((void *)rings->of[cpu] + (offset - cpu * rings->stride));
}

/*
 * Whether this CPU's ring has room for a record of any size, and for one that comes in between.
 * Preemption is off.
 */
bool klogger_has_room(void)
{
	const struct klogger_ring *ring = __this_cpu_read(klogger_ring);

	return !ring->mask || READ_ONCE(ring->head) + 2 * KLOGGER_RECORD_MAX <= READ_ONCE(ring->hard);
}

/*
 * While nobody records. The kernel may have found out only lately that the counter is not what it
 * seemed to be.
 */
void klogger_choose_clock(void)
{
	if (klogger_counter_is_steady())
		static_branch_disable(&klogger_slow_clock);
	else
		static_branch_enable(&klogger_slow_clock);
}

int klogger_rings_begin(void)
{
	u32 cpu;

	BUILD_BUG_ON(sizeof(struct klogger_ring) % PAGE_SIZE);
	BUILD_BUG_ON(offsetof(struct klogger_ring, first) != sizeof(klogger_no_ring));
	klogger_scope = vzalloc(KLOGGER_SCOPE_BYTES);
	klogger_ringless = vzalloc(sizeof(u64) * KLOGGER_EVENTS_MAX);
	if (!klogger_scope || !klogger_ringless) {
		klogger_rings_end();
		return -ENOMEM;
	}
	/*
	 * Not by an initializer: a module's per-CPU data is not relocated, so that a pointer in it
	 * would be NULL.
	 */
	for_each_possible_cpu(cpu)
		init_irq_work(per_cpu_ptr(&klogger_calling, cpu), klogger_on_call);
	klogger_rings_use(NULL);
	klogger_choose_clock();
	return 0;
}

void klogger_rings_end(void)
{
	u32 cpu;

	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&klogger_calling, cpu));
	vfree(klogger_scope);
	vfree(klogger_ringless);
}
