/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads what events contain: kernel memory, and properties of the running thread. */
#ifndef KLOGGER_BPF_READ_H
#define KLOGGER_BPF_READ_H

#include "maps.h"
#include "registers.h"

/* The bit that is 1 in addresses of the kernel and 0 in those of programs. */
#if defined(__TARGET_ARCH_x86)
#define KLOGGER_KERNEL_BIT (1ull << 63)
#else
#define KLOGGER_KERNEL_BIT (1ull << 55)
#endif

/* Whether the compiler knows that it is an address of a program: klogger_user_string(). */
#define klogger_is_user(src)                                              \
	(__builtin_constant_p(!((__u64)(src) & KLOGGER_KERNEL_BIT)) &&    \
	 !((__u64)(src) & KLOGGER_KERNEL_BIT))

/*
 * Memory that is not the kernel's may be that of the running program. If it is not present, it
 * reads as zeros.
 */
static __always_inline long klogger_read_any(void *dst, __u32 size, const void *src)
{
	long error;

	if (klogger_is_user(src))
		return bpf_probe_read_user(dst, size, src);
	error = bpf_probe_read_kernel(dst, size, src);
	return unlikely(error) ? bpf_probe_read_user(dst, size, src) : 0;
}

static __always_inline long klogger_read_text(void *dst, __u32 size, const void *src)
{
	long n;

	if (klogger_is_user(src))
		return bpf_probe_read_user_str(dst, size, src);
	n = bpf_probe_read_kernel_str(dst, size, src);
	return unlikely(n < 0) ? bpf_probe_read_user_str(dst, size, src) : n;
}

/* A NULL pointer has nothing to be read, and is not counted. */
static __noinline int klogger_count_unread(__u32 index, const void *src)
{
	if (src)
		__sync_fetch_and_add(
			&klogger_unread[(klogger_config.base + index) & (KLOGGER_EVENTS_MAX - 1)],
			1);
	return 0;
}

static __always_inline void klogger_copy(__u32 index, void *dst, const void *src, __u32 size)
{
	if (unlikely(klogger_read_any(dst, size, src)))
		klogger_count_unread(index, src);
}

static __always_inline void klogger_copy_text(__u32 index, char *dst, const char *src, __u32 size)
{
	if (unlikely(klogger_read_text(dst, size, src) < 0))
		klogger_count_unread(index, src);
}

/*
 * Available in bodies for every engine: reads memory that may be bad, and the number of this CPU.
 */
#define klogger_read(to, from, size) klogger_read_any(to, size, from)

/*
 * Whether the kernel's structure has this member; it is decided when the program is loaded, and
 * what depends on it is then removed.
 */
#define klogger_has_member(type, member) \
	__builtin_preserve_field_info(((type *)0)->member, 2 /* does it exist? */)
#define klogger_cpu() bpf_get_smp_processor_id()

/*
 * Also for bodies: memory of the running program only. An address of the kernel is as bad as one
 * that is not mapped. Both return a negative error, and else 0, or the length of the text.
 */
#define klogger_user(to, from, size) bpf_probe_read_user(to, size, from)
#define klogger_user_text(to, from, size)                                        \
	({                                                                       \
		long klogger_n = bpf_probe_read_user_str(to, size, from);        \
		klogger_n > 0 ? klogger_n - 1 : klogger_n;                       \
	})
/*
 * A text of the running program, for a field of an event. An address of the kernel becomes one that
 * is not mapped, and not NULL.
 */
#define klogger_user_string(from)                                        \
	((const char *)(((__u64)(from) & ~KLOGGER_KERNEL_BIT) |          \
			((__u64)(from) & KLOGGER_KERNEL_BIT ? 1 : 0)))

/* Copies a C string, cut to size - 1 bytes, and returns its length; 0 if it cannot be read. */
static __always_inline __u32 klogger_text_part(char *dst, __u32 size, const char *src)
{
	long n = klogger_read_text(dst, size, src);

	return n > 0 ? n - 1 : 0;
}

/* A `string` to be logged: its length must be known before space is reserved. */
struct klogger_text {
	__u32 length;
	char bytes[256];
};

static __always_inline void klogger_text_read(__u32 index, struct klogger_text *text,
					      const char *src)
{
	long n = klogger_read_text(text->bytes, sizeof(text->bytes), src);

	if (unlikely(n < 0))
		klogger_count_unread(index, src);
	/* n counts the NUL; an unreadable string is logged as an empty one */
	text->length = n > 0 ? (n - 1) & 255 : 0;
}

/* Copies to `dst`, which has room for text->length bytes rounded up to 8. */
static __always_inline void klogger_text_store(void *dst, struct klogger_text *text)
{
	__u32 length = text->length & 255;

	if (length)
		bpf_probe_read_kernel(dst, length, text->bytes);
}

#ifdef KLOGGER_TEXTS
/*
 * Several texts of an event, or a long one, are too long for the stack. They are read twice: to
 * here for their lengths, and then into the record. What this memory contains is never used, so
 * that a hit may interrupt another one.
 */
struct {
	int (*type)[6 /* BPF_MAP_TYPE_PERCPU_ARRAY */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[KLOGGER_RECORD_MAX];
} klogger_scratch SEC(".maps");

/* The length of a C string, at most `most`; 0 if it cannot be read. */
static __always_inline __u32 klogger_string_length(__u32 index, const char *src, __u32 most)
{
	__u32 first = 0, length;
	char *scratch = bpf_map_lookup_elem(&klogger_scratch, &first);
	long n;

	/* It always exists, but the verifier cannot know that. */
	if (!scratch)
		return 0;
	n = klogger_read_text(scratch, most + 1, src);
	if (unlikely(n < 0))
		klogger_count_unread(index, src);
	length = n > 0 ? n - 1 : 0;
	asm volatile("" : "+r"(length));
	return length <= most ? length : most;
}

/*
 * Copies `length` bytes of it, which klogger_string_length() has found. If the text has become
 * shorter since, a NUL ends it.
 */
static __always_inline void klogger_string_store(__u32 index, void *dst, const char *src,
						 __u32 length, __u32 most)
{
	asm volatile("" : "+r"(length));
	if (length > most || !length)
		return;
	if (unlikely(klogger_read_any(dst, length, src)))
		klogger_count_unread(index, src);
}
#endif

/*
 * Fields of a trace event's record, for the arguments of its probe: a number, an array, and a text
 * whose offset is in the lower half of the word at `at`. The loads are volatile, because the
 * verifier refuses those at offsets that the compiler has combined.
 */
#define klogger_field(at) ((const char *)klogger_arguments + (at))
#define klogger_number_field(type, at) (*(const volatile type *)klogger_field(at))
#define klogger_text_field(at) klogger_field(klogger_number_field(__u32, at) & 0xffff)

/*
 * The number of the place where a probe at several places was hit, for a field `as place`; 0 in a
 * probe of a kind that has one place. The recorder finds these two instructions in the program.
 */
static __always_inline __u32 klogger_place(void)
{
	__u64 number;

	asm volatile("%0 = %1\n\t%0 &= 0xffff" : "=r"(number) : "i"(KLOGGER_PLACE));
	return number;
}

/* The result of a function, when it returns: of fexit, which has it after the arguments. */
static __always_inline __u64 klogger_function_result(void *arguments)
{
	__u64 value = 0;

	bpf_get_func_ret(arguments, &value);
	return value;
}

/*
 * Registers at a kprobe, whose context is struct pt_regs, by number of the argument; and the
 * register with the result. A structure behind a register has no type unless it is given one.
 */
#define klogger_argument_register(n) (klogger_arguments[KLOGGER_WORD_OF(n)])
#define klogger_result_register() (klogger_arguments[KLOGGER_WORD_OF_RESULT])
#define klogger_of_type(type, value) \
	bpf_rdonly_cast((const void *)(value), \
			__builtin_btf_type_id(*(type *)0, 1 /* in the kernel's types */))

/*
 * What a program of a timer, a sample or a breakpoint gets: struct bpf_perf_event_data, which is
 * the registers of what was interrupted, and two words.
 */
#define klogger_sampled_ip() klogger_sampled(KLOGGER_WORD_OF_IP)
#define klogger_sampled_user() KLOGGER_IS_USER(klogger_sampled(KLOGGER_WORD_OF_MODE))
#define klogger_sampled(n) (((const volatile __u64 *)klogger_arguments)[n])
#define klogger_sampled_period() klogger_sampled(KLOGGER_REGISTERS)
#define klogger_sampled_address() klogger_sampled(KLOGGER_REGISTERS + 1)

#ifdef KLOGGER_TIMERS
/* When the latest hit of a CPU was due, by number of the probe. */
struct {
	int (*type)[6 /* BPF_MAP_TYPE_PERCPU_ARRAY */];
	int (*max_entries)[KLOGGER_TIMERS];
	int (*key_size)[4];
	int (*value_size)[8];
} klogger_timer_due SEC(".maps");

/*
 * The time that a hit of a timer stands for: its interval, and those whose hits were missed before.
 * The kernel's timer keeps to the times at which it is due, and leaves those out that have passed.
 * A hit may be late, but not early: by an earlier one it is known that the first was late.
 */
static __always_inline __u64 klogger_timer_passed(__u32 probe, __u64 interval)
{
	__u64 *due = bpf_map_lookup_elem(&klogger_timer_due, &probe);
	__u64 now = bpf_ktime_get_ns(), passed;

	if (!due || !*due) {
		if (due)
			*due = now;
		return interval;
	}
	passed = (now - *due + (interval >> 4)) / interval * interval;
	if (!passed)
		passed = interval;
	*due = *due + passed < now ? *due + passed : now;
	return passed;
}
#endif

/*
 * The thread that was running, perhaps interrupted, when the probe was hit; for bodies, and for
 * `context tid`.
 */
static __always_inline __u32 klogger_current_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

#define klogger_context_tid() klogger_current_tid()

static __always_inline __u32 klogger_context_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u64 klogger_context_cgroup(void)
{
	return bpf_get_current_cgroup_id();
}

#define klogger_context_comm(to) bpf_get_current_comm(to, sizeof(to))

#ifdef KLOGGER_COUNTERS
/* For each CPU the counters of this schema. The recorder opens them, and sets their number. */
struct {
	int (*type)[4 /* BPF_MAP_TYPE_PERF_EVENT_ARRAY */];
	int (*max_entries)[1];
	int (*key_size)[4];
	int (*value_size)[4];
} klogger_counters SEC(".maps");

/* For bodies: what a counter of this CPU has counted; 0 if there is none. */
static __noinline __u64 klogger_counter(__u32 number)
{
	struct {
		__u64 value;
		__u64 enabled;
		__u64 running;
	} count = {};
	__u32 at = bpf_get_smp_processor_id() * KLOGGER_COUNTERS + number;

	if (number < KLOGGER_COUNTERS)
		bpf_perf_event_read_value(&klogger_counters, at, &count, sizeof(count));
	return count.value;
}
#endif

#ifdef KLOGGER_STACKS
/*
 * The kernel stacks of this recording's probe hits. The kernel finds the slot of a stack by its
 * hash, and never gives a slot to another stack, so that numbers stay valid; a stack whose slot is
 * taken has no number. Shared by all objects.
 */
struct {
	int (*type)[7 /* BPF_MAP_TYPE_STACK_TRACE */];
	int (*max_entries)[KLOGGER_STACKS_MAX];
	int (*key_size)[4];
	int (*value_size)[8 * KLOGGER_STACK_FRAMES];
} klogger_stacks SEC(".maps");

/* Stacks without a number: [0] the slot was taken, [1] any other reason. Shared by all objects. */
__u64 klogger_stackless[2] SEC(".bss.klogger_k");

/* The number of the stack's slot in the table, from 1; 0 if it has none. */
static __always_inline __u32 klogger_stack_of(void *context)
{
	long place = bpf_get_stackid(context, &klogger_stacks, KLOGGER_STACK_SKIP);

	if (likely(place >= 0))
		return place + 1;
#ifdef KLOGGER_SAMPLES
	/* What a sample has interrupted in a program has no kernel stack. */
	if (place == -14 /* EFAULT */)
		return 0;
#endif
	__sync_fetch_and_add(&klogger_stackless[place != -17 /* EEXIST */], 1);
	return 0;
}

#define klogger_stack() klogger_stack_of(klogger_context)
#define klogger_context_stack() klogger_stack_of(klogger_hit->context)
#endif

#endif
