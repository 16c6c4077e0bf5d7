// SPDX-License-Identifier: GPL-2.0-only
/* The schemata in the kernel: those of loaded modules, and built-in ones. */
#include <linux/tracepoint.h>
#include "core.h"

struct klogger_unit *klogger_unit_at[KLOGGER_UNITS_MAX];

static bool klogger_has_event(const struct klogger_unit *unit, const char *name)
{
	u32 i;

	for (i = 0; i < unit->events; i++)
		if (!strcmp(unit->event[i].name, name))
			return true;
	return false;
}

/* A name that a schema would share with another one, or NULL. */
static const char *klogger_taken_name(const struct klogger_unit *unit,
				      const struct klogger_unit *other)
{
	u32 i;

	if (!strcmp(unit->name, other->name))
		return unit->name;
	for (i = 0; i < unit->events; i++)
		if (klogger_has_event(other, unit->event[i].name))
			return unit->event[i].name;
	return NULL;
}

static int klogger_find_index(const struct klogger_unit *unit)
{
	int i, free = -ENOSPC;

	for (i = KLOGGER_UNITS_MAX - 1; i >= 0; i--) {
		const char *taken =
			klogger_unit_at[i] ? klogger_taken_name(unit, klogger_unit_at[i]) : NULL;

		if (taken) {
			pr_err("schema %s is not loaded: there is a '%s' already\n", unit->name,
			       taken);
			return -EEXIST;
		}
		if (!klogger_unit_at[i])
			free = i;
	}
	return free;
}

int klogger_register(struct klogger_unit *unit)
{
	static DEFINE_MUTEX(one_at_a_time);
	int index, error;
	u32 i;

	if (unit->events > KLOGGER_EVENTS_MAX)
		return -E2BIG;
	for (i = 0; i < unit->events; i++)
		unit->event[i].allowed = 1;
	unit->used = false;
	mutex_lock(&one_at_a_time);
	mutex_lock(&klogger_mutex);
	index = klogger_find_index(unit);
	mutex_unlock(&klogger_mutex);
	/* Without klogger_mutex: removing files waits for their users, and these take the mutex. */
	error = index < 0 ? index : klogger_sysctl_add(unit);
	if (!error) {
		mutex_lock(&klogger_mutex);
		klogger_unit_at[index] = unit;
		mutex_unlock(&klogger_mutex);
	}
	mutex_unlock(&one_at_a_time);
	return error;
}
EXPORT_SYMBOL_GPL(klogger_register);

/*
 * For a module that a recording uses, but that the kernel unloads: the rest of its init has failed.
 */
static void klogger_drop_unit(struct klogger_unit *unit)
{
	unit->used = false;
	klogger_update_unit(unit);
	klogger_detach_unit(unit);
	tracepoint_synchronize_unregister();
	module_put(unit->owner);
}

void klogger_unregister(struct klogger_unit *unit)
{
	u32 i;

	klogger_sysctl_remove(unit);
	mutex_lock(&klogger_mutex);
	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i] == unit)
			klogger_unit_at[i] = NULL;
	if (unit->used)
		klogger_drop_unit(unit);
	mutex_unlock(&klogger_mutex);
}
EXPORT_SYMBOL_GPL(klogger_unregister);
