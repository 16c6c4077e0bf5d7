/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parts of C and of the kernel that BPF programs need: attributes, single loads and stores,
 * helpers.
 */
#ifndef KLOGGER_BPF_HELPERS_H
#define KLOGGER_BPF_HELPERS_H

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
/*
 * For a function whose parameters are numbers, also one of a schema's `code`: the verifier looks at
 * it once, for all values, and not again in each state of each of its callers.
 */
#define klogger_global __noinline
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() asm volatile("" ::: "memory")
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#ifndef NULL
#define NULL ((void *)0)
#endif
#define true 1
#define false 0

/* Helpers by their number in the kernel's ABI (include/uapi/linux/bpf.h). */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_tail_call)(void *context, void *programs, __u32 slot) = (void *)12;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_current_comm)(void *to, __u32 size) = (void *)16;
static long (*const bpf_get_stackid)(void *context, void *map, __u64 flags) = (void *)27;
static long (*const bpf_get_stack)(void *context, void *to, __u32 size, __u64 flags) = (void *)67;
static long (*const bpf_perf_event_read_value)(void *map, __u64 flags, void *to,
					       __u32 size) = (void *)55;
static __u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*const bpf_probe_read_user)(void *dst, __u32 size, const void *src) = (void *)112;
static long (*const bpf_probe_read_user_str)(void *dst, __u32 size, const void *src) = (void *)114;
static long (*const bpf_probe_read_kernel)(void *dst, __u32 size, const void *src) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *dst, __u32 size,
					       const void *src) = (void *)115;
static long (*const bpf_seq_write)(void *file, const void *data, __u32 size) = (void *)127;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size,
					__u64 flags) = (void *)130;
static long (*const bpf_loop)(__u32 times, long (*call)(__u64 n, void *data), void *data,
			      __u64 flags) = (void *)181;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
/* Of a thread that does not run. */
static long (*const bpf_get_task_stack)(struct task_struct *task, void *to, __u32 size,
					__u64 flags) = (void *)141;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *task, void *first,
					   __u64 flags) = (void *)156;
static long (*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*const bpf_find_vma)(struct task_struct *task, __u64 address, void *call, void *data,
				  __u64 flags) = (void *)180;

static __u64 (*const bpf_get_attach_cookie)(void *context) = (void *)174;
/* The result of the function of a program that runs at its exit. */
static long (*const bpf_get_func_ret)(void *context, __u64 *value) = (void *)184;

/* Since 6.2; programs that use it are loaded only where it exists. */
extern void *bpf_rdonly_cast(const void *address, __u32 type)
	__attribute__((weak, section(".ksyms")));

/* Kernel functions since 6.11; called only if programs can be preempted: see klogger_begin(). */
extern void bpf_preempt_disable(void) __attribute__((weak, section(".ksyms")));
extern void bpf_preempt_enable(void) __attribute__((weak, section(".ksyms")));

/*
 * For bodies: an address as a number, which the verifier lets a program compute with. To the
 * verifier a pointer becomes one only by a negation. A function, because C of a schema may not use
 * the assembler, not even by a macro.
 */
static __always_inline __u64 klogger_number_of(__u64 address)
{
	asm volatile("%0 = -%0\n%0 = -%0" : "+r"(address));
	return address;
}

#define klogger_number(address) klogger_number_of((__u64)(address))

#endif
