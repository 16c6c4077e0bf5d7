/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keyed state of schemata: `state NAME[N] by TYPE { ... }`, with put, get and take.
 *
 * A table by value is a hash table with open addressing, in one array map. A bucket has a cache
 * line with the keys of its entries. An entry is in the first bucket of its key or, if that was
 * full, in one of the next; `beyond` counts those, so that a look for what is not there ends at the
 * first bucket nearly always.
 *
 * There is no lock, so it can be used in any context: by a nested hit, in an NMI, and by a program
 * that is preempted. An entry is claimed by storing its key with a compare-and-swap, and freed by
 * the one program whose compare-and-swap takes its key away. The fields of free entries are zeros:
 * whoever sees a key sees zeros, or what was stored since. Two programs that put the same new key
 * at the same moment claim the same entry, unless one of the same bucket is being taken meanwhile.
 *
 * The functions that look for an entry return its place and not its address. To the verifier, all
 * their ways to return are the same, so that it continues with one of them only. Otherwise it would
 * follow the rest of a program once for each place in which an entry may be.
 */
#ifndef KLOGGER_STATE_H
#define KLOGGER_STATE_H

#include "helpers.h"
#include "slow.h"

#define KLOGGER_BUCKET 7	/* entries; with `beyond`, their keys are a cache line */
#define KLOGGER_CHAIN 8		/* buckets in which an entry may be */
#define KLOGGER_NOWHERE (~0ull)	/* the place of what is not there */
#define KLOGGER_TAKEN (~0ull)	/* the key of an entry that is being freed */

/*
 * A key as it is stored: 0 is a free entry, and KLOGGER_TAKEN is none. The two keys that would be
 * stored so are numbers that nobody uses, and count as having found no room.
 */
static __always_inline __u64 klogger_stored(__u64 key)
{
	return klogger_number(key) ^ 0x9e6c63d0676a9a99ull;
}

#define klogger_is_storable(stored) ((stored) - 1 < KLOGGER_TAKEN - 1)

struct klogger_bucket {
	__u64 key[KLOGGER_BUCKET];
	__u64 beyond;			/* entries that found this bucket full */
	__u64 entries[];		/* each a multiple of 8 bytes */
};

/* Shared with the recorder. */
struct klogger_kept {
	__u64 on;			/* 0: before the recording begins, nothing is kept */
	__u64 unkept[KLOGGER_STATES];	/* for each state: entries that found no room */
} klogger_kept SEC(".bss.klogger_q");

/*
 * A place as it is returned. To the verifier `on` is any number but 0, so that the places of all
 * entries are the same to it.
 */
static __always_inline __u64 klogger_anywhere(__u64 place, __u64 on)
{
	return place + (on - 1);
}

/* The buckets in which a key may be: parts of all 2^32 numbers. */
struct klogger_way {
	__u32 first;
	__u32 step;
	__u32 buckets;
};

static __always_inline struct klogger_way klogger_way(__u64 stored, __u32 buckets)
{
	__u64 hash = (stored ^ stored >> 32) * 0x9e3779b97f4a7c15ull;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
	/* A step is an eighth of them all at least, so that it leads to another bucket. */
	return (struct klogger_way){ hash >> 32, ((__u32)hash >> 3) + (1u << 29), buckets };
}

static __always_inline __u32 klogger_nth(struct klogger_way way, __u32 n)
{
	return (__u64)(__u32)(way.first + n * way.step) * way.buckets >> 32;
}

/* The place of a key; KLOGGER_NOWHERE if it has none. */
static __always_inline __u64 klogger_old_place(void *map, struct klogger_way way, __u64 stored)
{
	for (__u32 n = 0; n < KLOGGER_CHAIN; n++) {
		__u32 at = klogger_nth(way, n);
		struct klogger_bucket *b = bpf_map_lookup_elem(map, &at);

		if (!b)
			break;
#pragma unroll
		for (__u32 i = 0; i < KLOGGER_BUCKET; i++)
			if (READ_ONCE(b->key[i]) == stored)
				return (__u64)at << 3 | i;
		if (likely(!READ_ONCE(b->beyond)))
			break;
	}
	return KLOGGER_NOWHERE;
}

/* The buckets before this one have an entry less elsewhere. */
static __always_inline void klogger_nearer(void *map, struct klogger_way way, __u32 last)
{
	for (__u32 n = 0; n < KLOGGER_CHAIN; n++) {
		__u32 at = klogger_nth(way, n);
		struct klogger_bucket *b = bpf_map_lookup_elem(map, &at);

		if (!b || at == last)
			break;
		__sync_fetch_and_add(&b->beyond, -1);
	}
}

/* The place of a new entry, or of one that another program has made meanwhile. */
static __always_inline __u64 klogger_new_place(void *map, struct klogger_way way, __u64 stored)
{
	for (__u32 n = 0; n < KLOGGER_CHAIN; n++) {
		__u32 at = klogger_nth(way, n);
		struct klogger_bucket *b = bpf_map_lookup_elem(map, &at);

		if (!b)
			break;
#pragma unroll
		for (__u32 i = 0; i < KLOGGER_BUCKET; i++) {
			__u64 found = READ_ONCE(b->key[i]);

			if (!found)
				found = __sync_val_compare_and_swap(&b->key[i], 0, stored);
			if (!found || found == stored)
				return (__u64)at << 3 | i;
		}
		/* Before the key is stored beyond it. */
		__sync_fetch_and_add(&b->beyond, 1);
	}
	klogger_nearer(map, way, ~0u);
	return KLOGGER_NOWHERE;
}

/* Those of one table are functions that call these. `number`: of the state in its object. */
static __always_inline __u64 klogger_find(void *map, __u32 buckets, __u64 stored)
{
	__u64 on = READ_ONCE(klogger_kept.on), place = KLOGGER_NOWHERE;

	if (!on)
		return KLOGGER_NOWHERE;
	if (klogger_is_storable(stored))
		place = klogger_old_place(map, klogger_way(stored, buckets), stored);
	return klogger_anywhere(place, on);
}

static __always_inline __u64 klogger_find_or_claim(void *map, __u32 buckets, __u64 stored,
						   __u32 number)
{
	__u64 on = READ_ONCE(klogger_kept.on), place = KLOGGER_NOWHERE;
	struct klogger_way way = klogger_way(stored, buckets);

	if (!on)
		return KLOGGER_NOWHERE;
	if (klogger_is_storable(stored)) {
		place = klogger_old_place(map, way, stored);
		if (place == KLOGGER_NOWHERE)
			place = klogger_new_place(map, way, stored);
	}
	if (unlikely(place == KLOGGER_NOWHERE))
		__sync_fetch_and_add(&klogger_kept.unkept[number], 1);
	return klogger_anywhere(place, on);
}

/* Takes the key away; the caller copies the entry and gives it back: klogger_clear(). */
static __always_inline __u64 klogger_detach(void *map, __u32 buckets, __u64 stored)
{
	__u64 on = READ_ONCE(klogger_kept.on), place = KLOGGER_NOWHERE;
	struct klogger_way way = klogger_way(stored, buckets);

	if (!on)
		return KLOGGER_NOWHERE;
	if (klogger_is_storable(stored))
		place = klogger_old_place(map, way, stored);
	if (place != KLOGGER_NOWHERE) {
		__u32 at = place >> 3;
		struct klogger_bucket *b = bpf_map_lookup_elem(map, &at);
		__u64 slot = place & 7;

		if (!b || slot >= KLOGGER_BUCKET ||
		    __sync_val_compare_and_swap(&b->key[slot], stored, KLOGGER_TAKEN) != stored)
			place = KLOGGER_NOWHERE;
		else if (unlikely(at != klogger_nth(way, 0)))
			klogger_nearer(map, way, at);
	}
	return klogger_anywhere(place, on);
}

/* The bucket of a place; NULL of KLOGGER_NOWHERE. */
static __always_inline struct klogger_bucket *klogger_bucket(void *map, __u64 place, __u64 *slot)
{
	__u32 at = place >> 3;
	struct klogger_bucket *b = bpf_map_lookup_elem(map, &at);

	*slot = place & 7;
	/* The compiler would compare the place and not the slot: no use to the verifier. */
	asm volatile("" : "+r"(*slot));
	return b && *slot < KLOGGER_BUCKET ? b : NULL;
}

static __always_inline void *klogger_entry(void *map, __u64 place, __u32 size)
{
	__u64 slot;
	struct klogger_bucket *b = klogger_bucket(map, place, &slot);

	return b ? (char *)b->entries + slot * size : NULL;
}

/* Copies an entry and makes it zeros. */
static __always_inline void klogger_move_out(__u64 *to, __u64 *from, __u32 size)
{
	for (__u32 i = 0; i < size / 8; i++) {
		to[i] = READ_ONCE(from[i]);
		WRITE_ONCE(from[i], 0);
	}
}

static __always_inline int klogger_clear(void *map, __u64 place, void *copy, __u32 size)
{
	__u64 slot;
	struct klogger_bucket *b = klogger_bucket(map, place, &slot);

	if (!b)
		return 0;
	klogger_move_out(copy, (__u64 *)((char *)b->entries + slot * size), size);
	klogger_publish(&b->key[slot], 0);
	return 1;
}

/* A table by value. `name`: the structure of an entry; `buckets`: set by the recorder. */
#define KLOGGER_TABLE(name, number, buckets)                                                  \
	struct {                                                                              \
		int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];                                      \
		int (*max_entries)[1];                                                        \
		int (*key_size)[4];                                                           \
		int (*value_size)[sizeof(struct klogger_bucket) +                             \
				  KLOGGER_BUCKET * sizeof(struct name)];                      \
	} klogger_state_##number SEC(".maps");                                                \
                                                                                              \
	klogger_global __u64 klogger_find_##name(__u64 stored)                                \
	{                                                                                     \
		return klogger_find(&klogger_state_##number, buckets, stored);                \
	}                                                                                     \
                                                                                              \
	klogger_global __u64 klogger_claim_##name(__u64 stored)                               \
	{                                                                                     \
		return klogger_find_or_claim(&klogger_state_##number, buckets, stored,        \
					     number);                                         \
	}                                                                                     \
                                                                                              \
	klogger_global __u64 klogger_detach_##name(__u64 stored)                              \
	{                                                                                     \
		return klogger_detach(&klogger_state_##number, buckets, stored);              \
	}

/* Calls of it. `type`: an integer of the size of its keys, without a sign. */
#define KLOGGER_TABLE_CALLS(name, number, type)                                               \
	static __always_inline __attribute__((unused)) struct name *klogger_get_##name(       \
		type key)                                                                     \
	{                                                                                     \
		return klogger_entry(&klogger_state_##number,                                 \
				     klogger_find_##name(klogger_stored(key)),                \
				     sizeof(struct name));                                    \
	}                                                                                     \
                                                                                              \
	static __always_inline __attribute__((unused)) struct name *klogger_put_##name(       \
		type key)                                                                     \
	{                                                                                     \
		return klogger_entry(&klogger_state_##number,                                 \
				     klogger_claim_##name(klogger_stored(key)),               \
				     sizeof(struct name));                                    \
	}                                                                                     \
                                                                                              \
	static __always_inline __attribute__((unused)) int klogger_take_##name(               \
		type key, struct name *copy)                                                  \
	{                                                                                     \
		return klogger_clear(&klogger_state_##number,                                  \
				    klogger_detach_##name(klogger_stored(key)), copy,         \
				    sizeof(struct name));                                     \
	}

/*
 * A state by thread: the kernel keeps an entry with each thread, and removes it when the thread
 * ends. It is made when it is first put, which takes memory, and stays when it is taken. In an NMI
 * no memory can be taken on all kernels, and nothing can be found if the NMI has interrupted a
 * search for an entry of a thread on this CPU.
 */
#define KLOGGER_THREAD_TABLE(name, number)                                                    \
	struct klogger_of_thread_##name {                                                     \
		struct name entry;                                                            \
		__u64 there;                                                                  \
	};                                                                                    \
	struct {                                                                              \
		int (*type)[29 /* BPF_MAP_TYPE_TASK_STORAGE */];                              \
		int (*map_flags)[1 /* BPF_F_NO_PREALLOC */];                                  \
		int *key;                                                                     \
		struct klogger_of_thread_##name *value;                                       \
	} klogger_state_##number SEC(".maps");                                                \
                                                                                              \
	static __always_inline __attribute__((unused)) struct name *klogger_get_##name(       \
		struct task_struct *task)                                                     \
	{                                                                                     \
		struct klogger_of_thread_##name *own;                                         \
                                                                                              \
		if (!READ_ONCE(klogger_kept.on))                                              \
			return NULL;                                                          \
		own = bpf_task_storage_get(&klogger_state_##number, task, NULL, 0);           \
		return own && own->there ? &own->entry : NULL;                                \
	}                                                                                     \
                                                                                              \
	static __always_inline __attribute__((unused)) struct name *klogger_put_##name(       \
		struct task_struct *task)                                                     \
	{                                                                                     \
		struct klogger_of_thread_##name *own;                                         \
                                                                                              \
		if (!READ_ONCE(klogger_kept.on))                                              \
			return NULL;                                                          \
		own = bpf_task_storage_get(&klogger_state_##number, task, NULL, 0);           \
		if (unlikely(!own) && klogger_may_allocate())                                 \
			own = bpf_task_storage_get(&klogger_state_##number, task, NULL,       \
						   1 /* BPF_LOCAL_STORAGE_GET_F_CREATE */);   \
		if (own) {                                                                    \
			own->there = 1;                                                       \
			return &own->entry;                                                   \
		}                                                                             \
		__sync_fetch_and_add(&klogger_kept.unkept[number], 1);                        \
		return NULL;                                                                  \
	}                                                                                     \
                                                                                              \
	static __always_inline __attribute__((unused)) int klogger_take_##name(               \
		struct task_struct *task, struct name *copy)                                  \
	{                                                                                     \
		struct klogger_of_thread_##name *own;                                         \
                                                                                              \
		if (!READ_ONCE(klogger_kept.on))                                              \
			return 0;                                                             \
		own = bpf_task_storage_get(&klogger_state_##number, task, NULL, 0);           \
		if (!own || !own->there)                                                      \
			return 0;                                                             \
		own->there = 0;                                                               \
		klogger_move_out((__u64 *)copy, (__u64 *)&own->entry, sizeof(*copy));             \
		return 1;                                                                     \
	}

static __always_inline int klogger_may_allocate(void)
{
	return klogger_context_irq() != 3 /* an NMI */;
}

/* A state `by cpu`: one entry for each CPU, which is always there. */
#define KLOGGER_CPU_TABLE(name, number)                                                       \
	struct {                                                                              \
		int (*type)[6 /* BPF_MAP_TYPE_PERCPU_ARRAY */];                               \
		int (*max_entries)[1];                                                        \
		int (*key_size)[4];                                                           \
		int (*value_size)[sizeof(struct name)];                                       \
	} klogger_state_##number SEC(".maps");                                                \
                                                                                              \
	static __always_inline __attribute__((unused)) struct name *klogger_get_##name(void)  \
	{                                                                                     \
		__u32 zero = 0;                                                               \
                                                                                              \
		if (!READ_ONCE(klogger_kept.on))                                              \
			return NULL;                                                          \
		return bpf_map_lookup_elem(&klogger_state_##number, &zero);                   \
	}

/* For bodies. */
#define klogger_put(state, ...) klogger_put_##state(__VA_ARGS__)
#define klogger_get(state, ...) klogger_get_##state(__VA_ARGS__)
#define klogger_take(state, ...) klogger_take_##state(__VA_ARGS__)

#endif
