/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels, one entry each, behind a getter. Everything else is free of
 * kernel versions. A type with a `___suffix` stands for the kernel's type of that name as it is on
 * the kernels named here.
 */
#ifndef KLOGGER_BPF_KERNEL_H
#define KLOGGER_BPF_KERNEL_H

#include "maps.h"

/*
 * sched_switch passes prev_state by value since 5.18 (fa2c3254d7cf, "sched/tracing: Don't re-read
 * p->state when emitting sched_switch event"); schemata name that parameter. `preempt` tells that
 * the thread was pushed off its CPU between deciding to sleep and sleeping: its state is then not
 * 0, but it is still runnable.
 */
#define klogger_switch_state(preempt, prev_state) ((preempt) ? 0 : (prev_state))

/* The thread that was running, perhaps interrupted, when the probe was hit. */
#define klogger_current() bpf_get_current_task_btf()

/* Of the running thread, for `context prio` and `context ppid`. */
struct task_struct___klogger {
	int prio;
	int tgid;
	struct task_struct___klogger *real_parent;
} __attribute__((preserve_access_index));

#define klogger_context_prio() (((struct task_struct___klogger *)bpf_get_current_task_btf())->prio)
#define klogger_context_ppid() \
	(((struct task_struct___klogger *)bpf_get_current_task_btf())->real_parent->tgid)

/*
 * For `context otel`: where the running thread has its own variables. Threads that the kernel runs
 * in the process of a program have none: PF_KTHREAD, PF_IO_WORKER, and since 6.4 PF_USER_WORKER
 * (54e6842d0775), whose bit was unused before.
 */
#define KLOGGER_WITHOUT_TLS (0x200000 | 0x10 | 0x4000)

struct thread_struct___klogger {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

struct mm_struct___klogger_tls {
	unsigned long start_stack;
} __attribute__((preserve_access_index));

struct task_struct___klogger_tls {
	unsigned int flags;
	struct mm_struct___klogger_tls *mm;
	struct thread_struct___klogger thread;
} __attribute__((preserve_access_index));

#if defined(__TARGET_ARCH_x86)
#define klogger_thread_pointer(task) ((task)->thread.fsbase)
#else
/* The recorder refuses to record it. */
#define klogger_thread_pointer(task) 0
#endif

/* For `context netns` and `context pidns_tid`; 0 while a thread ends, when it has left them. */
struct ns_common___klogger {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net___klogger {
	struct ns_common___klogger ns;
} __attribute__((preserve_access_index));

struct nsproxy___klogger {
	struct net___klogger *net_ns;
} __attribute__((preserve_access_index));

struct upid___klogger {
	int nr;
	void *ns;
} __attribute__((preserve_access_index));

struct pid___klogger {
	unsigned int level;
	struct upid___klogger numbers[1];
} __attribute__((preserve_access_index));

struct task_struct___klogger_spaces {
	struct nsproxy___klogger *nsproxy;
	struct pid___klogger *thread_pid;
} __attribute__((preserve_access_index));

#define klogger_context_netns()                                                      \
	(((struct task_struct___klogger_spaces *)bpf_get_current_task_btf())->nsproxy \
		 ->net_ns->ns.inum)

/* The number in the innermost of the namespaces that the thread is in, which is the last one. */
static __always_inline __u32 klogger_context_pidns_tid(void)
{
	struct task_struct___klogger_spaces *task = (void *)bpf_get_current_task_btf();
	/* Of the kernel that records, not of the one for which this is compiled. */
	__u32 size = __builtin_preserve_type_info(*(struct upid___klogger *)0, 1 /* its size */);
	struct upid___klogger *number;
	struct pid___klogger *pid;
	__u32 level = 0;
	int found = 0;

	/* The verifier allows no variable offset from a pointer that it knows, so pid is read. */
	if (bpf_probe_read_kernel(&pid, sizeof(pid), &task->thread_pid) || !pid ||
	    bpf_probe_read_kernel(&level, sizeof(level), &pid->level))
		return 0;
	level &= 31;
	number = (void *)((char *)pid->numbers + level * size);
	bpf_probe_read_kernel(&found, sizeof(found), &number->nr);
	return found;
}

/* What threads are chosen by: see scope.h. `cgroups` exists with CONFIG_CGROUPS. */
struct cred___klogger {
	struct {
		unsigned int val;
	} euid;
} __attribute__((preserve_access_index));

struct kernfs_node___klogger {
	__u64 id;
} __attribute__((preserve_access_index));

struct cgroup___klogger;

struct cgroup_subsys_state___klogger {
	struct cgroup___klogger *cgroup;
	struct cgroup_subsys_state___klogger *parent;
} __attribute__((preserve_access_index));

struct cgroup___klogger {
	struct cgroup_subsys_state___klogger self;
	struct kernfs_node___klogger *kn;
} __attribute__((preserve_access_index));

struct css_set___klogger {
	struct cgroup___klogger *dfl_cgrp;
} __attribute__((preserve_access_index));

struct task_struct___klogger_choice {
	int pid;
	char comm[16];
	const struct cred___klogger *cred;
	struct css_set___klogger *cgroups;
} __attribute__((preserve_access_index));

/* Controllers, which have numbers of their own on each kernel: see KLOGGER_CONTROLLERS. */
#define KLOGGER_CONTROLLER(name, id) id##_cgrp_id___klogger,
enum cgroup_subsys_id___klogger {
	no_cgrp_id___klogger,
	KLOGGER_CONTROLLERS(KLOGGER_CONTROLLER)
};
#undef KLOGGER_CONTROLLER

/* `what`: 0: does this kernel have it? 1: its number on this kernel. */
#define klogger_controller(id, what) \
	__builtin_preserve_enum_value( \
		*(enum cgroup_subsys_id___klogger *)id##_cgrp_id___klogger, what)

struct css_set___klogger_groups {
	struct cgroup_subsys_state___klogger *subsys[1];
} __attribute__((preserve_access_index));

struct task_struct___klogger_groups {
	struct css_set___klogger_groups *cgroups;
} __attribute__((preserve_access_index));

/* Of a thread: its group by the number of a controller on this kernel. */
static __always_inline struct cgroup_subsys_state___klogger *
klogger_group_state(void *thread, __u64 number)
{
	struct task_struct___klogger_groups *task = thread;
	struct cgroup_subsys_state___klogger *state = 0;
	struct css_set___klogger_groups *set;

	if (bpf_probe_read_kernel(&set, sizeof(set), &task->cgroups) ||
	    bpf_probe_read_kernel(&state, sizeof(state),
				  (char *)&set->subsys[0] + number * sizeof(state)))
		return 0;
	return state;
}

/* The id of the group, unique in its hierarchy, or 0. */
static __always_inline __u64 klogger_group_id(struct cgroup_subsys_state___klogger *state)
{
	struct kernfs_node___klogger *node;
	struct cgroup___klogger *group;
	__u64 id = 0;

	if (bpf_probe_read_kernel(&group, sizeof(group), &state->cgroup) ||
	    bpf_probe_read_kernel(&node, sizeof(node), &group->kn))
		return 0;
	bpf_probe_read_kernel(&id, sizeof(id), &node->id);
	return id;
}

/*
 * The control group of a hierarchy of version 1, or of the one of version 2, that accounts the
 * memory of the running thread; 0 without CONFIG_MEMCG.
 */
static __always_inline __u64 klogger_context_memcg(void)
{
	struct cgroup_subsys_state___klogger *state;

	if (!klogger_controller(memory, 0))
		return 0;
	state = klogger_group_state(bpf_get_current_task_btf(), klogger_controller(memory, 1));
	return klogger_group_id(state);
}

/* The number of a controller on this kernel, or -1. */
static __always_inline int klogger_controller_number(enum klogger_controller controller)
{
#define KLOGGER_CONTROLLER(name, id)					\
	if (controller == KLOGGER_CONTROLLER_##name)			\
		return klogger_controller(id, 0) ? (int)klogger_controller(id, 1) : -1;
	KLOGGER_CONTROLLERS(KLOGGER_CONTROLLER)
#undef KLOGGER_CONTROLLER
	return -1;
}

/* Whether a thread is in this group of the hierarchy that has the controller, or below it. */
static __noinline int klogger_is_in_v1_cgroup(void *task, __u32 controller, __u64 id)
{
	struct cgroup_subsys_state___klogger *state;
	int number = klogger_controller_number(controller);

	if (number < 0)
		return 0;
	state = klogger_group_state(task, number);
	for (int i = 0; i < KLOGGER_CGROUP_DEPTH && state; i++) {
		if (klogger_group_id(state) == id)
			return 1;
		if (bpf_probe_read_kernel(&state, sizeof(state), &state->parent))
			return 0;
	}
	return 0;
}

/* A thread's name, ids, and when it started: in ns, not counting the time the machine slept. */
struct task_struct___klogger_name {
	int pid;
	int tgid;
	unsigned long long start_time;
	char comm[16];
} __attribute__((preserve_access_index));

/*
 * Since 5.16 (bcf9033e5449, "sched: move CPU field back into thread_info") the CPU of a thread is
 * here.
 */
struct thread_info___klogger {
	unsigned int cpu;
} __attribute__((preserve_access_index));

struct task_struct___klogger_cpu {
	struct thread_info___klogger thread_info;
} __attribute__((preserve_access_index));

#define klogger_task_cpu(task) (((struct task_struct___klogger_cpu *)(task))->thread_info.cpu)

/* A thread, for the lists of what exists: PF_KTHREAD is set of threads of the kernel. */
struct task_struct___klogger_listed {
	int pid;
	unsigned int flags;
} __attribute__((preserve_access_index));

#define klogger_task_tid(task) (((const struct task_struct___klogger_listed *)(task))->pid)
#define klogger_task_is_kernel(task) \
	(((const struct task_struct___klogger_listed *)(task))->flags >> 21 & 1)

/* What many schemata log of a thread, a file or a block request. */
#define klogger_task_ppid(task) (((const struct task_struct___klogger *)(task))->real_parent->tgid)
#define klogger_task_cgroup(task) \
	(((const struct task_struct___klogger_choice *)(task))->cgroups->dfl_cgrp->kn->id)

struct super_block___klogger {
	unsigned int s_dev;
} __attribute__((preserve_access_index));

struct inode___klogger {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block___klogger *i_sb;
} __attribute__((preserve_access_index));

struct qstr___klogger {
	const unsigned char *name;
} __attribute__((preserve_access_index));

struct dentry___klogger {
	struct inode___klogger *d_inode;
	struct qstr___klogger d_name;
} __attribute__((preserve_access_index));

struct path___klogger {
	struct dentry___klogger *dentry;
} __attribute__((preserve_access_index));

struct file___klogger {
	struct inode___klogger *f_inode;
	void *private_data;
	struct path___klogger f_path;
} __attribute__((preserve_access_index));

#define klogger_file_ino(file) (((const struct file___klogger *)(file))->f_inode->i_ino)
#define klogger_file_dev(file) (((const struct file___klogger *)(file))->f_inode->i_sb->s_dev)
#define klogger_file_name(file) \
	((const char *)((const struct file___klogger *)(file))->f_path.dentry->d_name.name)

#define klogger_inode_ino(inode) (((const struct inode___klogger *)(inode))->i_ino)
#define klogger_inode_dev(inode) (((const struct inode___klogger *)(inode))->i_sb->s_dev)
#define klogger_dentry_ino(dentry) (((const struct dentry___klogger *)(dentry))->d_inode->i_ino)
#define klogger_dentry_name(dentry) \
	((const char *)((const struct dentry___klogger *)(dentry))->d_name.name)

struct block_device___klogger {
	unsigned int bd_dev;
} __attribute__((preserve_access_index));

struct gendisk___klogger {
	struct block_device___klogger *part0;
} __attribute__((preserve_access_index));

struct request_queue___klogger {
	struct gendisk___klogger *disk;
} __attribute__((preserve_access_index));

struct request___klogger {
	struct request_queue___klogger *q;
	unsigned long long __sector;
	unsigned int __data_len;
} __attribute__((preserve_access_index));

/* A request without a disk, of a driver for its own use, has device 0, as NULL reads as 0. */
#define klogger_request_dev(rq) (((const struct request___klogger *)(rq))->q->disk->part0->bd_dev)
#define klogger_request_sector(rq) (((const struct request___klogger *)(rq))->__sector)
#define klogger_request_bytes(rq) (((const struct request___klogger *)(rq))->__data_len)

/* A run queue, which is private to the scheduler. */
struct rq___klogger {
	unsigned int nr_running;
	int cpu;
	unsigned long long prev_steal_time_rq;
} __attribute__((preserve_access_index));

#define klogger_rq_cpu(rq) (((const struct rq___klogger *)(rq))->cpu)
#define klogger_rq_nr_running(rq) (((const struct rq___klogger *)(rq))->nr_running)

struct cfs_rq___klogger {
	struct rq___klogger *rq;
} __attribute__((preserve_access_index));

struct sched_entity___klogger {
	struct cfs_rq___klogger *cfs_rq;
} __attribute__((preserve_access_index));

struct task_struct___klogger_steal {
	struct sched_entity___klogger se;
} __attribute__((preserve_access_index));

/*
 * Where this CPU's nesting of interrupts is counted: in the per-CPU variable __preempt_count, or
 * from 6.2 to 6.14 in a member of pcpu_hot (64701838bf05, "x86/percpu: Move preempt_count next to
 * current_task", and 46e8fff6d45f, "x86/preempt: Move preempt count to percpu hot section"); on
 * arm64 in a member of the running thread. With PREEMPT_RT, soft interrupts are threads, which
 * count them themselves. The kernel gives programs no address of these variables without
 * CONFIG_KALLSYMS_ALL, but their distance from this CPU's run queue is in its type information.
 */
struct pcpu_hot___klogger {
	int preempt_count;
} __attribute__((preserve_access_index));

struct thread_info___klogger_irq {
	unsigned int preempt_count;
} __attribute__((preserve_access_index));

struct task_struct___klogger_irq {
	struct thread_info___klogger_irq thread_info;
	struct sched_entity___klogger se;
	int softirq_disable_cnt;
} __attribute__((preserve_access_index));

#define KLOGGER_IRQ_UNKNOWN (~0u)

static __always_inline __u32 klogger_preempt_count_of(struct task_struct___klogger_irq *task)
{
	struct pcpu_hot___klogger *hot = NULL;
	__u64 distance = klogger_config.preempt_count;
	__u32 count;

	if (__builtin_preserve_field_info(task->thread_info.preempt_count, 2 /* does it exist? */))
		return task->thread_info.preempt_count;
	if (!distance || !__builtin_preserve_field_info(task->se.cfs_rq, 2) ||
	    !__builtin_preserve_field_info(task->se.cfs_rq->rq, 2))
		return KLOGGER_IRQ_UNKNOWN;
	if (__builtin_preserve_field_info(hot->preempt_count, 2))
		distance += __builtin_preserve_field_info(hot->preempt_count, 0 /* its offset */);
	if (bpf_probe_read_kernel(&count, sizeof(count),
				  (void *)((__u64)task->se.cfs_rq->rq + distance)))
		return KLOGGER_IRQ_UNKNOWN;
	return count;
}

/*
 * What runs, as the table irq_level has it. The masks are those of include/linux/preempt.h: a soft
 * interrupt that runs counts 1 in its byte, and one that is only disabled an even number.
 */
static __always_inline __u32 klogger_context_irq(void)
{
	struct task_struct___klogger_irq *task = (void *)bpf_get_current_task_btf();
	__u32 count = klogger_preempt_count_of(task);

	if (count == KLOGGER_IRQ_UNKNOWN)
		return 4;
	if (__builtin_preserve_field_info(task->softirq_disable_cnt, 2))
		count |= task->softirq_disable_cnt & 0xff00;
	return count & 0xf00000 ? 3 : count & 0xf0000 ? 2 : count & 0x100 ? 1 : 0;
}

/*
 * The time that the hypervisor has taken from this CPU, in ns: what the scheduler's clock has left
 * out until the last tick. 0 on kernels that do not count it (CONFIG_PARAVIRT_TIME_ACCOUNTING).
 */
static __always_inline __u64 klogger_steal_ns(void)
{
	struct task_struct___klogger_steal *p = (void *)bpf_get_current_task_btf();

	if (!__builtin_preserve_field_info(p->se.cfs_rq, 2 /* does it exist? */) ||
	    !__builtin_preserve_field_info(p->se.cfs_rq->rq, 2) ||
	    !__builtin_preserve_field_info(p->se.cfs_rq->rq->prev_steal_time_rq, 2))
		return 0;
	return p->se.cfs_rq->rq->prev_steal_time_rq;
}

#endif
