/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring between an engine's writers and its reader: one for each CPU.
 *
 *   head    bytes reserved so far; only the writers of this CPU advance it
 *   hard    head may not pass it; only the reader advances it: bytes taken out so far + size of the
 *           ring
 *   limit   the position at which a writer takes the slow path. The reader sets it to the low-water
 *           mark; the first writer that would pass it wakes the reader and moves it to `hard`. So
 *           one comparison serves both, and the test for a wake-up costs nothing
 *
 * Each CPU has two. A nested hit (`nest` of the main ring is not 0) uses the nested ring, which is
 * small because such hits are rare. So in the main ring no writer is ever interrupted by another
 * one, and plain loads and stores suffice; a locked instruction would cost more than the rest of an
 * event. In the nested ring, where interrupts can interrupt interrupts, space is reserved by
 * compare-and-swap. `nest` itself needs no lock either: a hit that interrupts between its load and
 * its store restores it before it returns. The reader merges the two by time. A preempting thread
 * does not return before the preempted one continues, so a writer must run with preemption off, or
 * turn it off (klogger_begin() in klogger.bpf.h), or use the nested ring without touching `nest`
 * (klogger_begin_preempted()).
 *
 * A record is contiguous: one that begins near the end of `data` extends past it by up to
 * KLOGGER_SLACK bytes. Records begin at multiples of 8. A writer stores the fields first and the
 * header word last, with release order. The reader loads header words with acquire order and stops
 * at the first that is zero. It zeroes what it has taken out before it raises `hard` and `limit`
 * (release), which a writer reads before it reserves space, so a writer always finds zeros. The
 * last losses have no later record that could report them: when no writer is left, the reader takes
 * `missed` out by an atomic exchange. writer.h describes the slow path, and which store pairs with
 * which load.
 *
 * In overwrite mode `hard` and `limit` are ~0, and the reader does not zero. (In the kernel engine
 * `limit` is 0 in this mode, because its additional work is on the slow path.) `first[n]` then
 * contains the position of the first record that begins in the n-th of KLOGGER_GRID equal parts of
 * the ring, at which a reader can begin. The reader waits for a moment without an active hit
 * (`nest` is 0), copies the ring up to the `head` of that moment, and then reads `head` again: what
 * writers have reserved since has overwritten as many bytes at the beginning of the copy, which are
 * dropped. So writers must advance `head` before they store.
 */
#ifndef KLOGGER_RING_H
#define KLOGGER_RING_H

#include "types.h"

#define KLOGGER_EVENTS_MAX 1024	/* ids in one recording; bounds the counters below */
#define KLOGGER_RECORD_MAX 4096	/* bytes of one record */
#define KLOGGER_SLACK 4096	/* one page, at least KLOGGER_RECORD_MAX */
#define KLOGGER_NESTED_SHIFT 16
#define KLOGGER_NESTED (1u << KLOGGER_NESTED_SHIFT)	/* bytes of a nested ring */
#define KLOGGER_GRID_SHIFT 6
/* parts of an overwrite ring; in one smaller than a record perhaps none begins */
#define KLOGGER_GRID (1u << KLOGGER_GRID_SHIFT)
#define KLOGGER_LOST_ID 8	/* LOST in klogger.klogger, whose ids begin at 1 */
#define KLOGGER_TRIGGERED_ID 14	/* TRIGGERED, likewise */
#define KLOGGER_TRIGGERS_MAX 32	/* triggers of one recording; their numbers begin at 1 */

struct klogger_ring {
	/* written by writers */
	__u64 head;
	/* this and `hard`: written rarely, and in the cache line that writers read anyway */
	__u64 limit;
	__u64 missed;		/* events lost since the last LOST record */
	__u64 missed_since;	/* time of the first of them */
	__u64 hard;
	__u64 nest;		/* active probe hits on this CPU; only in the main ring */
	/* kernel engine: size of the ring - 1; bpf engine: 1 if a larger ring has replaced it */
	__u64 mask;
	/*
	 * kernel engine: the low-water mark: bytes of the ring after which a writer wakes the
	 * reader; flight recorder of a program: the part that is being zeroed, or 0
	 */
	__u64 mark;
	__u64 first[KLOGGER_GRID];

	/*
	 * The position of the reader, which it writes before it zeroes anything, so that another
	 * reader can continue if it is killed. Of the two positions the one with the number `turn`
	 * (0 or 1) is valid.
	 */
	__u64 turn;
	struct {
		__u64 main;		/* bytes taken out of this ring */
		__u64 nested;		/* and of the nested one */
		__u64 serials;		/* serial numbers of the records in them */
	} notes[2];

	/* the recorder's: it identifies this page as a page of this ring in a memory image */
	__u64 stamp[2];

	__u64 reserved[512 - 8 - KLOGGER_GRID - 9];	/* to the end of the page */
	__u64 lost[KLOGGER_EVENTS_MAX];			/* by event id, never reset */
	__u64 attempts[KLOGGER_EVENTS_MAX];		/* by event id, only in overwrite mode */
	__u8 data[];		/* the ring's size (a power of two) + KLOGGER_SLACK */
};

_Static_assert(sizeof(struct klogger_ring) == 4096 + 2 * 8 * KLOGGER_EVENTS_MAX,
	       "the reader maps these offsets");

/* LOST, as klogger.klogger declares it. */
struct klogger_lost {
	__u64 header;
	__u64 count;
	__u64 since;
};

#endif
