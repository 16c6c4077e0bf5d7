// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/sys/klogger, as in the paper:
 *
 *   enable         0: nothing is logged, whatever runs; 1
 *   EVENT          the same for one event
 *   buffer_size    MB of each CPU's ring; a power of two. A recording that runs goes on with new
 *                  rings
 *   lowwater       percent of a ring that should stay free
 *   mark           to write: a number, and after a blank a text, for the log (the event MARK)
 *   benchmarks/    iterations, and for each event a file: reading it logs the event so many times,
 *                  into no log, and gives the mean cost in ticks of the clock
 *
 * Only root reads and writes them.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <linux/uaccess.h>
#include "core.h"
#include "klogger.klogger.h"

unsigned int klogger_buffer_mb = 4;
unsigned int klogger_lowwater = 10;
static unsigned int klogger_iterations = 1000;

static unsigned int klogger_one = 1;
static unsigned int klogger_most_mb = KLOGGER_BUFFER_MAX >> 20;
static unsigned int klogger_most_lowwater = 90;
static unsigned int klogger_most_iterations = 10000000;

/* The files of a schema. */
struct klogger_sysctl {
	struct ctl_table_header *events;
	struct ctl_table_header *benchmarks;
	struct ctl_table *tables;
};

/* ---- Events ---- */

static void klogger_log_state(struct klogger_unit *unit, u32 index)
{
	const struct klogger_event *event = &unit->event[index];

	if (unit->used)
		klogger(LOGGING_EVENT, unit->base + index,
			klogger_enable && event->allowed && event->wanted, event->name);
}

static void klogger_log_states(void)
{
	u32 i, j;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		for (j = 0; klogger_unit_at[i] && j < klogger_unit_at[i]->events; j++)
			klogger_log_state(klogger_unit_at[i], j);
}

/* The log says that events go off before they do, and that they are on after that. */
static void klogger_apply_enable(int value)
{
	klogger_enable = value;
	if (!value)
		klogger_log_states();
	klogger_update_events();
	if (value)
		klogger_log_states();
}

static int klogger_write_enable(klogger_ctl_table *table, int write, void *buffer, size_t *size,
				loff_t *at)
{
	struct ctl_table copy = *table;
	int value = klogger_enable, error;

	copy.data = &value;
	error = proc_dointvec_minmax(&copy, write, buffer, size, at);
	if (error || !write)
		return error;
	mutex_lock(&klogger_mutex);
	if (klogger_enable != value)
		klogger_apply_enable(value);
	mutex_unlock(&klogger_mutex);
	return 0;
}

static int klogger_write_event(klogger_ctl_table *table, int write, void *buffer, size_t *size,
			       loff_t *at)
{
	struct klogger_unit *unit = table->data;
	u32 index = (unsigned long)table->extra1;
	struct ctl_table copy = *table;
	int value = unit->event[index].allowed, error;

	copy.data = &value;
	copy.extra1 = SYSCTL_ZERO;
	copy.extra2 = SYSCTL_ONE;
	error = proc_dointvec_minmax(&copy, write, buffer, size, at);
	if (error || !write)
		return error;
	mutex_lock(&klogger_mutex);
	if (unit->event[index].allowed != value) {
		unit->event[index].allowed = value;
		klogger_update_events();
		klogger_log_state(unit, index);
	}
	mutex_unlock(&klogger_mutex);
	return 0;
}

/* ---- Rings ---- */

static int klogger_write_buffer_size(klogger_ctl_table *table, int write, void *buffer,
				     size_t *size, loff_t *at)
{
	unsigned int value = klogger_buffer_mb;
	struct ctl_table copy = *table;
	int error;

	copy.data = &value;
	error = proc_douintvec_minmax(&copy, write, buffer, size, at);
	if (error || !write)
		return error;
	if (!is_power_of_2(value))
		return -EINVAL;
	mutex_lock(&klogger_mutex);
	error = klogger_resize((u64)value << 20);
	if (!error)
		klogger_buffer_mb = value;
	mutex_unlock(&klogger_mutex);
	return error;
}

static int klogger_write_lowwater(klogger_ctl_table *table, int write, void *buffer, size_t *size,
				  loff_t *at)
{
	unsigned int value = klogger_lowwater;
	struct ctl_table copy = *table;
	int error;

	copy.data = &value;
	error = proc_douintvec_minmax(&copy, write, buffer, size, at);
	if (error || !write)
		return error;
	mutex_lock(&klogger_mutex);
	klogger_set_lowwater(value);
	mutex_unlock(&klogger_mutex);
	return 0;
}

/* ---- Marks ---- */

/* -ENOSPC: this CPU's ring has no room for it. */
static int klogger_try_mark(long long number, const char *text)
{
	int error = 0;

	mutex_lock(&klogger_mutex);
	preempt_disable();
	if (!klogger_current_rings())
		error = -ENODATA;
	else if (!klogger_has_room())
		error = -ENOSPC;
	else
		klogger(MARK, number, text);
	preempt_enable();
	mutex_unlock(&klogger_mutex);
	return error;
}

/* There is only one event for each mark, so it waits for room, as long as a recording runs. */
static int klogger_log_mark(long long number, const char *text)
{
	int error;

	while ((error = klogger_try_mark(number, text)) == -ENOSPC)
		if (msleep_interruptible(10))
			return -EINTR;
	return error;
}

/* NUMBER, or NUMBER TEXT. */
static int klogger_write_mark(klogger_ctl_table *table, int write, void *buffer, size_t *size,
			      loff_t *at)
{
	struct ctl_table copy = *table;
	char text[256] = "", *rest;
	long long number;
	int error;

	if (!write) {
		*size = 0;
		return 0;
	}
	copy.data = text;
	copy.maxlen = sizeof(text);
	error = proc_dostring(&copy, write, buffer, size, at);
	if (error)
		return error;
	rest = strchrnul(text, ' ');
	if (*rest)
		*rest++ = 0;
	error = kstrtoll(text, 10, &number);
	return error ?: klogger_log_mark(number, rest);
}

/* ---- Benchmarks ---- */

static int klogger_read_benchmark(klogger_ctl_table *table, int write, void *buffer, size_t *size,
				  loff_t *at)
{
	struct klogger_unit *unit = table->data;
	struct ctl_table copy = *table;
	unsigned int value = 0;
	u64 mean = 0;
	int error;

	/* The second read of a file returns its end. */
	if (!*at) {
		mutex_lock(&klogger_mutex);
		error = klogger_bench(unit, (unsigned long)table->extra1, klogger_iterations,
				      &mean);
		mutex_unlock(&klogger_mutex);
		if (error)
			return error;
		value = min_t(u64, mean, INT_MAX);
	}
	copy.data = &value;
	return proc_douintvec(&copy, write, buffer, size, at);
}

/* ---- Tables ---- */

static struct ctl_table klogger_table[] = {
	{ .procname = "enable",
	  .maxlen = sizeof(int),
	  .mode = 0600,
	  .proc_handler = klogger_write_enable,
	  .extra1 = SYSCTL_ZERO,
	  .extra2 = SYSCTL_ONE },
	{ .procname = "buffer_size",
	  .maxlen = sizeof(int),
	  .mode = 0600,
	  .proc_handler = klogger_write_buffer_size,
	  .extra1 = &klogger_one,
	  .extra2 = &klogger_most_mb },
	{ .procname = "lowwater",
	  .maxlen = sizeof(int),
	  .mode = 0600,
	  .proc_handler = klogger_write_lowwater,
	  .extra1 = &klogger_one,
	  .extra2 = &klogger_most_lowwater },
	{ .procname = "mark", .mode = 0200, .proc_handler = klogger_write_mark },
	{}
};

static struct ctl_table klogger_benchmark_table[] = { { .procname = "iterations",
							.data = &klogger_iterations,
							.maxlen = sizeof(int),
							.mode = 0600,
							.proc_handler = proc_douintvec_minmax,
							.extra1 = &klogger_one,
							.extra2 = &klogger_most_iterations },
						      {} };

static struct ctl_table_header *klogger_header, *klogger_benchmark_header;

int klogger_sysctl_begin(void)
{
	klogger_header =
		klogger_sysctl_register("klogger", klogger_table, ARRAY_SIZE(klogger_table) - 1);
	if (!klogger_header)
		return -ENOMEM;
	klogger_benchmark_header = klogger_sysctl_register("klogger/benchmarks",
							   klogger_benchmark_table,
							   ARRAY_SIZE(klogger_benchmark_table) - 1);
	if (!klogger_benchmark_header) {
		unregister_sysctl_table(klogger_header);
		return -ENOMEM;
	}
	return 0;
}

void klogger_sysctl_end(void)
{
	unregister_sysctl_table(klogger_benchmark_header);
	unregister_sysctl_table(klogger_header);
}

/* Files of a schema's events: `extra1` holds the event's index. */
static void klogger_fill(struct ctl_table *table, struct klogger_unit *unit, proc_handler *handler,
			 umode_t mode)
{
	u32 i;

	for (i = 0; i < unit->events; i++) {
		table[i].procname = unit->event[i].name;
		table[i].data = unit;
		table[i].maxlen = sizeof(int);
		table[i].mode = mode;
		table[i].proc_handler = handler;
		table[i].extra1 = (void *)(unsigned long)i;
	}
}

/* -EEXIST: an event has the name of another file. */
int klogger_sysctl_add(struct klogger_unit *unit)
{
	u32 events = unit->events;
	struct klogger_sysctl *own;

	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own)
		return -ENOMEM;
	own->tables = kcalloc(2 * (events + 1), sizeof(*own->tables), GFP_KERNEL);
	if (!own->tables) {
		kfree(own);
		return -ENOMEM;
	}
	klogger_fill(own->tables, unit, klogger_write_event, 0600);
	klogger_fill(own->tables + events + 1, unit, klogger_read_benchmark, 0400);
	own->events = klogger_sysctl_register("klogger", own->tables, events);
	own->benchmarks =
		klogger_sysctl_register("klogger/benchmarks", own->tables + events + 1, events);
	unit->sysctl = own;
	if (own->events && own->benchmarks)
		return 0;
	pr_err("schema %s is not loaded: no memory, or one of its events has the name of a file "
	       "in /proc/sys/klogger\n",
	       unit->name);
	klogger_sysctl_remove(unit);
	return -EEXIST;
}

void klogger_sysctl_remove(struct klogger_unit *unit)
{
	struct klogger_sysctl *own = unit->sysctl;

	if (own->events)
		unregister_sysctl_table(own->events);
	if (own->benchmarks)
		unregister_sysctl_table(own->benchmarks);
	kfree(own->tables);
	kfree(own);
	unit->sysctl = NULL;
}
