/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path of writers: the ring has passed its low-water mark, is full or has just been, or
 * several writers share it (the nested ring). ring.h describes the words of a ring. The protocol is
 * written once, over primitives that each engine defines before it includes this file:
 *
 *   KLOGGER_WRITER                  the linkage of each function here
 *   KLOGGER_CLAIM_TRIES             compare-and-swaps of one event before it is lost
 *   klogger_geometry                type: what the engine knows of a ring besides its first page
 *   klogger_at(ring, geometry, n)   address of position n in the ring's data
 *   klogger_part_shift(geometry)    log2 of the bytes of one part of the grid
 *   klogger_overwrites()            whether rings are in overwrite mode
 *   klogger_load(x)                 one load, which the compiler neither repeats nor drops
 *   klogger_set(x, value)           one store, likewise
 *   klogger_load_hard(ring)         `hard`; no store to the data may be made before this load
 *   klogger_swap(p, old, new)       compare-and-swap against writers that interrupt this one;
 *                                   returns what it found
 *   klogger_swap_shared(p, old, new)   the same against the reader, too
 *   klogger_exchange(p, new)        atomic; returns what it found
 *   klogger_add(p, n)               atomic
 *   klogger_publish(header, word)   stores a header word after all preceding stores
 *   klogger_wake_reader(ring)       must work in every context that logs events
 *   klogger_on_loss(time)           what else the engine does when an event is lost
 *
 * Writers of a ring run on one CPU, or in one thread, so none of them needs a barrier against
 * another one. These pairs are between a writer and the reader, which runs anywhere:
 *
 *   a store, with release order          the load that sees it, with acquire order
 *   -----------------------------------  -------------------------------------------------------
 *   header word, after the fields:       header word, before the fields: RingReader::copy(),
 *     klogger_publish(), and               take_running() (crates/ring/src/reader.rs)
 *     complete() (crates/user/src/unit.rs)
 *   `hard`, `limit`, after zeroing:      `limit`: klogger_reserve(), in each engine's header, and
 *     RingReader::release()                reserve() (crates/user/src/unit.rs);
 *     (crates/ring/src/reader.rs)        `hard`: klogger_claim(), here
 *   `head`, `nest` in overwrite mode:     `nest`, `head`, the copy, `head`: take_running(). Plain
 *     klogger_reserve(), klogger_leave()   stores, kept in order by the compiler and by x86
 *   the wake-up, after the fields:       whatever the reader waits with: ring buffer (bpf),
 *     klogger_wake_reader()                wait queue (kernel), futex `call` (user)
 *
 * In the bpf and kernel engines the load of `limit` or `hard` is ordered before the stores to the
 * data by the branch that depends on it; the user engine's is an acquire load.
 */
#ifndef KLOGGER_WRITER_H
#define KLOGGER_WRITER_H

#include "ring.h"
#include "record.h"

#define KLOGGER_NO_ROOM (-1)

/* In overwrite mode: stores the first record that begins in a part of the grid (ring.h). */
KLOGGER_WRITER void klogger_note_first(struct klogger_ring *ring, klogger_geometry geometry,
				       __u64 begin, __u64 end)
{
	__u32 shift = klogger_part_shift(geometry);

	/* The record that ends here crosses into another part, so the next one begins there. */
	if (begin >> shift != end >> shift)
		klogger_set(ring->first[end >> shift & (KLOGGER_GRID - 1)], end);
}

/*
 * Reserves `size` bytes; returns their position, or KLOGGER_NO_ROOM. By compare-and-swap, because
 * writers that interrupt each other share a nested ring. Each failure is the success of another
 * writer, so no writer waits here.
 */
KLOGGER_WRITER __s64 klogger_claim(struct klogger_ring *ring, klogger_geometry geometry, __u32 size)
{
	__u64 head, end;
	__u32 i;

	for (i = 0; i < KLOGGER_CLAIM_TRIES; i++) {
		head = klogger_load(ring->head);
		end = head + size;
		if (end > klogger_load_hard(ring))
			return KLOGGER_NO_ROOM;
		if (klogger_swap(&ring->head, head, end) != head)
			continue;
		if (klogger_overwrites())
			klogger_note_first(ring, geometry, head, end);
		return (__s64)head;
	}
	return KLOGGER_NO_ROOM;
}

/* Only in overwrite mode, where the number of logged events is not known from the records left. */
KLOGGER_WRITER void klogger_count_attempt(struct klogger_ring *ring, __u32 id)
{
	if (klogger_overwrites())
		klogger_add(&ring->attempts[id & (KLOGGER_EVENTS_MAX - 1)], 1);
}

KLOGGER_WRITER void klogger_count_lost(struct klogger_ring *ring, __u64 time, __u32 id)
{
	klogger_on_loss(time);
	if (!klogger_load(ring->missed))
		klogger_set(ring->missed_since, time);
	klogger_add(&ring->missed, 1);
	klogger_add(&ring->lost[id & (KLOGGER_EVENTS_MAX - 1)], 1);
}

/* Stores a LOST record for the events missing before the next one; 0: it had no room. */
KLOGGER_WRITER int klogger_put_lost(struct klogger_ring *ring, klogger_geometry geometry,
				    __u64 time)
{
	__u64 since = klogger_load(ring->missed_since);
	__u64 missed = klogger_exchange(&ring->missed, 0);
	struct klogger_lost *lost;
	__s64 at;

	if (!missed)
		return 1;
	at = klogger_claim(ring, geometry, sizeof(*lost));
	if (at < 0) {
		klogger_add(&ring->missed, missed);
		return 0;
	}
	lost = (struct klogger_lost *)klogger_at(ring, geometry, at);
	lost->count = missed;
	lost->since = since;
	klogger_publish(&lost->header, KLOGGER_HEADER(time, KLOGGER_LOST_ID));
	return 1;
}

/*
 * The first event that passes the low-water mark wakes the reader, and moves `limit` to `hard`. By
 * compare-and-swap, so that a value which the reader has set meanwhile, higher or lower, stays.
 * `limit` is 0 if every event takes the slow path: in a ring that a larger one has replaced (bpf
 * engine), and in overwrite mode (kernel engine).
 */
KLOGGER_WRITER void klogger_pass_low_water(struct klogger_ring *ring, __u32 size)
{
	__u64 limit = klogger_load(ring->limit), hard = klogger_load(ring->hard);

	if (limit >= hard || !limit || klogger_load(ring->head) + size <= limit)
		return;
	if (klogger_swap_shared(&ring->limit, limit, hard) == limit)
		klogger_wake_reader(ring);
}

/* Reserves `size` bytes in this ring; KLOGGER_NO_ROOM: the event is lost and was counted. */
KLOGGER_WRITER __s64 klogger_reserve_slow_in(struct klogger_ring *ring, klogger_geometry geometry,
					     __u64 time, __u32 id, __u32 size)
{
	__s64 at;

	klogger_count_attempt(ring, id);
	klogger_pass_low_water(ring, size);
	/*
	 * Room for both, because otherwise a ring that is nearly full would contain little but LOST
	 * records.
	 */
	if (klogger_load(ring->missed) &&
	    (klogger_load(ring->head) + sizeof(struct klogger_lost) + size >
		     klogger_load(ring->hard) ||
	     !klogger_put_lost(ring, geometry, time)))
		at = KLOGGER_NO_ROOM;
	else
		at = klogger_claim(ring, geometry, size);
	if (at < 0)
		klogger_count_lost(ring, time, id);
	return at;
}

#endif
