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

static int klogger_attach_tracepoint(struct klogger_place *place)
{
	struct klogger_search search = { .name = place->name };
	int error;

	for_each_kernel_tracepoint(klogger_compare, &search);
	if (!search.found)
		return -ENOENT;
	error = tracepoint_probe_register(search.found, place->call, NULL);
	if (!error)
		place->tracepoint = search.found;
	return error;
}

#ifdef CONFIG_KPROBES
static int klogger_attach_function(struct klogger_place *place)
{
	struct kprobe *probe = place->kprobe;

	/* What the last registration has left. */
	probe->addr = NULL;
	probe->flags = 0;
	probe->nmissed = 0;
	return register_kprobe(probe);
}
#endif

#ifdef CONFIG_KRETPROBES
static int klogger_attach_return(struct klogger_place *place)
{
	struct kretprobe *probe = place->kretprobe;

	probe->kp.addr = NULL;
	probe->kp.flags = 0;
	probe->kp.nmissed = 0;
	probe->nmissed = 0;
	return register_kretprobe(probe);
}
#endif

int klogger_place_attach(struct klogger_place *place)
{
	switch (place->kind) {
	case KLOGGER_TRACEPOINT:
		return klogger_attach_tracepoint(place);
#ifdef CONFIG_KPROBES
	case KLOGGER_FUNCTION:
		return klogger_attach_function(place);
#endif
#ifdef CONFIG_KRETPROBES
	case KLOGGER_RETURN:
		return klogger_attach_return(place);
#endif
	default:
		return -EOPNOTSUPP;
	}
}

/* Hits may still be running when it returns, of tracepoints. */
void klogger_place_detach(struct klogger_place *place)
{
	switch (place->kind) {
	case KLOGGER_TRACEPOINT:
		tracepoint_probe_unregister(place->tracepoint, place->call, NULL);
		break;
#ifdef CONFIG_KPROBES
	case KLOGGER_FUNCTION:
		unregister_kprobe(place->kprobe);
		break;
#endif
#ifdef CONFIG_KRETPROBES
	case KLOGGER_RETURN:
		unregister_kretprobe(place->kretprobe);
		break;
#endif
	default:
		break;
	}
}

/*
 * Hits that the kernel skipped: a probe was hit inside of another one, or too many calls had not
 * returned yet.
 */
u64 klogger_place_missed(const struct klogger_place *place)
{
#ifdef CONFIG_KPROBES
	if (place->kind == KLOGGER_FUNCTION)
		return place->kprobe->nmissed;
#endif
#ifdef CONFIG_KRETPROBES
	if (place->kind == KLOGGER_RETURN)
		return (u64)place->kretprobe->nmissed + place->kretprobe->kp.nmissed;
#endif
	return 0;
}
