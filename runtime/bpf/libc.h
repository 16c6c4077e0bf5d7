/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether it is the GNU C library that makes a system call. Only then is it known what the memory
 * around an argument is: others have locks with the same values at other distances.
 */
#ifndef KLOGGER_BPF_LIBC_H
#define KLOGGER_BPF_LIBC_H

#include "kernel.h"

/*
 * Where the program goes on after the call, and what is before that in the library's function
 * syscall(), which passes on the calls of others: its last argument, and the call.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___klogger_caller {
	unsigned long ip;
} __attribute__((preserve_access_index));

#define klogger_saved_ip(regs) ((regs)->ip)
/* mov 8(%rsp),%r9; syscall: the last 7 of 8 bytes */
#define KLOGGER_IS_PASSED_ON(before) ((before) >> 8 == 0x050f08244c8b4cull)
#else
struct pt_regs___klogger_caller {
	unsigned long long pc;
} __attribute__((preserve_access_index));

#define klogger_saved_ip(regs) ((regs)->pc)
/* mov x6, x7; svc 0 */
#define KLOGGER_IS_PASSED_ON(before) ((before) == 0xd4000001aa0703e6ull)
#endif

struct vm_area_struct___klogger {
	struct file___klogger *vm_file;
} __attribute__((preserve_access_index));

/* A name, as two words. */
struct klogger_mapped {
	__u64 name[2];
};

static long klogger_see_mapping(struct task_struct *task, struct vm_area_struct___klogger *area,
				struct klogger_mapped *found)
{
	struct file___klogger *file = area->vm_file;

	(void)task;
	if (file)
		bpf_probe_read_kernel_str(found->name, sizeof(found->name),
					  file->f_path.dentry->d_name.name);
	return 0;
}

/* Bytes of a name as a word of memory, on machines that have the lowest byte first. */
#define KLOGGER_WORD(a, b, c, d, e, f, g, h)                                                \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 | \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

static __always_inline int klogger_is_libc(const __u64 *name)
{
	const __u64 low = ~0ull >> 8;

	/* libc.so.6; before 2.34 libc-2.N.so, libpthread-2.N.so, libpthread.so.0 */
	return (name[0] == KLOGGER_WORD('l', 'i', 'b', 'c', '.', 's', 'o', '.') &&
		name[1] == '6') ||
	       (name[0] & low) == KLOGGER_WORD('l', 'i', 'b', 'c', '-', '2', '.', 0) ||
	       name[0] == KLOGGER_WORD('l', 'i', 'b', 'p', 't', 'h', 'r', 'e');
}

/*
 * For bodies of system calls: 1 if the call is the library's own. 0 if not, or if that cannot be
 * known: in a static program, and while another thread changes what is mapped.
 */
static __noinline int klogger_by_libc(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs___klogger_caller *regs = (void *)bpf_task_pt_regs(task);
	__u64 ip = klogger_saved_ip(regs), before = 0;
	struct klogger_mapped found = {};

	if (bpf_find_vma(task, ip, klogger_see_mapping, &found, 0) ||
	    !klogger_is_libc(found.name) ||
	    bpf_probe_read_user(&before, sizeof(before), (void *)(ip - sizeof(before))))
		return 0;
	return !KLOGGER_IS_PASSED_ON(before);
}

#endif
