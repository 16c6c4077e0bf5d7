/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps that programs share with each other and with the recorder, which maps them into its
 * memory.
 */
#ifndef KLOGGER_BPF_MAPS_H
#define KLOGGER_BPF_MAPS_H

#include "config.h"
#include "helpers.h"

const volatile struct klogger_config klogger_config SEC(".rodata.klogger");

/* One byte for each event of this object: an enum klogger_state. */
__u8 klogger_enabled[KLOGGER_EVENTS_MAX] SEC(".data.klogger_e");

/* One bit for each thread id: those that this object logs; shared by all objects of a recording. */
__u64 klogger_scope[KLOGGER_TIDS / 64] SEC(".bss.klogger_s");

/*
 * If only some of the threads that are followed are chosen. The built-in events name threads, and
 * are logged of all that are followed: their object has the bits of these in klogger_scope, and
 * here those of the threads that are chosen. For all other objects the two are exchanged.
 */
__u64 klogger_other_scope[KLOGGER_TIDS / 64] SEC(".bss.klogger_o");

/*
 * Events on CPUs that came online after the start have no ring. By event, all CPUs together; shared
 * by all objects.
 */
__u64 klogger_ringless[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_r");

/*
 * Strings and arrays of events that could not be read. By event, all CPUs together; shared by all
 * objects.
 */
__u64 klogger_unread[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_u");

/* Rate limits of events; shared by all objects. */
struct klogger_rate klogger_rates[KLOGGER_EVENTS_MAX] SEC(".bss.klogger_l");

/* Events that a rate limit left out, by event, on each CPU that has rings. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_left_out) * KLOGGER_EVENTS_MAX];
} klogger_left SEC(".maps");

/* The recorder sets the number of CPUs and the size of a ring. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + 65536 + KLOGGER_SLACK];
} klogger_rings SEC(".maps");

/*
 * A larger ring for each CPU whose own is too small: a map of one element, which the recorder makes
 * when it is needed. From then on `limit` of the CPU's own ring is 0 and its `mask` is 1. So
 * writers take the slow path, and only then look up which ring to use.
 */
struct klogger_larger_ring {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + 65536 + KLOGGER_SLACK];
};
struct {
	int (*type)[12 /* BPF_MAP_TYPE_ARRAY_OF_MAPS */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[4];
	struct klogger_larger_ring *values[];
} klogger_larger SEC(".maps");

/* For nested hits. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*map_flags)[1024 /* BPF_F_MMAPABLE */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_ring) + KLOGGER_NESTED + KLOGGER_SLACK];
} klogger_nested SEC(".maps");

/* Wake-ups of the recorder: numbers of CPUs whose rings have passed the low-water mark. */
struct {
	int (*type)[27 /* BPF_MAP_TYPE_RINGBUF */];
	int (*max_entries)[4096];
} klogger_calls SEC(".maps");

#endif
