/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring between an engine's writers and its reader: one for each CPU.
 *
 *   head    bytes ever reserved; only the writers of this CPU move it
 *   hard    head may not pass it; only the reader moves it: bytes ever taken out + size of the ring
 *   limit   the position at which a writer takes the slow path. The reader sets it to the low-water
 *           mark; the first writer that would pass it wakes the reader and moves it to `hard`. So
 *           one comparison serves both, and a wake-up costs nothing until there is one
 *
 * Each CPU has two. A probe hit that interrupts another one (`nest` of the main ring is not 0) uses
 * the nested ring, which is small, for this is rare. So in the main ring no writer is ever
 * interrupted by another, and plain loads and stores do, where a locked instruction would cost more
 * than the rest of an event. In the nested ring, where interrupts can interrupt interrupts, space
 * is taken by compare-and-swap. `nest` itself needs no lock either: whoever interrupts between its
 * load and its store has put it back before he returns. The reader merges the two by time. Threads
 * do not return like that: a writer must run with preemption off, or turn it off (klogger_begin()
 * in klogger.bpf.h).
 *
 * A record is contiguous: one that begins near the end of `data` runs over it by up to
 * KLOGGER_SLACK bytes. Records begin at multiples of 8. A writer fills in the fields first and
 * stores the header word last, with release order; the reader, which loads header words with
 * acquire order, stops at the first that is zero. It zeroes what it has taken out before it raises
 * `hard` and `limit` (release), which a writer reads before it reserves: so a writer always finds
 * zeros. What is lost last of all has no later record that could tell of it: when no writer is
 * left, the reader takes `missed` out by an exchange. What writers do off the fast path, and which
 * store pairs with which load, stands in writer.h.
 *
 * In overwrite mode both are ~0 and nobody zeroes. (In the kernel engine `limit` is 0 then: what
 * this mode costs more is off the fast path.) `first[n]` then holds the position of the first
 * record that begins in the n-th of KLOGGER_GRID equal parts of the ring, where a reader can begin.
 * It copies the ring up to the `head` of a moment at which no hit is at work (`nest` is 0), and
 * then looks at `head` again: what writers have claimed since has overwritten as much at the copy's
 * beginning, which is left out. So writers must move `head` before they store.
 */
#ifndef KLOGGER_RING_H
#define KLOGGER_RING_H

#include "types.h"

#define KLOGGER_EVENTS_MAX 1024	/* ids in one recording; bounds the counters below */
#define KLOGGER_RECORD_MAX 1024	/* bytes of one record */
#define KLOGGER_SLACK 4096	/* one page, at least KLOGGER_RECORD_MAX */
#define KLOGGER_NESTED_SHIFT 16
#define KLOGGER_NESTED (1u << KLOGGER_NESTED_SHIFT)	/* bytes of a nested ring */
#define KLOGGER_GRID_SHIFT 6
/* parts of an overwrite ring; in one smaller than a record perhaps none begins */
#define KLOGGER_GRID (1u << KLOGGER_GRID_SHIFT)
#define KLOGGER_LOST_ID 8	/* LOST in klogger.klogger, whose ids begin at 1 */

struct klogger_ring {
	/* written by writers */
	__u64 head;
	/* it and `hard`: written rarely, and in the line that writers must read anyway */
	__u64 limit;
	__u64 missed;		/* events lost since the last LOST record */
	__u64 missed_since;	/* time of the first of them */
	__u64 hard;
	__u64 nest;		/* probe hits that are at work on this CPU; only in the main ring */
	/*
	 * kernel engine: size of the ring - 1; bpf engine: 1 if a larger ring has taken its place
	 */
	__u64 mask;
	/* kernel engine: bytes of the ring after which a writer wakes the reader */
	__u64 mark;
	__u64 first[KLOGGER_GRID];

	/*
	 * Written by the reader, for whoever goes on when it has been killed: before it zeroes
	 * anything, how far it has come. Of the two notes the one that `turn` (0 or 1) says is
	 * valid.
	 */
	__u64 turn;
	struct {
		__u64 main;		/* bytes taken out of this ring */
		__u64 nested;		/* and of the nested one */
		__u64 serials;		/* numbers that the records in them took */
	} notes[2];

	/*
	 * the recorder's: whoever finds this page in an image of memory can see that it is this
	 * ring
	 */
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
