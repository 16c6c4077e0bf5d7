// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core of the kernel engine: its one recording.
 *
 * An event is on while a recording runs that uses its schema, the recorder has switched it on, and
 * /proc/sys/klogger allows all events and this one. Everything here may sleep, and is serialized by
 * one mutex. Writers see only static keys and the pointer to their ring.
 */
#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/log2.h>
#include <linux/tracepoint.h>
#include "core.h"

DEFINE_MUTEX(klogger_mutex);
int klogger_enable = 1;

/*
 * The rings of the recording; NULL: no recording. Changed with both locks held. mmap() takes only
 * the second one: it is called with a lock held (mmap_lock) that requests, which copy from user
 * space, take after the mutex.
 */
static struct klogger_rings *klogger_rings;
static DEFINE_SPINLOCK(klogger_rings_lock);
static u32 klogger_used_lowwater;
static bool klogger_overwrite_mode;

struct klogger_rings *klogger_current_rings(void)
{
	return klogger_rings;
}

static void klogger_set_rings(struct klogger_rings *rings)
{
	spin_lock(&klogger_rings_lock);
	klogger_rings = rings;
	spin_unlock(&klogger_rings_lock);
}

/* The rings for a mapping of this many bytes, which holds a reference. */
struct klogger_rings *klogger_get_rings(u64 bytes)
{
	struct klogger_rings *rings;

	spin_lock(&klogger_rings_lock);
	rings = klogger_rings;
	if (!rings) {
		rings = ERR_PTR(-ENODATA);
	} else if (bytes != rings->stride * rings->cpus) {
		rings = ERR_PTR(-EINVAL);
	} else {
		kref_get(&rings->kref);
		rings->mapped = true;
	}
	spin_unlock(&klogger_rings_lock);
	return rings;
}

/* FNV-1a, as in device.h. */
u64 klogger_text_digest(const struct klogger_unit *unit)
{
	u64 hash = 0xcbf29ce484222325ull;
	u32 i;

	for (i = 0; i < unit->length; i++)
		hash = (hash ^ (u8)unit->text[i]) * 0x100000001b3ull;
	return hash;
}

/* ---- Events ---- */

static void klogger_update_event(struct klogger_unit *unit, u32 index)
{
	const struct klogger_event *event = &unit->event[index];

	if (klogger_rings && klogger_enable && unit->used && event->allowed && event->wanted)
		static_branch_enable(&unit->key[index]);
	else
		static_branch_disable(&unit->key[index]);
}

void klogger_update_unit(struct klogger_unit *unit)
{
	u32 i;

	for (i = 0; i < unit->events; i++)
		klogger_update_event(unit, i);
}

void klogger_update_events(void)
{
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i])
			klogger_update_unit(klogger_unit_at[i]);
}

/* Called by the recorder: switches one event. -ENOENT: no schema in use has this id. */
int klogger_want(u32 id, bool on)
{
	struct klogger_unit *unit;
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++) {
		unit = klogger_unit_at[i];
		if (unit && unit->used && id >= unit->base && id - unit->base < unit->events) {
			unit->event[id - unit->base].wanted = on;
			klogger_update_event(unit, id - unit->base);
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- The recording ---- */

/* The recorder uses this schema; its module stays loaded until the recording ends. */
int klogger_use_unit(const struct klogger_use *use)
{
	struct klogger_unit *unit;
	u32 i;

	if (use->index >= KLOGGER_UNITS_MAX || !klogger_unit_at[use->index])
		return -ENOENT;
	unit = klogger_unit_at[use->index];
	if (use->text_digest != klogger_text_digest(unit))
		return -ESTALE;
	if (klogger_rings || unit->used)
		return -EBUSY;
	if (!use->base || use->base >= KLOGGER_EVENTS_MAX ||
	    use->base + unit->events > KLOGGER_EVENTS_MAX)
		return -EINVAL;
	if (!try_module_get(unit->owner))
		return -ENOENT;
	unit->base = use->base;
	unit->used = true;
	for (i = 0; i < unit->events; i++)
		unit->event[i].wanted = false;
	return 0;
}

static struct klogger_rings *klogger_new_rings(u64 size)
{
	struct klogger_rings *rings;

	cpus_read_lock();
	rings = klogger_rings_make(size, klogger_used_lowwater, klogger_overwrite_mode);
	cpus_read_unlock();
	return rings;
}

static bool klogger_takes_stacks(void)
{
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i] && klogger_unit_at[i]->used && klogger_unit_at[i]->stacks)
			return true;
	return false;
}

/* Makes the rings. Events are off until klogger_want(). */
int klogger_begin(struct klogger_start *start)
{
	u64 size = start->ring_size ?: (u64)klogger_buffer_mb << 20;
	u32 lowwater = start->lowwater ?: klogger_lowwater;
	struct klogger_rings *rings;

	if (klogger_rings)
		return -EBUSY;
	if (size < KLOGGER_BUFFER_MIN || size > KLOGGER_BUFFER_MAX || !is_power_of_2(size) ||
	    lowwater > 90)
		return -EINVAL;
	klogger_choose_clock();
	klogger_overwrite_mode = start->overwrite;
	klogger_used_lowwater = lowwater;
	rings = klogger_new_rings(size);
	if (!rings)
		return -ENOMEM;
	start->stacks = klogger_takes_stacks();
	/* Last, because from now on they may be mapped. */
	if (start->stacks && klogger_stacks_make()) {
		klogger_rings_put(rings);
		return -ENOMEM;
	}
	memset(klogger_scope, 0, KLOGGER_SCOPE_BYTES);
	memset(klogger_ringless, 0, sizeof(u64) * KLOGGER_EVENTS_MAX);
	memset(klogger_fired, 0, KLOGGER_FIRED_BYTES);
	if (start->scoped)
		static_branch_enable(&klogger_scoped);
	klogger_rings_use(rings);
	klogger_set_rings(rings);
	start->ring_size = size;
	start->stride = rings->stride;
	return 0;
}

/*
 * Replaces the rings during a recording. The old rings are complete when the recorder is woken for
 * the new ones.
 */
int klogger_resize(u64 size)
{
	struct klogger_rings *old = klogger_rings, *rings;

	if (!old || old->size == size)
		return 0;
	/* Rings that the recorder has never mapped will not be drained. */
	if (!old->mapped || klogger_overwrite_mode)
		return -EBUSY;
	rings = klogger_new_rings(size);
	if (!rings)
		return -ENOMEM;
	klogger_rings_use(rings);
	klogger_set_rings(rings);
	klogger_rings_put(old);
	klogger_device_resized();
	return 0;
}

/* Also changes the recording that runs. */
void klogger_set_lowwater(u32 lowwater)
{
	klogger_lowwater = klogger_used_lowwater = lowwater;
	if (klogger_rings)
		klogger_rings_mark(klogger_rings, lowwater);
}

static bool klogger_is_attached(const struct klogger_unit *unit, u32 probe)
{
	u32 i;

	for (i = 0; i < unit->points; i++)
		if (unit->point[i].attached && unit->point[i].probe == probe)
			return true;
	return false;
}

/* Attaches the first alternative of each probe that this kernel has. */
static void klogger_attach_unit(struct klogger_unit *unit)
{
	struct klogger_attach_point *point;
	u32 i;

	for (i = 0; i < unit->points; i++) {
		point = &unit->point[i];
		point->error = 0;
		if (point->attached || klogger_is_attached(unit, point->probe))
			continue;
		point->error = klogger_point_attach(point);
		point->attached = !point->error;
	}
}

/*
 * The built-in schema is the first one, so that a new thread is in scope before other probes see
 * it.
 */
void klogger_attach(void)
{
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i] && klogger_unit_at[i]->used)
			klogger_attach_unit(klogger_unit_at[i]);
}

void klogger_detach_unit(struct klogger_unit *unit)
{
	u32 i;

	for (i = 0; i < unit->points; i++) {
		if (unit->point[i].attached)
			klogger_point_detach(&unit->point[i]);
		unit->point[i].attached = false;
	}
}

/* When it returns, no probe runs. */
void klogger_detach(void)
{
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i] && klogger_unit_at[i]->used)
			klogger_detach_unit(klogger_unit_at[i]);
	tracepoint_synchronize_unregister();
}

/* Not by memset(), because KASAN would check the redzones between the variables. */
static __no_sanitize_address void klogger_clear(char *from, const char *end)
{
	for (; from < end; from++)
		WRITE_ONCE(*from, 0);
}

/*
 * Probes run, but events are off: resets variables, whose values so far do not belong to the log.
 */
void klogger_forget(void)
{
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++) {
		const struct klogger_unit *unit = klogger_unit_at[i];

		if (unit && unit->used && unit->variables)
			klogger_clear(unit->variables, unit->variables_end);
	}
}

/* Ends the recording, in any state. */
void klogger_finish(void)
{
	struct klogger_rings *rings = klogger_rings;
	u32 i;

	klogger_set_rings(NULL);
	klogger_update_events();
	klogger_detach();
	klogger_rings_use(NULL);
	klogger_stacks_free();
	static_branch_disable(&klogger_scoped);
	if (rings)
		klogger_rings_put(rings);
	for (i = 0; i < KLOGGER_UNITS_MAX; i++) {
		struct klogger_unit *unit = klogger_unit_at[i];

		if (unit && unit->used) {
			unit->used = false;
			module_put(unit->owner);
		}
	}
}

static int __init klogger_core_begin(void)
{
	int error = klogger_rings_begin();

	if (error)
		return error;
	error = klogger_sysctl_begin();
	if (error)
		goto rings;
	error = klogger_register(&klogger_unit_klogger);
	if (error)
		goto control;
	error = klogger_device_begin();
	if (error)
		goto unit;
	return 0;
unit:
	klogger_unregister(&klogger_unit_klogger);
control:
	klogger_sysctl_end();
rings:
	klogger_rings_end();
	return error;
}

static void __exit klogger_core_end(void)
{
	klogger_device_end();
	klogger_unregister(&klogger_unit_klogger);
	klogger_sysctl_end();
	klogger_rings_end();
}

/* If built into a kernel: after the misc device class, and before schemata. */
fs_initcall(klogger_core_begin);
module_exit(klogger_core_end);
MODULE_DESCRIPTION("klogger: typed events of the kernel at the lowest cost");
MODULE_LICENSE("GPL");
