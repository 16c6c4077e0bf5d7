/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The request that the running thread works on, as libraries of OpenTelemetry tell it to others
 * (OTEP 4947): a variable of the thread, `otel_thread_ctx_v1`, points to a record with the ids of
 * the trace and the span, or is NULL. A thread is stopped while this looks at its record, so that a
 * record that says that it is valid is whole.
 *
 * The recorder finds out where the variable is, process by process. A thread of any other process
 * costs one failed lookup.
 */
#ifndef KLOGGER_BPF_OTEL_H
#define KLOGGER_BPF_OTEL_H

#include "kernel.h"
#include "maps.h"

#ifdef KLOGGER_OTEL

/* The request of a hit, read for the first event that has it. */
struct klogger_otel {
	__u64 id[3];		/* trace and span, in the order of their bytes; 0: none */
	__u8 is_read;
};

/* Shared by all objects; only the recorder changes it. */
struct {
	int (*type)[1 /* BPF_MAP_TYPE_HASH */];
	int (*map_flags)[1 /* BPF_F_NO_PREALLOC */];
	int (*max_entries)[KLOGGER_OTEL_PROCESSES];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_otel_place)];
} klogger_otel_places SEC(".maps");

/* Variables and records that could not be read; shared by all objects. */
__u64 klogger_otel_unread SEC(".bss.klogger_t");

/* The part of a record that all have. */
struct klogger_otel_record {
	__u64 id[3];
	__u8 valid;
	__u8 flags;
	__u16 attributes;
};
#define KLOGGER_OTEL_RECORD 28	/* bytes */

static __always_inline int klogger_otel_copy(void *to, __u32 size, __u64 from)
{
	if (!bpf_probe_read_user(to, size, (void *)from))
		return 1;
	__sync_fetch_and_add(&klogger_otel_unread, 1);
	return 0;
}

/*
 * The variable of a library that was loaded late is in a block that each thread gets when it first
 * uses it. The vector of these blocks is that of glibc: the second word of what the thread pointer
 * points to; in its first entry is the generation of the loaded libraries that it is of, and in
 * the entry before that its length. A block that is not there is NULL or -1.
 */
static __always_inline __u64 klogger_otel_block(__u64 thread,
						const struct klogger_otel_place *place)
{
	__u64 vector, length, generation, block;

	if (!klogger_otel_copy(&vector, sizeof(vector), thread + 8) || !vector ||
	    !klogger_otel_copy(&length, sizeof(length), vector - 16) ||
	    !klogger_otel_copy(&generation, sizeof(generation), vector))
		return 0;
	if (place->module > length || generation < place->generation)
		return 0;
	if (!klogger_otel_copy(&block, sizeof(block), vector + 16ull * place->module))
		return 0;
	return block + 1 > 1 ? block : 0;
}

static __noinline int klogger_otel_read(struct klogger_otel *otel)
{
	struct task_struct___klogger_tls *task = (void *)bpf_get_current_task_btf();
	__u32 process = bpf_get_current_pid_tgid() >> 32;
	struct klogger_otel_place *place = bpf_map_lookup_elem(&klogger_otel_places, &process);
	struct klogger_otel_record record;
	__u64 base, pointer;

	if (likely(!place))
		return 0;
	/* The recorder has not heard of an exec yet; or it is a thread of the kernel's. */
	if (task->mm->start_stack != place->stack || task->flags & KLOGGER_WITHOUT_TLS)
		return 0;
	base = klogger_thread_pointer(task);
	if (place->module)
		base = klogger_otel_block(base, place);
	if (!base || !klogger_otel_copy(&pointer, sizeof(pointer), base + place->offset) ||
	    !pointer || !klogger_otel_copy(&record, KLOGGER_OTEL_RECORD, pointer) ||
	    record.valid != 1)
		return 0;
	otel->id[0] = record.id[0];
	otel->id[1] = record.id[1];
	otel->id[2] = record.id[2];
	return 0;
}

/* Eight hexadecimal digits, of the first four bytes in memory. */
static __always_inline __u64 klogger_otel_digits(__u64 bytes)
{
	__u64 digits = bytes & 0xffffffff;

	digits = (digits | digits << 16) & 0x0000ffff0000ffff;
	digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
	digits = (digits >> 4 | digits << 8) & 0x0f0f0f0f0f0f0f0f;
	/* Those above 9 are letters. */
	return digits + 0x3030303030303030 +
	       ((digits + 0x0606060606060606) >> 4 & 0x0101010101010101) * ('a' - '9' - 1);
}

/* In any place of a record. */
typedef __u64 __attribute__((may_alias)) klogger_otel_word;

/* The ids of trace and span as text: that of an id of zeros is empty. */
static __always_inline void klogger_otel_text(struct klogger_otel *otel, void *to, int first,
					      int words)
{
	klogger_otel_word *text = to;
	__u64 any = 0;
	int n;

	if (!otel->is_read) {
		otel->is_read = 1;
		klogger_otel_read(otel);
	}
#pragma unroll
	for (n = 0; n < words; n++)
		any |= otel->id[first + n];
	any = any ? ~0ull : 0;
#pragma unroll
	for (n = 0; n < words; n++) {
		__u64 bytes = otel->id[first + n];

		text[2 * n] = klogger_otel_digits(bytes) & any;
		text[2 * n + 1] = klogger_otel_digits(bytes >> 32) & any;
	}
}

#define klogger_context_otel_trace(to) klogger_otel_text(&klogger_hit->otel, to, 0, 2)
#define klogger_context_otel_span(to) klogger_otel_text(&klogger_hit->otel, to, 2, 1)

#endif
#endif
