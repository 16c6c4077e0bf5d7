// SPDX-License-Identifier: GPL-2.0-only
/* Attaches probes: to tracepoints, which are found by name, and to functions and their returns. */
#include <linux/kprobes.h>
#include <linux/tracepoint.h>
#include "core.h"

struct klogger_search {
	const char *name;
	struct tracepoint *found;
};

static void klogger_compare(struct tracepoint *tracepoint, void *data)
{
	struct klogger_search *search = data;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

static int klogger_attach_tracepoint(struct klogger_attach_point *point)
{
	struct klogger_search search = { .name = point->name };
	int error;

	for_each_kernel_tracepoint(klogger_compare, &search);
	if (!search.found)
		return -ENOENT;
	error = tracepoint_probe_register(search.found, point->call, NULL);
	if (!error)
		point->tracepoint = search.found;
	return error;
}

static void klogger_detach_tracepoint(struct klogger_attach_point *point)
{
	tracepoint_probe_unregister(point->tracepoint, point->call, NULL);
}

#ifdef CONFIG_KPROBES
static int klogger_attach_function(struct klogger_attach_point *point)
{
	struct kprobe *probe = point->kprobe;

	/* Resets what the last registration has set. */
	probe->addr = NULL;
	probe->flags = 0;
	probe->nmissed = 0;
	return register_kprobe(probe);
}

static void klogger_detach_function(struct klogger_attach_point *point)
{
	unregister_kprobe(point->kprobe);
}

static u64 klogger_function_missed(const struct klogger_attach_point *point)
{
	return point->kprobe->nmissed;
}
#endif

#ifdef CONFIG_KRETPROBES
static int klogger_attach_return(struct klogger_attach_point *point)
{
	struct kretprobe *probe = point->kretprobe;

	probe->kp.addr = NULL;
	probe->kp.flags = 0;
	probe->kp.nmissed = 0;
	probe->nmissed = 0;
	return register_kretprobe(probe);
}

static void klogger_detach_return(struct klogger_attach_point *point)
{
	unregister_kretprobe(point->kretprobe);
}

static u64 klogger_return_missed(const struct klogger_attach_point *point)
{
	return (u64)point->kretprobe->nmissed + point->kretprobe->kp.nmissed;
}
#endif

/* The operations for a kind of attach point: one row each. */
struct klogger_attach_kind {
	int (*attach)(struct klogger_attach_point *point);
	void (*detach)(struct klogger_attach_point *point);
	/* NULL: the kernel skips no hits */
	u64 (*missed)(const struct klogger_attach_point *point);
};

static const struct klogger_attach_kind klogger_attach_kinds[] = {
	[KLOGGER_TRACEPOINT] = {
		.attach = klogger_attach_tracepoint,
		.detach = klogger_detach_tracepoint,
	},
#ifdef CONFIG_KPROBES
	[KLOGGER_FUNCTION] = {
		.attach = klogger_attach_function,
		.detach = klogger_detach_function,
		.missed = klogger_function_missed,
	},
#endif
#ifdef CONFIG_KRETPROBES
	[KLOGGER_RETURN] = {
		.attach = klogger_attach_return,
		.detach = klogger_detach_return,
		.missed = klogger_return_missed,
	},
#endif
};

/* NULL: this kernel was built without support for the kind. */
static const struct klogger_attach_kind *
klogger_attach_kind(const struct klogger_attach_point *point)
{
	if (point->kind >= ARRAY_SIZE(klogger_attach_kinds) ||
	    !klogger_attach_kinds[point->kind].attach)
		return NULL;
	return &klogger_attach_kinds[point->kind];
}

int klogger_point_attach(struct klogger_attach_point *point)
{
	const struct klogger_attach_kind *kind = klogger_attach_kind(point);

	return kind ? kind->attach(point) : -EOPNOTSUPP;
}

/* Tracepoint hits may still be running when it returns. */
void klogger_point_detach(struct klogger_attach_point *point)
{
	const struct klogger_attach_kind *kind = klogger_attach_kind(point);

	if (kind)
		kind->detach(point);
}

/* Skipped hits: the probe was hit inside of another hit, or too many calls had not returned yet. */
u64 klogger_point_missed(const struct klogger_attach_point *point)
{
	const struct klogger_attach_kind *kind = klogger_attach_kind(point);

	return kind && kind->missed ? kind->missed(point) : 0;
}
